"""Inputs that a case may leave out, and words that it is given."""

from pathlib import Path
from typing import Any

import pytest

import declared
from declared import ARRAYS, asked, tensor
from regatta_worker.protocol.channel import Failed

LINEAR = """
def needs(x: ARRAY, bias):
    return 2 * x if bias is None else 2 * x + bias

def defaults(x: ARRAY, bias=0.0):
    return 2 * x + bias

def keywords(x: ARRAY, **others):
    return 2 * x + others["bias"] if others else 2 * x

def without(x: ARRAY):
    return 2 * x

def linear_gradients(x, bias, dout):
    return 2 * dout if bias is None else (2 * dout, dout.sum(0))

linear = needs
"""


@pytest.mark.parametrize("framework", ARRAYS)
def test_an_input_that_is_left_out_is_none_or_has_its_default(
    tmp_path: Path, framework: str
) -> None:
    worker = declared.served(tmp_path, LINEAR, framework)
    exact = declared.reference(tmp_path, LINEAR.replace("ARRAY", "object"), "linear")
    x, bias, dout = tensor("x", [8, 16]), tensor("bias", [16]), tensor("dout", [8, 16])

    def result(like: dict[str, Any], name: str) -> dict[str, Any]:
        return {"name": name, "shape": like["shape"], "dtype": "f32", "limit": 5e-6}

    def error(variant: str, wire: dict[str, Any]) -> float:
        errors = declared.errors_after_timing(worker, exact, tmp_path, variant, wire)
        return max(errors.values())

    given = {"inputs": [bias, x], "outputs": [result(x, "out")]}
    off = {"inputs": [x], "outputs": [result(x, "out")], "left_out": ["bias"]}
    for variant in ("needs", "defaults", "keywords"):
        assert error(variant, given) < 1e-6, variant
        assert error(variant, off) < 1e-6, variant
    assert error("without", off) < 1e-6
    with pytest.raises(Failed, match="takes no `bias`"):
        worker.prepare(asked(tmp_path, "without", given))
    with pytest.raises(Failed, match="takes an argument `bias`"):
        worker.prepare(asked(tmp_path, "needs", {**off, "left_out": []}))
    moved = exact.compare({"operands": off, "seed": 1, "results": None})["errors"]
    assert moved.keys() == {"x out"}
    if framework != "numpy":
        for names, by in (([], [x, bias]), (["bias"], [x])):
            backward = {
                "inputs": [*by, dout],
                "outputs": [result(one, f"d{one['name']}") for one in by],
                "left_out": names,
                "gradients": {
                    "direction": "backward",
                    "by": [one["name"] for one in by],
                    "given": ["dout"],
                },
            }
            assert error("needs", backward) < 1e-6
    worker.release()


REDUCE = """
import numpy

def reduce(x: numpy.ndarray, kind):
    return x.sum(-1) if kind == "sum" else x.max(-1)

def same(x: numpy.ndarray):
    return x.sum(-1)
"""


def test_a_function_and_its_reference_are_given_the_words_of_axes(tmp_path: Path) -> None:
    worker = declared.served(tmp_path, REDUCE)
    exact = declared.reference(tmp_path, REDUCE, "reduce")
    output = {"name": "y", "shape": [8], "dtype": "f32", "limit": 5e-6}
    for kind, other in (("sum", "max"), ("max", "sum")):
        wire = {"inputs": [tensor("x", [8, 16])], "outputs": [output], "words": {"kind": kind}}
        worker.prepare(asked(tmp_path, "reduce", wire))
        assert declared.errors(exact, tmp_path, wire, 1)["y"] < 1e-6
        assert declared.errors(exact, tmp_path, {**wire, "words": {"kind": other}}, 1)["y"] > 0.1
        with pytest.raises(Failed, match="takes no `kind`, which the operator has"):
            worker.prepare(asked(tmp_path, "same", wire))
        request = {"operands": wire, "seed": 1, "results": None}
        assert exact.compare(request)["errors"].keys() == {"x y"}
        with pytest.raises(Failed, match="takes no `kind`, which the operator has"):
            declared.reference(tmp_path, REDUCE, "same").compare(request)
    worker.release()
