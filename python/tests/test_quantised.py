"""Quantised inputs of declared operators: values of 8 bits, and the scales that multiply them."""

from __future__ import annotations

import itertools
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import support
from regatta_worker.callables import load
from regatta_worker.callables.load import Target
from regatta_worker.callables.operators.draws import rounded
from regatta_worker.callables.operators.function import FLOATS_OF_8_BITS, lacking
from regatta_worker.callables.operators.operands import InputTensor, Operands
from regatta_worker.callables.operators.reference import open_reference
from regatta_worker.protocol.channel import Unsupported

NUMBERS = itertools.count()
"""Each module that is imported has a name of its own."""

CODE = {
    "numpy": """
import numpy
def matmul(a: numpy.ndarray, a_scale, b, b_scale):
    return a.astype("f4") @ b.astype("f4") * a_scale * b_scale
def ignores(a: numpy.ndarray, a_scale, b, b_scale):
    return a.astype("f4") @ b.astype("f4") * a_scale.mean() * b_scale
""",
    "torch": """
import torch
def matmul(a: torch.Tensor, a_scale, b, b_scale):
    return a.float() @ b.float() * a_scale * b_scale
def ignores(a: torch.Tensor, a_scale, b, b_scale):
    return a.float() @ b.float() * a_scale.mean() * b_scale
""",
    "jax": """
import jax
def matmul(a: jax.Array, a_scale, b, b_scale):
    return a.astype("f4") @ b.astype("f4") * a_scale * b_scale
def ignores(a: jax.Array, a_scale, b, b_scale):
    return a.astype("f4") @ b.astype("f4") * a_scale.mean() * b_scale
""",
}
REFERENCE = """
def matmul(a, a_scale, b, b_scale):
    return (a * a_scale) @ (b * b_scale)
"""
LARGEST = {"i8": 127.0, "e4m3": 448.0, "e5m2": 57344.0}


def quantised(name: str, shape: list[int], dtype: str, blocks: list[int]) -> list[dict[str, Any]]:
    least = 4.899 / LARGEST[dtype]
    scale = {
        "name": f"{name}_scale",
        "shape": blocks,
        "dtype": "f32",
        "role": "scale",
        "draw": {"kind": "uniform", "arguments": [least, 4 * least]},
    }
    draw = {"kind": "normal", "arguments": [1.0]}
    return [{"name": name, "shape": shape, "dtype": dtype, "draw": draw, "scale": scale}, scale]


def wire(dtype: str) -> dict[str, Any]:
    return {
        "inputs": quantised("a", [32, 64], dtype, [32, 1])
        + quantised("b", [64, 16], dtype, [1, 16]),
        "outputs": [{"name": "out", "shape": [32, 16], "dtype": "f32"}],
    }


