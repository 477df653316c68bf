"""Masks, the float64 reference against finite differences, and the planes checked after timing."""

import math
from itertools import product
from typing import Any

import numpy as np
import pytest

import support
from regatta_worker.problem import inputs
from regatta_worker.problem.arrays import Arrays
from regatta_worker.problem.attention import GRADIENTS, Mask, Problem
from regatta_worker.problem.planes import SHARE, Planes, drawn
from regatta_worker.problem.reference import (
    ReferenceCache,
    difference,
    differences,
    not_finite,
    reference,
    reference_of_planes,
    spot_checks,
    worst,
)

ARRAYS = Arrays.for_numpy()

PROBLEMS = {
    "full": support.wire(batch=1, heads=2, seq_q=5, head_dim=4),
    "grouped, causal, wider values": support.wire(
        heads=4, kv_heads=2, seq_q=4, seq_k=6, head_dim=3, head_dim_v=5, mask=support.CAUSAL_BR
    ),
    "queries without keys": support.wire(
        heads=2, kv_heads=1, seq_q=6, seq_k=4, head_dim=4, mask=support.CAUSAL_BR
    ),
    "window": support.wire(
        batch=1, heads=1, seq_q=7, seq_k=5, head_dim=4, mask={**support.CAUSAL, "left": 2}
    ),
    "ragged": support.wire(
        heads=2, seq_q=5, seq_k=4, head_dim=4, mask=support.CAUSAL_BR,
        varlen={"q": [2, 5], "k": [4, 3]},
    ),
}  # fmt: skip


def exact_inputs(problem: Problem) -> dict[str, np.ndarray]:
    """Inputs that are not rounded, so that a small step in one of them is not either."""
    return {
        name: inputs.elements(
            ARRAYS, 11, name, ARRAYS.positions(0, math.prod(problem.shape(name)))
        ).reshape(problem.shape(name))
        for name in inputs.TENSORS
    }


class TestMasks:
    def rows(self, mask: Mask, seq_q: int, seq_k: int) -> list[list[int]]:
        offset = mask.offset(seq_q, seq_k)
        return [[j for j in range(seq_k) if mask.visible(i, j, offset)] for i in range(seq_q)]

    def test_alignment_moves_the_diagonal(self) -> None:
        top_left, bottom_right = Mask(None, 0, "top-left"), Mask(None, 0, "bottom-right")
        assert self.rows(top_left, 2, 4) == [[0], [0, 1]]
        assert self.rows(bottom_right, 2, 4) == [[0, 1, 2], [0, 1, 2, 3]]
        assert self.rows(bottom_right, 4, 2) == [[], [], [0], [0, 1]]
        assert self.rows(Mask(1, 0, "top-left"), 3, 3) == [[0], [0, 1], [1, 2]]

    def test_blind_queries_are_known(self) -> None:
        lengths = ((3, 3), (2, 6), (6, 2))
        for left, right, align, (seq_q, seq_k) in product(
            (None, 0, 2), (None, 0, 1), ("top-left", "bottom-right"), lengths
        ):
            mask = {"left": left, "right": right, "align": align}
            rows = self.rows(Mask(left, right, align), seq_q, seq_k)
            problem = Problem.from_wire(support.wire(seq_q=seq_q, seq_k=seq_k, mask=mask))
            assert problem.has_blind_query == ([] in rows)


class TestReference:
    def test_forward_is_the_definition(self) -> None:
        """Against one query, one head at a time, in plain Python."""
        for axes in PROBLEMS.values():
            problem = Problem.from_wire(axes)
            tensors = exact_inputs(problem)
            packed = {k: v.reshape(-1, *v.shape[-2:]) for k, v in tensors.items()}
            out = reference(ARRAYS, problem, tensors)["out"]
            for q_start, k_start, seq_q, seq_k in problem.sequences:
                offset = problem.mask.offset(seq_q, seq_k)
                for i in range(seq_q):
                    seen = [j for j in range(seq_k) if problem.mask.visible(i, j, offset)]
                    keys = [k_start + j for j in seen]
                    for h in range(problem.heads):
                        kv = h // (problem.heads // problem.kv_heads)
                        query = packed["q"][q_start + i, h] / math.sqrt(problem.head_dim)
                        weights = np.exp([query @ packed["k"][key, kv] for key in keys])
                        expected = np.zeros(problem.head_dim_v)
                        for weight, key in zip(weights, keys, strict=True):
                            expected += weight / weights.sum() * packed["v"][key, kv]
                        np.testing.assert_allclose(out[q_start + i, h], expected, atol=1e-12)

    def test_gradients_are_finite_differences(self) -> None:
        step = 1e-5
        for axes in PROBLEMS.values():
            problem = Problem.from_wire(axes | {"direction": "both"})
            tensors = exact_inputs(problem)
            exact = reference(ARRAYS, problem, tensors)
            dout = tensors["dout"].reshape(exact["out"].shape)
            for gradient in GRADIENTS:
                flat = tensors[gradient[1]].reshape(-1)
                for index in range(0, flat.size, 7):
                    kept, losses = flat[index], []
                    for moved in (kept + step, kept - step):
                        flat[index] = moved
                        out = reference(ARRAYS, problem, tensors)["out"]
                        losses.append(float((out * dout).sum()))
                    flat[index] = kept
                    slope = (losses[0] - losses[1]) / (2 * step)
                    assert exact[gradient].reshape(-1)[index] == pytest.approx(slope, abs=1e-7)

    @pytest.mark.parametrize("by", ["small pieces", "torch"])
    def test_pieces_and_frameworks_change_nothing(self, by: str) -> None:
        arrays, given = Arrays(**{**vars(ARRAYS), "score_elements": 8, "threads": 1}), np.array
        if by == "torch":
            torch = pytest.importorskip("torch")
            arrays, given = Arrays.for_torch("cpu"), torch.tensor
        for axes in PROBLEMS.values():
            problem = Problem.from_wire(axes | {"direction": "both"})
            tensors = exact_inputs(problem)
            found = reference(arrays, problem, {name: given(x) for name, x in tensors.items()})
            for name, value in reference(ARRAYS, problem, tensors).items():
                np.testing.assert_allclose(np.asarray(found[name]), value, atol=1e-12)

    @pytest.mark.parametrize("near_bytes", [0, 1 << 20])
    def test_one_reference_serves_layouts_and_directions(self, near_bytes: int) -> None:
        cache, axes = ReferenceCache(ARRAYS, near_bytes), PROBLEMS["full"]

        def whole(seed: int = 11, **other: str) -> Any:
            problem = Problem.from_wire(axes | other)
            return cache.whole(problem, seed, lambda: exact_inputs(problem))

        both = whole(direction="both")
        assert whole(layout="bhsd") is both, "with the gradients, which forward has no use for"
        assert cache.near_bytes == (sum(x.nbytes for x in both.values()) if near_bytes else 0)
        assert whole(12) is not both
        assert cache.clear() and not cache.clear()

    def test_references_that_do_not_fit_give_way_to_the_last(self) -> None:
        problem = Problem.from_wire(PROBLEMS["full"])
        cache = ReferenceCache(ARRAYS, 2 * 8 * math.prod(problem.shape("out")))
        for seed in range(4):
            last = cache.whole(problem, seed, lambda: exact_inputs(problem))
        assert cache.near_bytes == 2 * last["out"].nbytes
        assert cache.whole(problem, 3, dict) is last


