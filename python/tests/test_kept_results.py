"""Libraries that keep a result, which inputs that change find out."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any
from unittest import mock

import pytest

import support

pytest.importorskip("torch")

import torch
import torch.nn.functional as F

from regatta_worker.on_torch.case import Call, Tensors, TorchCase
from regatta_worker.on_torch.inputs import TorchInputSets
from regatta_worker.on_torch.library import Library, Row, TorchWorker, named_results
from regatta_worker.problem.attention import DIRECTIONS, Problem
from regatta_worker.protocol.channel import Failed

TOLERANCE = 1e-5


def compute(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    heads = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(*heads, enable_gqa=True).transpose(1, 2)


KEYS: dict[str, Callable[[Tensors], Any]] = {
    "right": lambda tensors: object(),
    "first": lambda tensors: None,
    "address": lambda tensors: tuple(tensors[name].data_ptr() for name in "qkv"),
    "version": lambda tensors: tuple(x._version for x in tensors.values()),
}
"""By variant, what a result is kept by; cheats.py has more, of forward alone."""


class Keeping(TorchWorker):
    """Attention that is right at the first call, and later by variant gives what it kept."""

    writes = False
    """Whether a call writes into its inputs."""

    def __init__(self) -> None:
        row = Row(summary="v", dtypes=("f32",), build=self.keep, on_gpu=False)
        super().__init__(Library("keeping", rows=dict.fromkeys((*KEYS, "written"), row)))

    def keep(self, case: TorchCase) -> Call:
        self.computed = 0
        made, kept, buffers = case.differentiable(compute), dict[Any, Any](), list[torch.Tensor]()

        def call() -> Any:
            found = KEYS[case.variant](case.tensors)
            if found not in kept:
                # Of the previous call alone, as an output cache does.
                kept.clear()
                self.computed += 1
                kept[found] = tuple(x.detach().clone() for x in made.run())
                if self.writes:
                    with torch.no_grad():
                        case.tensors["q"].zero_()
            return kept[found]

        def written_once() -> Any:
            results = made.run()
            if not buffers:
                buffers.extend(x.detach().clone() for x in results)
            return tuple(buffers)

        return Call(written_once if case.variant == "written" else call, made.refresh)


class TestKeptResults:
    """A library that keeps its results is wrong after timing, and right before."""

    def measured(self, variant: str, plan: Any = None, **axes: Any) -> tuple[Any, Any, Keeping]:
        library = Keeping()
        prepared = library.prepare(request(**axes) | {"variant": variant})
        support.right(prepared, TOLERANCE)
        library.computed = 0
        return prepared, library.measure(support.PLAN | (plan or {})), library

    @pytest.mark.parametrize("variant", ["first", "address", "written"])
    @pytest.mark.parametrize("plan", [{}, {"samples": 1, "min_samples": 1}])
    def test_every_way_to_keep_a_result_is_found_out(self, variant: str, plan: Any) -> None:
        for direction, layout in product(DIRECTIONS, ("bshd", "bhsd")):
            axes = {"direction": direction, "layout": layout, "kv_heads": 2}
            prepared, measured, _ = self.measured(variant, plan, **axes)
            checked = measured["checked"]
            assert checked["seed"] == 43
            for name, error in checked["errors"].items():
                assert error["relative_l2"] > 0.5, name
            assert checked["probes"] == prepared["probes"]

    def test_one_that_looks_at_the_contents_computes_each_time(self) -> None:
        for variant, direction in product(("right", "version"), DIRECTIONS):
            plan = {"samples": 5, "min_samples": 5, "warmup": 0}
            prepared, measured, library = self.measured(variant, plan, direction=direction)
            support.right_after_timing(measured, TOLERANCE, prepared)
            assert library.computed == 5

    def test_without_sets_nothing_changes_and_nothing_is_said(self) -> None:
        library = Keeping()
        library.prepare(request() | {"variant": "first", "input_sets": 1})
        measured = library.measure(support.PLAN)
        assert not {"checked", "input_sets"} & set(measured)

    def test_where_memory_is_short_the_only_set_is_checked(self) -> None:
        write = TorchInputSets._write

        def short(sets: TorchInputSets, tensors: Any, number: int) -> None:
            write(sets, tensors, number)
            if number:
                raise torch.OutOfMemoryError("none left")

        for direction in DIRECTIONS:
            with mock.patch.object(TorchInputSets, "_write", short):
                _, measured, _ = self.measured("right", direction=direction)
            assert measured["input_sets"] == 1
            assert "none left" in measured["input_sets_reason"]
            assert measured["checked"]["seed"] == 42
            for error in measured["checked"]["errors"].values():
                assert error["relative_l2"] < TOLERANCE

    def test_sets_that_do_not_fit_beside_the_inputs_are_made_in_them(self) -> None:
        full = mock.patch.object(
            TorchInputSets, "_make", side_effect=torch.OutOfMemoryError("none left")
        )
        with full:
            prepared, measured, _ = self.measured("right", direction="both")
        support.right_after_timing(measured, TOLERANCE, prepared)

    def test_results_of_another_shape_are_told(self) -> None:
        problem = Problem.from_wire(support.wire())
        with pytest.raises(Failed, match=r"out is \(2, 23, 4, 16\), not \(2, 24, 4, 16\)"):
            named_results(problem, (torch.zeros(2, 23, 4, 16),))


def request(**axes: Any) -> dict[str, Any]:
    given = {"variant": "right", "seed": support.SEED, "params": {}, "input_sets": support.SETS}
    return given | {"problem": support.wire(**axes)}


class TestKeptInputs:
    """What a worker keeps between cases: nothing that a call could have changed."""

    def test_a_call_that_writes_into_its_inputs_changes_no_other_case(self) -> None:
        library = Keeping()
        before = library.prepare(request())
        library.writes = True
        library.prepare(request())
        with pytest.raises(Failed, match="the call wrote into its input q"):
            library.measure(support.PLAN)
        library.release()
        library.writes = False
        again = library.prepare(request())
        assert again["probes"] == before["probes"]
        assert again["errors"] == before["errors"]
        measured = library.measure(support.PLAN)
        support.right_after_timing(measured, TOLERANCE, before)

    def test_what_does_not_fit_is_not_kept_and_is_right(self) -> None:
        library = Keeping()
        library.kept.cache.limit_bytes = 1000
        prepared = library.prepare(request(direction="both"))
        measured = library.measure(support.PLAN)
        support.right_after_timing(measured, TOLERANCE, prepared)
        assert len(library.kept.cache.values) == 0

    def test_where_memory_runs_out_it_is_tried_again_without_what_is_kept(self) -> None:
        library = Keeping()
        library.prepare(request())
        build, left = library.build, [1]

        def short(*arguments: Any) -> Any:
            if left and left.pop():
                raise torch.OutOfMemoryError("none left")
            return build(*arguments)

        with mock.patch.object(library, "build", short):
            prepared = library.prepare(request())
        assert prepared["errors"]["out"]["relative_l2"] < TOLERANCE