@pytest.mark.parametrize(("dtype", "error"), [("i8", 0.03), ("e4m3", 0.04), ("e5m2", 0.08)])
@pytest.mark.parametrize("blocks", [[256, 1], [1, 1], [64, 8]])
def test_values_times_their_scale_are_as_drawn(dtype: str, error: float, blocks: list[int]) -> None:
    value, scale = (InputTensor.from_wire(one) for one in quantised("x", [256, 128], dtype, blocks))
    plain = InputTensor("x", (256, 128), "f32", "normal", (1.0,), "data").drawn(3)
    drawn, by = value.drawn(3), scale.drawn(3)
    assert np.abs(drawn).max() <= LARGEST[dtype]
    assert np.array_equal(drawn, rounded(drawn.astype(np.float64), dtype))
    for axis, extent in enumerate(value.shape):
        by = np.repeat(by, extent // by.shape[axis], axis)
    apart = np.linalg.norm(drawn * by - plain) / np.linalg.norm(plain)
    assert 0.001 < apart < error


@pytest.mark.parametrize(
    ("framework", "dtypes"), [("numpy", "i8"), ("jax", "i8 e4m3 e5m2"), ("torch", "i8 e4m3 e5m2")]
)
def test_a_kernel_that_ignores_the_scales_is_wrong(
    tmp_path: Path, framework: str, dtypes: str
) -> None:
    if not support.installed(framework):
        pytest.skip(f"{framework} is not installed")
    path, formula = (tmp_path / f"quantised_{next(NUMBERS)}.py" for _ in range(2))
    path.write_text(CODE[framework])
    formula.write_text(REFERENCE)
    worker, exact = (
        load.open_worker(Target("mine", str(path))),
        open_reference(str(formula), "matmul"),
    )
    plan = {"warmup": 1, "samples": 6, "min_samples": 4, "budget_ms": 1000, "cache": "hot"}
    for dtype in dtypes.split():
        request = {"operands": wire(dtype), "seed": 1, "results": str(tmp_path)}
        problem = {"operator": "o", "axes": {}, "dtype": "f32"}
        moved = exact.compare(request | {"results": None})["errors"]
        assert all(error["relative_l2"] > 0.1 for error in moved.values())
        for variant in ("matmul", "ignores"):
            case = request | {"variant": variant, "problem": problem, "input_sets": 3}
            worker.prepare(case)
            seed = worker.measure(plan)["checked"]["seed"]
            error = exact.compare(request | {"seed": seed})["errors"]["out"]["relative_l2"]
            assert error < 2e-6 if variant == "matmul" else error > 0.1
    worker.release()


def test_numpy_has_no_floats_of_8_bits(tmp_path: Path) -> None:
    path = tmp_path / f"quantised_{next(NUMBERS)}.py"
    path.write_text(CODE["numpy"])
    worker = load.open_worker(Target("mine", str(path)))
    (variant, _) = worker.hello()["variants"]
    for dtype in FLOATS_OF_8_BITS:
        assert variant["arguments"]["lacks"][dtype] == f"NumPy has no {dtype}"
    for dtype in ("e4m3", "e5m2"):
        case = {"variant": "matmul", "problem": {}, "operands": wire(dtype), "seed": 1}
        with pytest.raises(Unsupported, match=f"NumPy has no {dtype}, which input a is"):
            worker.prepare(case)


def test_an_older_framework_names_the_types_that_it_lacks(monkeypatch: Any) -> None:
    torch: Any = types.ModuleType("torch")
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert lacking("torch")["e5m2"] == "this torch has no e5m2"
    torch.float8_e5m2 = None
    assert "e5m2" not in lacking("torch")
    older = types.SimpleNamespace(config=types.SimpleNamespace(jax_enable_x64=True))
    monkeypatch.setitem(sys.modules, "jax", older)
    monkeypatch.setitem(sys.modules, "jax.numpy", types.ModuleType("jax.numpy"))
    assert lacking("jax")["e4m3"] == "this JAX has no e4m3"


@pytest.mark.parametrize("dtype", ["e4m3", "e5m2"])
def test_values_are_rounded_as_libraries_round_them(dtype: str) -> None:
    kinds = pytest.importorskip("ml_dtypes")
    kind, largest = getattr(kinds, FLOATS_OF_8_BITS[dtype]), LARGEST[dtype]
    every = np.arange(256, dtype=np.uint8).view(kind).astype(np.float32)
    every = every[np.isfinite(every)]
    halves = np.sort(every)
    halves = (halves[1:] + halves[:-1]) / 2
    beside = (np.nextafter(halves, np.float32(end)) for end in (0, 9e9))
    made = np.concatenate([every, halves, *beside])
    assert np.array_equal(rounded(made, dtype), made.astype(kind).astype(np.float32))
    # The conversion saturates.
    assert rounded(np.array([-1.001, 1e9]) * largest, dtype).tolist() == [-largest, largest]


def test_a_reference_is_given_real_numbers() -> None:
    (value, _) = Operands.from_wire({**wire("i8"), "outputs": []}).inputs[:2]
    assert value.drawn(1).dtype == np.float32