class TestDifference:
    def test_figures(self) -> None:
        exact = np.array([3.0, 4.0])
        assert difference(ARRAYS, (np.array([3.0, 4.5], dtype=np.float32), exact)) == {
            "relative_l2": 0.1,
            "max_abs": 0.5,
        }

    def test_an_element_never_written_is_seen(self) -> None:
        found = difference(ARRAYS, (np.array([3.0, math.nan]), np.array([3.0, 4.0])))
        assert math.isnan(found["relative_l2"])
        assert math.isnan(found["max_abs"])

    def test_probes_of_a_strided_tensor_are_in_logical_order(self) -> None:
        logical = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
        strided = np.ascontiguousarray(logical.swapaxes(1, 2)).swapaxes(1, 2)
        assert spot_checks(strided) == [float((2 * k + 1) * 120 // 32) for k in range(16)]


RESULTS = ("out", *GRADIENTS)


def references(problem: Problem, planes: Planes) -> Any:
    def make(name: str, some: Planes) -> Any:
        return inputs.part(ARRAYS, problem, name, some, np.float32)

    return reference_of_planes(ARRAYS, problem, tuple(plane.of_call(11) for plane in planes), make)


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


class TestReferencesOfPlanes:
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

        def found(place: Any, factor: float) -> float:
            result = out.astype(np.float32)
            result[place] *= np.float32(factor)
            pairs = [(plane.cut("out", result), exact["out"]) for plane, exact in planes.items()]
            return difference(ARRAYS, *pairs)["relative_l2"]

        assert found(0, 1.0) < 1e-06
        assert found(..., 1.25) == pytest.approx(0.25, abs=1e-5)
        assert found((3, slice(None), 15), 0.0) > 0.1
        # In a plane that is not compared.
        broken = out.astype(np.float32)
        assert not_finite(ARRAYS, {"out": broken, "dq": broken}) == []
        broken[1, 2, 3, 4] = math.nan
        assert not_finite(ARRAYS, {"out": broken, "dq": np.zeros(3)}) == ["out"]

    def test_groups_are_compared_each_by_itself(self, monkeypatch: pytest.MonkeyPatch) -> None:
        one, two = np.array([3.0, 4.0]), np.array([1.0, 0.0])
        longer = np.array([5.0, 0.0, 12.0]), np.array([5.0, 0.0, 0.0])
        single = np.array([5.0, 0.0], dtype=np.float32), np.array([5.0, 2.0])
        groups = [[(one, one)], [(two, one), (one, one)], [(one, two), longer], [], [single]]
        each = [difference(ARRAYS, *pairs) for pairs in groups]
        assert [error["max_abs"] for error in each] == [0.0, 4.0, 12.0, 0.0, 2.0]
        squares = [(0, 50), (20, 50), (164, 26), (0, 0), (4, 29)]
        relative = [math.sqrt(square / norm) if norm else 0.0 for square, norm in squares]
        for chunk in (1, 2, 3, 1 << 22):
            monkeypatch.setattr("regatta_worker.problem.reference.CHUNK", chunk)
            found = differences(ARRAYS, *groups)
            assert [error["relative_l2"] for error in found] == pytest.approx(relative)
            assert [error["max_abs"] for error in found] == [0.0, 4.0, 12.0, 0.0, 2.0]
        broken = differences(ARRAYS, *groups, [(np.array([math.nan, 4.0]), one)])
        assert math.isnan(broken.pop()["relative_l2"])
        assert broken == found

    def test_the_worst_of_some_is_the_one_that_is_not_finite(self) -> None:
        for unknown in (math.nan, None):
            errors: list[Any] = [{"relative_l2": of} for of in (1e-3, unknown, 2e-3)]
            for first in range(3):
                assert worst(*errors[first:], *errors[:first]) is errors[1]
            assert worst(errors[0], errors[2]) is errors[2]
