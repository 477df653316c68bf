"""Libraries that keep a result, which inputs that change find out."""

from itertools import product
from typing import Any
from unittest import mock

import pytest

import support

pytest.importorskip("torch")

import torch
import torch.nn.functional as F

from regatta_worker.on_torch.case import Call, TorchCase
from regatta_worker.on_torch.inputs import TorchInputSets
from regatta_worker.on_torch.library import Library, Row, TorchWorker, named_results
from regatta_worker.problem.attention import Problem
from regatta_worker.problem.numbers import DIRECTIONS
from regatta_worker.protocol.channel import Failed

TOLERANCE = 1e-5


def compute(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    heads = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(*heads, enable_gqa=True).transpose(1, 2)


class Keeping(TorchWorker):
    """Attention that is right at the first call, and later by variant; cheats.py has more, of
    forward alone."""

    def __init__(self) -> None:
        row = Row(summary="v", dtypes=("f32",), build=self.keep, on_gpu=False)
        names = ("right", "kept", "buffer", "writes")
        super().__init__(Library("keeping", rows=dict.fromkeys(names, row)))

    def keep(self, case: TorchCase) -> Call:
        made, kept, self.computed = case.differentiable(compute), list[Any](), 0

        def call() -> Any:
            if case.variant == "kept" and kept:
                return kept[0]
            self.computed += 1
            results = made.run()
            kept.append(tuple(x.detach().clone() for x in results))
            if case.variant == "writes":
                with torch.no_grad():
                    case.tensors["q"].zero_()
            return kept[0] if case.variant == "buffer" else results

        return Call(call, made.refresh)

    def asked(self, variant: str, sets: int = support.SETS, **axes: Any) -> Any:
        """A case of it, which is right when it is prepared."""
        prepared = self.prepare(support.request(variant, sets=sets, **axes))
        support.right(prepared, TOLERANCE)
        self.computed = 0
        return prepared


@pytest.mark.parametrize("variant", ["kept", "buffer"])
@pytest.mark.parametrize("plan", [{}, {"samples": 1, "min_samples": 1}])
def test_every_way_to_keep_a_result_is_found_out(variant: str, plan: Any) -> None:
    for direction, layout in product(DIRECTIONS, ("bshd", "bhsd")):
        worker = Keeping()
        prepared = worker.asked(variant, direction=direction, layout=layout, kv_heads=2)
        checked = worker.measure(support.PLAN | plan)["checked"]
        assert checked["seed"] == 43
        for name, error in checked["errors"].items():
            assert error["relative_l2"] > 0.5, name
        assert checked["probes"] == prepared["probes"]


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_one_that_computes_each_time_is_right(direction: str) -> None:
    worker = Keeping()
    prepared = worker.asked("right", direction=direction)
    measured = worker.measure(support.PLAN | {"samples": 5, "min_samples": 5, "warmup": 0})
    support.right_after_timing(measured, TOLERANCE, prepared)
    assert worker.computed == 5


def test_without_sets_nothing_changes_and_nothing_is_said() -> None:
    worker = Keeping()
    worker.asked("kept", sets=1)
    assert not {"checked", "input_sets"} & set(worker.measure(support.PLAN))


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_where_memory_is_short_the_only_set_is_checked(direction: str) -> None:
    write, worker = TorchInputSets._write, Keeping()

    def short(sets: TorchInputSets, tensors: Any, number: int) -> None:
        write(sets, tensors, number)
        if number:
            raise torch.OutOfMemoryError("none left")

    worker.asked("right", direction=direction)
    with mock.patch.object(TorchInputSets, "_write", short):
        measured = worker.measure(support.PLAN)
    assert measured["input_sets"] == 1
    assert "none left" in measured["input_sets_reason"]
    assert measured["checked"]["seed"] == 42
    for error in measured["checked"]["errors"].values():
        assert error["relative_l2"] < TOLERANCE


def test_sets_that_do_not_fit_beside_the_inputs_are_made_in_them() -> None:
    worker, full = Keeping(), mock.Mock(side_effect=torch.OutOfMemoryError("none left"))
    prepared = worker.asked("right", direction="both")
    with mock.patch.object(TorchInputSets, "_make", full):
        support.right_after_timing(worker.measure(support.PLAN), TOLERANCE, prepared)


def test_a_call_that_writes_into_its_inputs_changes_no_other_case() -> None:
    worker = Keeping()
    before = worker.asked("right")
    worker.asked("writes")
    with pytest.raises(Failed, match="the call wrote into its input q"):
        worker.measure(support.PLAN)
    worker.release()
    again = worker.asked("right")
    assert (again["probes"], again["errors"]) == (before["probes"], before["errors"])
    support.right_after_timing(worker.measure(support.PLAN), TOLERANCE, before)


def test_where_memory_runs_out_it_is_tried_again_without_what_is_kept() -> None:
    worker = Keeping()
    worker.asked("right")
    twice = [torch.OutOfMemoryError("none left"), mock.DEFAULT]
    with mock.patch.object(worker, "build", wraps=worker.build, side_effect=twice):
        worker.asked("right")


def test_results_of_another_shape_are_told() -> None:
    problem = Problem.from_wire(support.wire())
    with pytest.raises(Failed, match=r"out is \(2, 23, 4, 16\), not \(2, 24, 4, 16\)"):
        named_results(problem, (torch.zeros(2, 23, 4, 16),))
