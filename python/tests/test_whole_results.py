"""Declared operators of whole numbers and masks, and arguments that have no name."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import support
from regatta_worker.callables import load
from regatta_worker.callables.load import Target
from regatta_worker.callables.operators.operands import Operands, read
from regatta_worker.callables.operators.reference import open_reference
from regatta_worker.protocol.channel import Failed

NUMBERS = itertools.count()
PLAN = {"warmup": 1, "samples": 6, "min_samples": 4, "budget_ms": 1000, "cache": "hot"}
CODE = {
    "numpy": """
def chosen(x: np.ndarray, mask, labels, k: int, /, bias=0):
    index = np.argsort(-x, axis=-1, kind="stable")[:, :k].astype(np.int32)
    counts = np.bincount(labels, minlength=8).astype(np.int32)
    return np.take_along_axis(x, index, axis=-1), index, (x > bias) & mask, counts
""",
    "torch": """
def chosen(x: torch.Tensor, mask, labels, k: int, /, bias=0):
    values, index = torch.topk(x, k, dim=-1)
    counts = torch.bincount(labels, minlength=8).to(torch.int32)
    return values, index.to(torch.int32), (x > bias) & mask, counts
""",
    "jax": """
def chosen(x: jax.Array, mask, labels, k: int, /, bias=0):
    values, index = jax.lax.top_k(x, k)
    return values, index, (x > bias) & mask, jax.numpy.bincount(labels, length=8).astype("i4")
""",
}
CHOSEN: dict[str, Any] = {
    "inputs": [
        {"name": "x", "shape": [6, 16], "dtype": "f32", "draw": support.draw("normal", 1.0)},
        {"name": "mask", "shape": [6, 16], "dtype": "bool", "draw": support.draw("bernoulli", 0.5)},
        {"name": "labels", "shape": [40], "dtype": "i32", "draw": support.draw("integers", 0, 7)},
    ],
    "scalars": {"k": 3.0},
    "outputs": [
        {"name": "values", "shape": [6, 3], "dtype": "f32", "limit": 5e-6},
        {"name": "index", "shape": [6, 3], "dtype": "i32", "limit": 0.0},
        {"name": "positive", "shape": [6, 16], "dtype": "bool", "limit": 0.0},
        {"name": "counts", "shape": [8], "dtype": "i32", "limit": 0.0},
    ],
}


def written(folder: Path, framework: str, code: str) -> str:
    path = folder / f"whole_{framework}_{next(NUMBERS)}.py"
    path.write_text(f"import {framework}\nimport numpy as np\n{code}")
    return str(path)


def asked(folder: Path, wire: dict[str, Any], function: str = "chosen") -> dict[str, Any]:
    problem = {"operator": "o", "axes": {}, "dtype": "f32"}
    case = {"variant": function, "problem": problem, "operands": wire, "seed": 1, "input_sets": 3}
    return case | {"results": str(folder)}


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax"])
def test_indices_masks_and_counts_are_those_of_the_reference(
    tmp_path: Path, framework: str
) -> None:
    if not support.installed(framework):
        pytest.skip(f"{framework} is not installed")
    exact = open_reference(written(tmp_path, "numpy", CODE["numpy"]), "chosen")
    worker: Any = load.open_worker(Target("mine", written(tmp_path, framework, CODE[framework])))
    (variant,) = worker.hello()["variants"]
    assert variant["arguments"]["required"] == ["x", "mask", "labels", "k"]

    def errors(seed: int) -> dict[str, float]:
        request = {"operands": CHOSEN, "seed": seed, "results": str(tmp_path)}
        found = exact.compare(request)["errors"]
        return {name: error["relative_l2"] for name, error in found.items()}

    right = {"values": 0.0, "index": 0.0, "positive": 0.0, "counts": 0.0}
    worker.prepare(asked(tmp_path, CHOSEN))
    assert errors(1) == right
    assert all(error > 0.0 for error in errors(2).values())
    assert worker.measure(PLAN)["checked"]["seed"] == 2
    assert errors(2) == right
    worker.release()


def test_a_check_of_a_declaration_doubles_a_number_of_columns(tmp_path: Path) -> None:
    exact = open_reference(written(tmp_path, "numpy", CODE["numpy"]), "chosen")
    moved = exact.compare({"operands": CHOSEN, "seed": 1})["errors"]
    assert moved["k index"]["relative_l2"] is None
    assert moved["mask positive"]["relative_l2"] > 0.1
    assert moved["mask index"]["relative_l2"] == 0.0


def test_whole_numbers_are_written_and_compared_exactly(tmp_path: Path) -> None:
    code = "def hashed(x: np.ndarray):\n    return x + 2**60 + 1\n"
    wire = {
        "inputs": [
            {"name": "x", "shape": [4], "dtype": "i64", "draw": support.draw("integers", 0, 9)}
        ],
        "outputs": [{"name": "y", "shape": [4], "dtype": "i64", "limit": 0.0}],
    }
    worker: Any = load.open_worker(Target("mine", written(tmp_path, "numpy", code)))
    worker.prepare(asked(tmp_path, wire, "hashed"))
    worker.release()
    operands = Operands.from_wire(wire)
    drawn = operands.inputs[0].drawn(1)
    (output,) = operands.outputs
    assert (read(str(tmp_path), output) == drawn + 2**60 + 1).all()
    request = {"operands": wire, "seed": 1, "results": str(tmp_path)}
    other = written(tmp_path, "numpy", code.replace("+ 1", "+ 2"))
    for file, wrong in ((written(tmp_path, "numpy", code), False), (other, True)):
        error = open_reference(file, "hashed").compare(request)["errors"]["y"]
        assert (error["relative_l2"] > 0.0) is wrong


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("return x.argmax(-1)", "returned y as int64; the operator's is i32"),
        ("return int(x.argmax())", r"returned y as int; return an array"),
        ("return np.int32(k)", r"takes an int `k`, and the scalar is 2.5"),
    ],
)
def test_results_and_scalars_of_another_type_are_refused(
    tmp_path: Path, code: str, words: str
) -> None:
    path = written(
        tmp_path, "numpy", f"def f(x: np.ndarray, k{': int' if '(k)' in code else ''}):\n    {code}"
    )
    wire = {
        "inputs": [CHOSEN["inputs"][0]],
        "scalars": {"k": 2.5},
        "outputs": [{"name": "y", "shape": [6], "dtype": "i32", "limit": 0.0}],
    }
    worker: Any = load.open_worker(Target("mine", path))
    with pytest.raises(Failed, match=words):
        worker.prepare(asked(tmp_path, wire, "f"))


def test_bernoulli_and_integers_have_every_number_as_often() -> None:
    wire = [
        {"name": "m", "shape": [9000], "dtype": "bool", "draw": support.draw("bernoulli", 0.9)},
        {"name": "n", "shape": [9000], "dtype": "i32", "draw": support.draw("integers", -1, 1)},
    ]
    mask, numbers = (
        one.drawn(3) for one in Operands.from_wire({"inputs": wire, "outputs": []}).inputs
    )
    assert mask.dtype == np.bool_
    assert abs(mask.mean() - 0.9) < 0.02
    assert all(abs((numbers == one).mean() - 1 / 3) < 0.02 for one in (-1, 0, 1))
