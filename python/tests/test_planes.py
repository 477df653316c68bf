"""The few planes of a problem that are looked at after timing, and their references."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import support
from regatta_worker.problem import inputs
from regatta_worker.problem.attention import GRADIENTS, Problem
from regatta_worker.problem.planes import SHARE, Plane, drawn
from regatta_worker.problem.reference import (
    difference_of_planes,
    reference,
    reference_of_planes,
    worst,
)
from test_reference import ARRAYS, PROBLEMS

RESULTS = ("out", *GRADIENTS)


def references(problem: Problem, planes: tuple[Plane, ...]) -> Any:
    def make(name: str, plane: Plane) -> Any:
        return inputs.part(ARRAYS, problem, name, 11, plane, np.float32)

    return reference_of_planes(ARRAYS, problem, planes, make)


class TestDrawn:
    def test_an_eighth_and_two_at_least_each_as_likely_as_any_other(self) -> None:
        for batch in (1, 2, 3, 8):
            for kv_heads in (1, 2, 8, 40):
                problem = Problem.from_wire(support.wire(batch=batch, heads=kv_heads))
                count, seen = batch * kv_heads, set()
                for _ in range(100):
                    planes = drawn(problem)
                    places = [plane.index * kv_heads + plane.kv_head for plane in planes]
                    assert len(set(places)) == max(min(2, count), math.ceil(count / SHARE))
                    seen |= set(places)
                # One that is drawn with a probability of an eighth is missed in 2 of a million.
                assert len(seen) == count
                assert len(drawn(problem, 1)) == 1

    def test_a_length_is_the_beginning_of_every_sequence(self) -> None:
        problem = Problem.from_wire(support.wire(seq_q=24))
        for plane in drawn(problem, length=7):
            assert (len(plane.rows("q")), len(plane.rows("dk"))) == (7, 7)
            assert plane.rows("v").start == 24 * plane.index


class TestReferences:
    """Planes against the whole of the same problem, both from a seed."""

    def test_planes_are_those_of_the_whole(self) -> None:
        for wire in PROBLEMS.values():
            problem = Problem.from_wire(wire | {"direction": "both"})
            tensors = {t: inputs.whole(ARRAYS, problem, t, 11, np.float32) for t in inputs.TENSORS}
            whole = reference(ARRAYS, problem, tensors)
            whole = {t: whole[t].reshape(problem.shape(t)) for t in RESULTS}
            planes = references(problem, drawn(problem))
            for plane, exact in planes.items():
                for tensor in RESULTS:
                    np.testing.assert_allclose(
                        exact[tensor], plane.cut(tensor, whole[tensor]), atol=1e-12
                    )


class TestFigures:
    def test_an_error_in_a_plane_counts_and_what_is_not_finite_anywhere(self) -> None:
        problem = Problem.from_wire(support.wire(batch=4, heads=16))
        tensors = {t: inputs.whole(ARRAYS, problem, t, 11, np.float32) for t in ("q", "k", "v")}
        out = reference(ARRAYS, problem, tensors)["out"].reshape(problem.shape("out"))

        every = drawn(problem, 64)
        planes = references(problem, tuple(x for x in every if (x.index, x.kv_head) != (1, 3)))

        def found(change: Any) -> float:
            result = out.astype(np.float32)
            change(result)
            return difference_of_planes(ARRAYS, "out", result, planes)["relative_l2"]

        def scaled(result: np.ndarray) -> None:
            result *= np.float32(1.25)

        def late(result: np.ndarray) -> None:
            result[3, :, 15] = 0

        def unwritten(result: np.ndarray) -> None:
            result[1, 2, 3, 4] = np.nan

        assert found(lambda result: None) < 1e-06
        assert found(scaled) == pytest.approx(0.25, abs=1e-5)
        assert found(late) > 0.1
        # In a plane that is not compared.
        assert math.isnan(found(unwritten))

    def test_the_worst_of_some_is_the_one_that_is_not_finite(self) -> None:
        for unknown in (math.nan, None):
            errors: list[Any] = [{"relative_l2": of} for of in (1e-3, unknown, 2e-3)]
            for first in range(3):
                assert worst(*errors[first:], *errors[:first]) is errors[1]
            assert worst(errors[0], errors[2]) is errors[2]
