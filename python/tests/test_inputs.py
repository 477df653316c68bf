"""The inputs, against the vectors in docs/PROTOCOL.md, and alike in NumPy and torch; the axes of
problems against the harness's one table of them (tests/vectors/axes.json)."""

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

import support
from regatta_worker.problem import inputs
from regatta_worker.problem.arrays import Arrays
from regatta_worker.problem.attention import LAYOUTS, Mask, Problem
from regatta_worker.problem.numbers import DIRECTIONS, DTYPE_BYTES, probe_indices
from regatta_worker.problem.planes import alike, drawn
from regatta_worker.problem.projection import KINDS

RAGGED = {"q": [3, 24, 1], "k": [5, 24, 9]}
AXES: list[dict[str, Any]] = [
    {"head_dim_v": 8},
    {"head_dim_v": 8, "layout": "bhsd", "kv_heads": 2},
    {"varlen": RAGGED, "kv_heads": 1},
]


@pytest.fixture(params=["numpy", "torch"])
def arrays(request: pytest.FixtureRequest) -> Arrays:
    if request.param == "numpy":
        return Arrays.for_numpy()
    pytest.importorskip("torch")
    return Arrays.for_torch("cpu")


def elements(arrays: Arrays, seed: int, tensor: str, first: int, count: int) -> list[float]:
    positions = arrays.positions(first, first + count)
    found: list[float] = inputs.elements(arrays, seed, tensor, positions).tolist()
    return found


def test_frozen_values(arrays: Arrays) -> None:
    first = [0.836805286714029, -1.1781049573266253, -0.7669481822728474]
    assert elements(arrays, 42, "q", 0, 3) == first
    assert elements(arrays, 42, "dout", 1000, 1) == [-1.3725259712649156]


def test_a_seed_may_use_all_64_bits(arrays: Arrays) -> None:
    """The formula in integers of any size, cut to 64 bits, for the largest seed."""
    seed, bits = (1 << 64) - 1, (1 << 64) - 1
    z = (seed + ((1 << 40) + 5 + 1) * 0x9E3779B97F4A7C15) & bits
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & bits
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & bits
    z ^= z >> 31
    expected = (2 * ((z >> 11) / 2**53) - 1) * 3**0.5
    assert elements(arrays, seed, "k", 5, 1) == [expected]


@pytest.mark.parametrize("axes", AXES)
def test_chunks_and_layouts_are_seamless_and_rounded_through_float32(
    arrays: Arrays, axes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = Problem.from_wire(support.wire(**axes))
    exact = np.array(elements(arrays, 7, "v", 0, int(np.prod(problem.shape("v")))))
    expected = exact.astype(np.float32).astype(np.float16).reshape(problem.shape("v"))
    for chunk in (inputs.CHUNK, 100):
        monkeypatch.setattr(inputs, "CHUNK", chunk)
        halves = inputs.whole(arrays, problem, "v", 7, arrays.xp.float16)
        assert tuple(halves.shape) == problem.shape("v")
        assert np.array_equal(np.asarray(halves), expected)
        lying = np.asarray(problem.turned(halves))
        assert lying.flags["C_CONTIGUOUS"], "the layout is in the strides"


@pytest.mark.parametrize("axes", AXES)
def test_parts_are_those_of_the_whole(
    arrays: Arrays, axes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = Problem.from_wire(support.wire(**axes))
    of_calls = tuple(plane.of_call(seed) for seed in (7, 2**64 - 1) for plane in drawn(problem))
    for name in inputs.TENSORS:
        wholes = {
            seed: inputs.whole(arrays, problem, name, seed, arrays.xp.float16)
            for seed in (7, 2**64 - 1)
        }
        for chunk in (1 << 22, 100):
            monkeypatch.setattr(inputs, "CHUNK", chunk)
            for planes in alike(of_calls):
                part = inputs.part(arrays, problem, name, planes, arrays.xp.float16)
                cuts = [plane.cut(name, wholes[plane.seed]) for plane in planes]
                assert np.array_equal(np.asarray(part[0]), np.concatenate(cuts, axis=1))


def test_probes_stay_inside() -> None:
    assert probe_indices(5)[-1] == 4
    assert max(probe_indices(1)) == 0
    assert probe_indices(32) == list(range(1, 32, 2))


def test_probes_are_drawn_as_the_harness_draws_them() -> None:
    """The frozen values of crates/worker/src/attention/inputs.rs and docs/PROTOCOL.md."""
    assert probe_indices(1000, 42)[:4] == [741, 159, 278, 344]
    assert max(probe_indices(1, 7)) == 0


TABLE: dict[str, Any] = json.loads((support.ROOT / "tests/vectors/axes.json").read_text())
BY_NAME = {axis["name"]: axis for axis in TABLE["axes"]}


class TestAxes:
    """A row that was added to the table, and not here, fails one of these."""

    def test_a_problem_has_every_axis(self) -> None:
        ours = {field.name for field in dataclasses.fields(Problem)}
        of_projections = {
            name
            for name, axis in BY_NAME.items()
            if name == "projection" or axis["unset"] == {"with": "projection"}
        }
        assert ours == set(BY_NAME) - of_projections

    def test_words_are_those_of_the_table(self) -> None:
        for name, words in (
            ("dtype", tuple(DTYPE_BYTES)),
            ("layout", LAYOUTS),
            ("direction", DIRECTIONS),
            ("projection", KINDS),
        ):
            assert list(words) == BY_NAME[name]["words"], name
        choices = {name for name, axis in BY_NAME.items() if axis["form"] == "choice"}
        assert choices == {"dtype", "layout", "direction", "projection"}

    def test_a_problem_on_the_wire_is_read_axis_by_axis(self) -> None:
        problem = Problem.from_wire(TABLE["wire"])
        for name, axis in BY_NAME.items():
            if axis["form"] in ("number", "choice") and axis["example"] is not None:
                assert str(getattr(problem, name)) == axis["example"], name
        assert problem.mask == Mask(3, 1, "bottom-right")
        assert problem.varlen is None
