"""The few planes of a problem that are looked at after timing, and their references."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import support
from regatta_worker.problem import inputs
from regatta_worker.problem.attention import GRADIENTS, Problem
from regatta_worker.problem.cache import Cache
from regatta_worker.problem.planes import SHARE, Plane, chosen
from regatta_worker.problem.reference import ReferenceCache, difference_of_planes, worst
from test_reference import ARRAYS, PROBLEMS

RESULTS = ("out", *GRADIENTS)


class TestChosen:
    def test_an_eighth_with_both_ends_spread_over_sequences_and_heads(self) -> None:
        for batch in (1, 2, 3, 8, 64):
            for kv_heads in (1, 2, 8, 16, 40):
                problem = Problem.from_wire(support.wire(batch=batch, heads=kv_heads))
                planes, count = chosen(problem), batch * kv_heads
                places = [plane.index * kv_heads + plane.kv_head for plane in planes]
                assert len(set(places)) == len(places)
                assert len(places) == max(min(2, count), math.ceil(count / SHARE))
                assert (places[0], places[-1]) == (0, count - 1)
                heads, sequences = ({plane[at] for plane in planes} for at in (2, 0))
                assert len(heads) >= min(len(planes), kv_heads) / 2
                assert len(sequences) >= min(len(planes), batch) / 2

    def test_a_length_is_the_beginning_of_every_sequence(self) -> None:
        problem = Problem.from_wire(support.wire(seq_q=24))
        for plane in chosen(problem, 7):
            assert (len(plane.rows("q")), len(plane.rows("dk"))) == (7, 7)
            assert plane.rows("v").start == 24 * plane.index


class TestReferences:
    """Planes against the whole of the same problem, both from a seed."""

    def made(self, problem: Problem, calls: list[Any] | None = None) -> Any:
        def make(name: str, plane: Plane) -> Any:
            if calls is not None:
                calls.append((name, plane))
            return inputs.part(ARRAYS, problem, name, 11, plane, np.float32)

        return make

    def test_planes_are_those_of_the_whole(self) -> None:
        for wire in PROBLEMS.values():
            problem = Problem.from_wire(wire | {"direction": "both"})
            tensors = {t: inputs.whole(ARRAYS, problem, t, 11, np.float32) for t in inputs.TENSORS}
            whole = ReferenceCache(ARRAYS).whole(problem, 11, tensors)
            whole = {t: whole[t].reshape(problem.shape(t)) for t in RESULTS}
            make = self.made(problem)
            planes = ReferenceCache(ARRAYS).planes(problem, 11, chosen(problem), make)
            for plane, exact in planes.items():
                for tensor in RESULTS:
                    np.testing.assert_allclose(
                        exact[tensor], plane.cut(tensor, whole[tensor]), atol=1e-12
                    )

    def test_they_serve_all_variants_of_a_problem_and_few_are_kept(self) -> None:
        problem = Problem.from_wire(support.wire(direction="both"))
        calls: list[Any] = []
        cache, make = ReferenceCache(ARRAYS), self.made(problem, calls)
        cache.planes(problem, 11, chosen(problem), make)
        made = len(calls)
        for like in (replace(problem, layout="bhsd"), replace(problem, direction="forward")):
            cache.planes(like, 11, chosen(like), make)
        assert len(calls) == made, "layout and direction change no values"

    def test_the_longest_unused_go_first(self) -> None:
        problem = Problem.from_wire(support.wire(direction="both"))
        calls: list[Any] = []
        make, size = self.made(problem, calls), 8 * 4 * 24 * 16 * len(chosen(problem))
        cached = Cache(2 * size)
        cache = ReferenceCache(ARRAYS, cached)
        for seed in (20, 21, 20, 22, 20):
            cache.planes(problem, seed, chosen(problem), make)
        assert (len(cached.values), cached.total_bytes) == (2, 2 * size)
        made = len(calls)
        cache.planes(problem, 20, chosen(problem), make)
        assert len(calls) == made, "that of the last use is there"
        cache.planes(problem, 21, chosen(problem), make)
        assert len(calls) > made

    def test_gradients_are_added_when_they_are_asked_for(self) -> None:
        forward = Problem.from_wire(support.wire())
        cache = ReferenceCache(ARRAYS)
        for direction in ("forward", "backward"):
            problem = replace(forward, direction=direction)
            found = cache.planes(problem, 11, chosen(problem), self.made(problem))
        assert "dq" in next(iter(found.values()))

    def test_what_is_kept_is_counted_as_what_it_is(self) -> None:
        forward = Problem.from_wire(support.wire())
        cached = Cache()
        cache = ReferenceCache(ARRAYS, cached)
        for direction in ("backward", "forward"):
            problem = replace(forward, direction=direction)
            cache.planes(problem, 11, chosen(problem), self.made(problem))
            assert cached.total_bytes == 4 * 8 * 24 * 16 * len(chosen(forward))


class TestFigures:
    def test_an_error_in_a_plane_counts_and_what_is_not_finite_anywhere(self) -> None:
        problem = Problem.from_wire(support.wire(batch=4, heads=16))
        tensors = {t: inputs.whole(ARRAYS, problem, t, 11, np.float32) for t in ("q", "k", "v")}
        out = (
            ReferenceCache(ARRAYS).whole(problem, 11, tensors)["out"].reshape(problem.shape("out"))
        )

        def make(name: str, plane: Plane) -> Any:
            return inputs.part(ARRAYS, problem, name, 11, plane, np.float32)

        planes = ReferenceCache(ARRAYS).planes(problem, 11, chosen(problem), make)

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
        seen = {(plane.index, plane.kv_head) for plane in planes}
        assert (1, 3) not in seen
        assert math.isnan(found(unwritten))

    def test_the_worst_of_some_is_the_one_that_is_not_finite(self) -> None:
        errors = [{"relative_l2": value, "max_abs": 0.0} for value in (1e-3, math.nan, 2e-3)]
        for first in range(3):
            turned = errors[first:] + errors[:first]
            assert math.isnan(worst(*turned)["relative_l2"])
        assert worst(errors[0], errors[2])["relative_l2"] == 0.002
