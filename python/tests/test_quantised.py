"""Quantised inputs of declared operators: values of 8 bits, and the scales that multiply them."""

import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import declared
import support
from declared import tensor
from regatta_worker.callables.operators import draws
from regatta_worker.callables.operators.draws import rounded
from regatta_worker.callables.operators.function import FLOATS_OF_8_BITS, lacking
from regatta_worker.callables.operators.operands import InputTensor, Operands
from regatta_worker.protocol.channel import Unsupported

CODE = """
def _single(x):
    return x.float() if hasattr(x, "float") else x.astype("f4")
def matmul(a: ARRAY, a_scale, b, b_scale):
    return _single(a) @ _single(b) * a_scale * b_scale
def ignores(a: ARRAY, a_scale, b, b_scale):
    return _single(a) @ _single(b) * a_scale.mean() * b_scale
"""
REFERENCE = """
def matmul(a, a_scale, b, b_scale):
    return (a * a_scale) @ (b * b_scale)
"""
MX = """
def _single(x):
    return x.float() if hasattr(x, "float") else x.astype("f4")
def _copy(x):
    return x.clone() if hasattr(x, "clone") else x
def product(a: ARRAY, a_scale):
    assert "float8_e8m0fnu" in str(a_scale.dtype)
    blocks = _single(a).reshape(32, 4, 32) * _single(a_scale)[..., None]
    return blocks.reshape(32, 128), _copy(a_scale)
def ignores(a: ARRAY, a_scale):
    return _single(a) * _single(a_scale).mean(), _copy(a_scale)
"""
MX_REFERENCE = """
def product(a, a_scale):
    return a * a_scale.repeat(32, -1), a_scale
"""
LARGEST = {"i8": 127.0, "e4m3": 448.0, "e5m2": 57344.0}


def quantised(name: str, shape: list[int], dtype: str, blocks: list[int]) -> list[dict[str, Any]]:
    least = 4.899 / LARGEST[dtype]
    scale = tensor(f"{name}_scale", blocks, "uniform", least, 4 * least) | {"role": "scale"}
    return [tensor(name, shape, dtype=dtype) | {"scale": scale}, scale]


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
    worker = declared.served(tmp_path, CODE, framework)
    exact = declared.reference(tmp_path, REFERENCE, "matmul")
    for dtype in dtypes.split():
        operands = wire(dtype)
        moved = exact.compare({"operands": operands, "seed": 1, "results": None})["errors"]
        assert all(error["relative_l2"] > 0.1 for error in moved.values())
        for variant in ("matmul", "ignores"):
            errors = declared.errors_after_timing(worker, exact, tmp_path, variant, operands)
            assert errors["out"] < 2e-6 if variant == "matmul" else errors["out"] > 0.1
    worker.release()


def microscaled(name: str, shape: list[int], dtype: str, blocks: list[int]) -> list[dict[str, Any]]:
    (value, scale) = quantised(name, shape, dtype, blocks)
    scale = {**scale, "dtype": "e8m0", "draw": {"kind": "shared-exponent", "arguments": []}}
    scale["scales"] = {key: value[key] for key in value if key != "scale"}
    return [value | {"scale": scale}, scale]


def as_specified(v: np.ndarray, dtype: str, emax: int) -> tuple[np.ndarray, np.ndarray]:
    """Values and scales of blocks, an algorithm of OCP Microscaling Formats v1.0, section 6.3,
    by ml_dtypes."""
    import ml_dtypes

    kind, largest = getattr(ml_dtypes, FLOATS_OF_8_BITS[dtype]), LARGEST[dtype]
    shared = np.floor(np.log2(np.abs(v).max(axis=-1, keepdims=True))) - emax
    x = (2.0**shared).astype(ml_dtypes.float8_e8m0fnu)
    p = (v / x.astype(np.float64)).clip(-largest, largest).astype(np.float32)
    return p.astype(kind).astype(np.float32), x.astype(np.float32)


@pytest.mark.parametrize(("dtype", "emax", "error"), [("e4m3", 8, 0.05), ("e5m2", 15, 0.09)])
def test_a_block_of_32_has_the_exponent_that_the_specification_gives_it(
    dtype: str, emax: int, error: float
) -> None:
    pytest.importorskip("ml_dtypes")
    value, scale = (
        InputTensor.from_wire(one) for one in microscaled("x", [64, 128], dtype, [64, 4])
    )
    plain = draws.values(InputTensor("x", (64, 128), "f32", "normal", (1.0,), "data"), 3)
    wanted, by = as_specified(plain.reshape(64, 4, 32), dtype, emax)
    drawn, scales = value.drawn(3), scale.drawn(3)
    assert np.array_equal(scales, by[..., 0]) and len(np.unique(scales)) > 1
    assert np.array_equal(drawn, wanted.reshape(64, 128))
    apart = np.linalg.norm(drawn * np.repeat(scales, 32, axis=-1) - plain) / np.linalg.norm(plain)
    assert 0.001 < apart < error


def test_a_block_of_zeros_has_the_least_exponent() -> None:
    zeros = np.zeros((2, 64))
    zeros[0, 0], zeros[0, 32] = 1e-300, 3.0
    found = draws.shared_exponents(zeros, "e4m3", (2, 2))
    assert found.tolist() == [[2.0**-127, 2.0**-7], [2.0**-127, 2.0**-127]]


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_a_framework_is_given_scales_of_e8m0_and_may_return_them(
    tmp_path: Path, framework: str
) -> None:
    worker = declared.served(tmp_path, MX, framework)
    exact = declared.reference(tmp_path, MX_REFERENCE, "product")
    for dtype in ("e4m3", "e5m2"):
        outputs = [
            {"name": "out", "shape": [32, 128], "dtype": "f32"},
            {"name": "scales", "shape": [32, 4], "dtype": "e8m0"},
        ]
        operands = {"inputs": microscaled("a", [32, 128], dtype, [32, 4]), "outputs": outputs}
        moved = exact.compare({"operands": operands, "seed": 1, "results": None})["errors"]
        assert moved["a_scale out"]["relative_l2"] > 0.1
        for variant in ("product", "ignores"):
            errors = declared.errors_after_timing(worker, exact, tmp_path, variant, operands)
            assert errors["scales"] == 0.0
            assert errors["out"] < 2e-6 if variant == "product" else errors["out"] > 0.1
    worker.release()


def test_numpy_has_no_floats_of_8_bits(tmp_path: Path) -> None:
    worker = declared.served(tmp_path, CODE)
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


def test_a_framework_that_an_annotation_in_quotes_names_has_its_types(tmp_path: Path) -> None:
    if not support.installed("torch"):
        pytest.skip("torch is not installed")
    path = declared.module(tmp_path, 'def own(x: "torch.Tensor"):\n    return x\n')
    code = (
        "from regatta_worker.callables import load\n"
        f"(own,) = load.open_worker(load.Target('mine', {path!r})).hello()['variants']\n"
        "print(own['arguments'])"
    )
    folder = Path(__file__).parents[1]
    command = [sys.executable, "-c", code]
    printed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
    assert "differentiated" in printed
    assert "e4m3" not in printed


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
