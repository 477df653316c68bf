"""Gradients of declared operators: a framework's, a function's own, and the references'."""

from pathlib import Path
from typing import Any

import pytest

import declared
from declared import asked, served, tensor
from regatta_worker.problem.numbers import DIRECTIONS
from regatta_worker.protocol.channel import Failed, Unsupported

CODE = """
def rmsnorm(x: ARRAY, weight, eps):
    return x / ((x * x).mean(-1, keepdims=True) + eps) ** 0.5 * weight

def two(x: ARRAY, weight, eps):
    root = ((x * x).mean(-1, keepdims=True) + eps) ** 0.5
    return {"root": root, "out": x / root * weight}

def late(x: ARRAY, weight, eps):
    return rmsnorm(x, weight, 0.0 * eps)

def unused(x: ARRAY, weight, eps):
    return x * eps

def own(x: ARRAY, weight, eps, dout=None, direction="forward"):
    root = ((x * x).mean(-1, keepdims=True) + eps) ** 0.5
    if dout is None:
        return x / root * weight
    normal, scaled = x / root, dout * weight
    dx = (scaled - normal * (scaled * normal).mean(-1, keepdims=True)) / root
    gradients = dx, (dout * normal).sum(0)
    return (x / root * weight, *gradients) if direction == "both" else gradients
"""
REFERENCE = (
    CODE.replace("ARRAY", "object")
    + """
def rmsnorm_gradients(x, weight, eps, dout):
    return own(x, weight, eps, dout)

wrong = rmsnorm

def wrong_gradients(x, weight, eps, dout):
    dx, dweight = own(x, weight, eps, dout)
    return 1.001 * dx, dweight

def two_gradients(x, weight, eps, dout, droot):
    dx, dweight = own(x, weight, eps, dout)
    return dx + droot * x / x.shape[-1] / ((x * x).mean(-1, keepdims=True) + eps) ** 0.5, dweight
"""
)


def wire(direction: str, *outputs: str) -> dict[str, Any]:
    outputs = outputs or ("out",)
    shapes = {"out": [8, 16], "root": [8, 1], "dx": [8, 16], "dweight": [16]}
    results = (*(outputs if direction == "both" else ()), "dx", "dweight")
    inputs = [tensor("weight", [16]), tensor("x", [8, 16], "normal", 1e-3)]
    return {
        "inputs": inputs + [tensor(f"d{name}", shapes[name]) for name in outputs],
        "scalars": {"eps": 1e-6},
        "outputs": [{"name": n, "shape": shapes[n], "dtype": "f32"} for n in results],
        "gradients": {
            "direction": direction,
            "by": ["x", "weight"],
            "given": [f"d{name}" for name in outputs],
        },
    }


def reference(tmp_path: Path, function: str) -> Any:
    return declared.reference(tmp_path, REFERENCE, function)


def errors(tmp_path: Path, function: str, wire: Any, seed: int) -> dict[str, float]:
    return declared.errors(reference(tmp_path, function), tmp_path, wire, seed)


@pytest.mark.parametrize("framework", ["torch", "jax"])
@pytest.mark.parametrize("direction", ["backward", "both"])
def test_gradients_are_right_before_and_after_timing(
    tmp_path: Path, framework: str, direction: str
) -> None:
    worker = served(tmp_path, CODE, framework)
    for variant, outputs in (("rmsnorm", ["out"]), ("own", ["out"]), ("two", ["out", "root"])):
        asks = wire(direction, *outputs)
        formula = "two" if variant == "two" else "rmsnorm"
        worker.prepare(asked(tmp_path, variant, asks))
        found = errors(tmp_path, formula, asks, 1)
        assert list(found) == [one["name"] for one in asks["outputs"]]
        assert max(found.values()) < 5e-6
        seed = worker.measure(declared.PLAN)["checked"]["seed"]
        assert seed == 2
        assert max(errors(tmp_path, formula, asks, seed).values()) < 5e-6
    worker.release()


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_a_wrong_gradient_is_found(tmp_path: Path, framework: str) -> None:
    asks = wire("backward")
    served(tmp_path, CODE, framework).prepare(asked(tmp_path, "late", asks))
    assert errors(tmp_path, "rmsnorm", asks, 1)["dx"] > 0.1


def test_an_input_that_is_not_used_has_no_gradient(tmp_path: Path) -> None:
    worker = served(tmp_path, CODE, "torch")
    with pytest.raises(Failed, match="appears to not have been used"):
        worker.prepare(asked(tmp_path, "unused", wire("backward")))


def test_numpy_takes_a_function_of_dout_alone(tmp_path: Path) -> None:
    worker, asks = served(tmp_path, CODE), wire("backward")
    variants = {one["name"]: one["arguments"] for one in worker.hello()["variants"]}
    assert "differentiated" not in variants["rmsnorm"]
    with pytest.raises(Unsupported, match="differentiate no function"):
        worker.prepare(asked(tmp_path, "rmsnorm", asks))
    worker.prepare(asked(tmp_path, "own", asks))
    assert max(errors(tmp_path, "rmsnorm", asks, 1).values()) < 5e-6


def test_a_reference_says_which_gradients_it_has(tmp_path: Path) -> None:
    for function, directions in (("rmsnorm", DIRECTIONS), ("own", ("forward",))):
        (variant,) = reference(tmp_path, function).hello()["variants"]
        assert variant["directions"] == directions


@pytest.mark.parametrize(("function", "is_right"), [("rmsnorm", True), ("wrong", False)])
def test_finite_differences_find_a_wrong_reference(
    tmp_path: Path, function: str, is_right: bool
) -> None:
    request = {"operands": wire("both"), "seed": 1}
    moved = reference(tmp_path, function).compare(request)["errors"]
    assert moved["= dweight"]["relative_l2"] < 1e-8
    assert (moved["= dx"]["relative_l2"] < 1e-8) == is_right
