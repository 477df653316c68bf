"""Declared operators of whole numbers and masks, and arguments that have no name."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import declared
from declared import asked, reference, served, tensor
from regatta_worker.callables.operators.operands import Operands, read
from regatta_worker.protocol.channel import Failed

CODE = {
    "numpy": """
import numpy as np
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
        tensor("x", [6, 16]),
        tensor("mask", [6, 16], "bernoulli", 0.5, dtype="bool"),
        tensor("labels", [40], "integers", 0, 7, dtype="i32"),
    ],
    "scalars": {"k": 3.0},
    "outputs": [
        {"name": "values", "shape": [6, 3], "dtype": "f32", "limit": 5e-6},
        {"name": "index", "shape": [6, 3], "dtype": "i32", "limit": 0.0},
        {"name": "positive", "shape": [6, 16], "dtype": "bool", "limit": 0.0},
        {"name": "counts", "shape": [8], "dtype": "i32", "limit": 0.0},
    ],
}


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax"])
def test_indices_masks_and_counts_are_those_of_the_reference(
    tmp_path: Path, framework: str
) -> None:
    exact = reference(tmp_path, CODE["numpy"], "chosen")
    worker = served(tmp_path, CODE[framework], framework)
    (variant,) = worker.hello()["variants"]
    assert variant["arguments"]["required"] == ["x", "mask", "labels", "k"]

    right = {"values": 0.0, "index": 0.0, "positive": 0.0, "counts": 0.0}
    worker.prepare(asked(tmp_path, "chosen", CHOSEN))
    assert declared.errors(exact, tmp_path, CHOSEN, 1) == right
    assert all(error > 0.0 for error in declared.errors(exact, tmp_path, CHOSEN, 2).values())
    assert worker.measure(declared.PLAN)["checked"]["seed"] == 2
    assert declared.errors(exact, tmp_path, CHOSEN, 2) == right
    worker.release()


def test_a_check_of_a_declaration_doubles_a_number_of_columns(tmp_path: Path) -> None:
    exact = reference(tmp_path, CODE["numpy"], "chosen")
    moved = exact.compare({"operands": CHOSEN, "seed": 1})["errors"]
    assert moved["k index"]["relative_l2"] is None
    assert moved["mask positive"]["relative_l2"] > 0.1
    assert moved["mask index"]["relative_l2"] == 0.0


def test_whole_numbers_are_written_and_compared_exactly(tmp_path: Path) -> None:
    code = "def hashed(x: ARRAY):\n    return x + 2**60 + 1\n"
    wire = {
        "inputs": [tensor("x", [4], "integers", 0, 9, dtype="i64")],
        "outputs": [{"name": "y", "shape": [4], "dtype": "i64", "limit": 0.0}],
    }
    worker = served(tmp_path, code)
    worker.prepare(asked(tmp_path, "hashed", wire))
    worker.release()
    operands = Operands.from_wire(wire)
    drawn = operands.inputs[0].drawn(1)
    (output,) = operands.outputs
    assert (read(str(tmp_path), output) == drawn + 2**60 + 1).all()
    for text, wrong in ((code, False), (code.replace("+ 1", "+ 2"), True)):
        exact = reference(tmp_path, text.replace("ARRAY", "object"), "hashed")
        assert (declared.errors(exact, tmp_path, wire, 1)["y"] > 0.0) is wrong


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
    k = "k: int" if "(k)" in code else "k"
    worker = served(tmp_path, f"import numpy as np\ndef f(x: np.ndarray, {k}):\n    {code}")
    wire = {
        "inputs": [CHOSEN["inputs"][0]],
        "scalars": {"k": 2.5},
        "outputs": [{"name": "y", "shape": [6], "dtype": "i32", "limit": 0.0}],
    }
    with pytest.raises(Failed, match=words):
        worker.prepare(asked(tmp_path, "f", wire))


def test_bernoulli_and_integers_have_every_number_as_often() -> None:
    wire = [
        tensor("m", [9000], "bernoulli", 0.9, dtype="bool"),
        tensor("n", [9000], "integers", -1, 1, dtype="i32"),
    ]
    mask, numbers = (
        one.drawn(3) for one in Operands.from_wire({"inputs": wire, "outputs": []}).inputs
    )
    assert mask.dtype == np.bool_
    assert abs(mask.mean() - 0.9) < 0.02
    assert all(abs((numbers == one).mean() - 1 / 3) < 0.02 for one in (-1, 0, 1))
