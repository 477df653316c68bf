"""What a worker keeps between cases: nothing that a call could have changed."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

import support

pytest.importorskip("torch")

import torch
import torch.nn.functional as F

from regatta_worker.on_torch.case import Asked, Built, Variant
from regatta_worker.on_torch.library import TorchLibrary
from regatta_worker.on_torch.variants import Access, autograd_call

TOLERANCE = 1e-5


class Planted(TorchLibrary):
    """Attention that may write into its inputs."""

    NAME = "planted"

    def __init__(self) -> None:
        super().__init__()
        self.writes = False

    def variants(self) -> dict[str, Variant]:
        return {"planted": Variant("v", ("f32",))}

    def build(self, asked: Asked) -> Built:
        def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            heads = (x.transpose(1, 2) for x in (q, k, v))
            return F.scaled_dot_product_attention(*heads).transpose(1, 2)

        made = autograd_call(asked.problem, asked.tensors, Access(asked.problem, False), attend)

        def call() -> Any:
            results = tuple(x.detach().clone() for x in made.call())
            if self.writes:
                with torch.no_grad():
                    asked.tensors["q"].zero_()
            return results

        return Built(call, refresh=made.refresh)


def request(**axes: Any) -> dict[str, Any]:
    return {
        "variant": "planted",
        "seed": support.SEED,
        "params": {},
        "input_sets": support.SETS,
        "problem": support.wire(**axes),
    }


class TestKept:
    def test_a_call_that_writes_into_its_inputs_changes_no_other_case(self) -> None:
        library = Planted()
        before = library.prepare(request())
        library.writes = True
        library.prepare(request())
        library.measure(support.PLAN)
        library.release()
        library.writes = False
        again = library.prepare(request())
        assert again["probes"] == before["probes"]
        assert again["errors"] == before["errors"]
        measured = library.measure(support.PLAN)
        support.right_after_timing(measured, TOLERANCE, before)

    def test_inputs_are_known_by_all_that_determines_them(self) -> None:
        kept = Planted()._kept

        def of(seed: int = 7, **axes: Any) -> dict[str, torch.Tensor]:
            problem = support_problem(**axes)
            found = kept.inputs(problem, seed)
            for name, tensor in found.items():
                assert tuple(tensor.shape) == problem.shape(name)
            return found

        first = of()
        assert of()["q"] is first["q"]
        assert of(mask=support.CAUSAL, direction="backward")["k"] is first["k"]
        for other in ({"dtype": "bf16"}, {"layout": "bhsd"}, {"seq_q": 23}, {"seed": 8}):
            assert of(**other)["q"] is not first["q"]
        assert of(layout="bhsd")["q"].stride() == (24 * 4 * 16, 16, 24 * 16, 1)
        working = kept.working(support_problem(layout="bhsd"), 7)
        assert working["q"].stride() == of(layout="bhsd")["q"].stride()
        assert working["q"] is not of(layout="bhsd")["q"]

    def test_what_does_not_fit_is_not_kept_and_is_right(self) -> None:
        library = Planted()
        library._kept.shelf.limit_bytes = 1000
        prepared = library.prepare(request(direction="both"))
        measured = library.measure(support.PLAN)
        support.right_after_timing(measured, TOLERANCE, prepared)
        assert len(library._kept.shelf) == 0

    def test_where_memory_runs_out_it_is_tried_again_without_what_is_kept(self) -> None:
        library = Planted()
        library.prepare(request())
        first_call, left = library._first_call, [1]

        def short(*arguments: Any) -> Any:
            if left and left.pop():
                raise torch.OutOfMemoryError("none left")
            return first_call(*arguments)

        with mock.patch.object(library, "_first_call", short):
            prepared = library.prepare(request())
        assert prepared["errors"]["out"]["relative_l2"] < TOLERANCE


def support_problem(**axes: Any) -> Any:
    from regatta_worker.problem.attention import Problem

    return Problem.from_wire(support.wire(**axes))
