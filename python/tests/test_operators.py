"""Declared operators: draws, functions that are called by name, references, states."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import declared
import support
from declared import PLAN
from regatta_worker.callables.operators.operands import InputTensor, Operands
from regatta_worker.protocol.channel import Failed, Unavailable, Unsupported

pytestmark = pytest.mark.usefixtures("no_other_framework")


def read(wire: dict[str, Any]) -> InputTensor:
    return Operands.from_wire({"inputs": [wire], "outputs": []}).inputs[0]


@pytest.mark.parametrize(
    "vector",
    json.loads((support.ROOT / "tests/vectors/draws.json").read_text()),
    ids=lambda vector: f"{vector['input']['draw']['kind']}-{vector['seed']}",
)
def test_draws_are_those_of_every_language(vector: dict[str, Any]) -> None:
    drawn = read(vector["input"]).drawn(vector["seed"]).reshape(-1)
    assert drawn.tolist() == vector["values"]


RMSNORM: dict[str, Any] = {
    "inputs": [declared.tensor("weight", [16]), declared.tensor("x", [8, 16], "normal", 1e-3)],
    "scalars": {"eps": 1e-6},
    "outputs": [{"name": "y", "shape": [8, 16], "dtype": "f32", "limit": 5e-6}],
}
ACCUMULATE: dict[str, Any] = {
    "inputs": [declared.tensor("s", [4]) | {"role": "state"}, declared.tensor("x", [4])],
    "outputs": [{"name": "sum", "shape": [4], "dtype": "f32", "limit": 5e-6, "in_place": "s"}],
}
CODE = """
import numpy as np

def rmsnorm(x, weight, eps):
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight

def slow(x, weight, eps, block: int = 4):
    return rmsnorm(x, weight, eps)

def softcap(q, k, v, cap):
    return cap * np.tanh(q @ k.T / cap) @ v

def writes(x, weight, eps):
    x[0] = 0
    return rmsnorm(x, weight, eps)

def keeps(x, weight, eps, kept=[]):
    if not kept:
        kept.append(rmsnorm(x, weight, eps))
    return kept[0]

def double(x, weight, eps):
    return rmsnorm(x.astype(np.float64), weight, eps)

def words(x, weight, eps):
    return "no array"

def lacks(x, eps):
    return x

def another_name(x, weight, eps):
    return {"z": x}

def größe(x, weight, eps):
    return x

class Norm:
    def __init__(self, x, weight, eps):
        pass

def large(x, weight, eps):
    return np.ones((1 << 50, 8))

def accumulate(s, x):
    s += x

def returns_state(s, x):
    return s + x

def counts(x, weight, eps):
    return rmsnorm(x, weight, sum(1 for _ in range(eps)))

def raises_later(x, weight, eps, calls=[]):
    calls.append(1)
    if len(calls) > 1:
        raise IndexError("place 16")
    return rmsnorm(x, weight, eps)
"""
REFERENCE = """
def rmsnorm(x, weight, eps):
    return x / ((x * x).mean(-1, keepdims=True) + eps) ** 0.5 * weight

def ignores(x, weight, eps):
    return x / ((x * x).mean(-1, keepdims=True)) ** 0.5 * weight

def accumulate(s, x):
    s += x

def infinite(x, weight, eps):
    return x / 0.0

def narrow(x, weight, eps):
    return rmsnorm(x, weight, eps).astype("f4")

def leading(x, weight, eps):
    return rmsnorm(x[:eps], weight, eps)

def decays(x, weight, eps):
    if eps > 1:
        return x / 0.0
    return x * weight * (1 - eps) ** 0.5

def exact_eps(x, weight, eps):
    if eps > 1e-6:
        raise ValueError(eps)
    return rmsnorm(x, weight, eps)
"""


@pytest.fixture
def worker(tmp_path: Path) -> Any:
    worker = declared.served(tmp_path, CODE)
    yield worker
    worker.release()


def asked(folder: Path, variant: str = "rmsnorm", wire: Any = RMSNORM, **more: Any) -> Any:
    return declared.asked(folder, variant, wire, **more)


def reference(tmp_path: Path, function: str = "rmsnorm") -> Any:
    return declared.reference(tmp_path, REFERENCE, function)


def compared(reference: Any, folder: Path, seed: int, wire: Any = RMSNORM) -> float:
    (error,) = declared.errors(reference, folder, wire, seed).values()
    return error


def test_a_function_is_right_before_and_after_timing(worker: Any, tmp_path: Path) -> None:
    exact = reference(tmp_path)
    worker.prepare(asked(tmp_path))
    assert compared(exact, tmp_path, 1) < 1e-6
    assert compared(exact, tmp_path, 2) > 0.5
    measured = worker.measure(PLAN)
    assert measured["checked"]["seed"] == 2
    assert measured["input_sets"] >= 3
    assert compared(exact, tmp_path, 2) < 1e-6


def test_a_kept_result_is_wrong_after_timing(worker: Any, tmp_path: Path) -> None:
    worker.prepare(asked(tmp_path, "keeps"))
    worker.measure(PLAN)
    assert compared(reference(tmp_path), tmp_path, 2) > 0.5


def test_hello_lists_functions_with_their_arguments(worker: Any) -> None:
    variants = {one["name"]: one for one in worker.hello()["variants"]}
    assert variants["rmsnorm"]["arguments"]["required"] == ["x", "weight", "eps"]
    assert variants["rmsnorm"]["directions"] == ()
    assert not {"größe", "Norm"} & variants.keys()
    assert variants["slow"]["parameters"] == {"block": "integer"}
    why = variants["softcap"]["arguments"]["only_declared"]
    assert "`cap` without a default" in why


@pytest.mark.parametrize(
    ("signature", "words"),
    [("q, k", "called with q, k and v in their places"), ("q, k, v, scale", "without a default")],
)
def test_a_function_of_declared_operators_alone_says_why(
    tmp_path: Path, signature: str, words: str
) -> None:
    served = declared.served(tmp_path, f"def f({signature}): pass\n", function="f")
    assert words in served.hello()["variants"][0]["arguments"]["only_declared"]
    with pytest.raises(Unsupported, match=words):
        served.prepare({"variant": "f", "problem": {}})


@pytest.mark.parametrize(
    ("variant", "words"),
    [
        ("double", "returned y as float64; the operator's is f32"),
        ("words", "returned y as str; return an array"),
        ("lacks", "takes no `weight`"),
        ("another_name", "returned z by name; the operator has y"),
    ],
)
def test_what_is_no_result_is_refused(
    worker: Any, tmp_path: Path, variant: str, words: str
) -> None:
    with pytest.raises(Failed, match=words):
        worker.prepare(asked(tmp_path, variant))


def test_a_result_of_a_state_that_is_returned_is_refused(worker: Any, tmp_path: Path) -> None:
    words = "returned 1 result; the operator returns nothing and leaves results in `s`: write them"
    with pytest.raises(Failed, match=words):
        worker.prepare(asked(tmp_path, "returns_state", ACCUMULATE))


def test_a_later_call_that_raises_is_named_with_its_line(worker: Any, tmp_path: Path) -> None:
    worker.prepare(asked(tmp_path, "raises_later"))
    words = r"py:raises_later: line \d+, in raises_later: IndexError: place 16"
    with pytest.raises(Failed, match=words):
        worker.measure(PLAN)


def test_a_scalar_that_is_used_as_a_whole_number_is_named(worker: Any, tmp_path: Path) -> None:
    wire = {**RMSNORM, "scalars": {"eps": 2.0}}
    advice = r"TypeError: .*integer.*: a scalar is a float; annotate `eps: int` for a whole number"
    with pytest.raises(Failed, match=rf"counts: line \d+, in counts: {advice}"):
        worker.prepare(asked(tmp_path, "counts", wire))
    with pytest.raises(Failed, match=rf"leading: line \d+, in leading: {advice}"):
        reference(tmp_path, "leading").compare({"operands": wire, "seed": 1})
    with pytest.raises(
        Failed, match="TypeError: 'float' object cannot be interpreted as an int.*r$"
    ):
        worker.prepare(asked(tmp_path, "counts"))


def test_a_class_is_no_function(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="Norm is a class: name a function, or an instance"):
        declared.served(tmp_path, CODE, function="Norm")


def test_a_function_that_lacks_memory_is_not_wrong(worker: Any, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="out of memory: Unable to allocate"):
        worker.prepare(asked(tmp_path, "large"))


def test_an_input_is_its_callers(worker: Any, tmp_path: Path) -> None:
    worker.prepare(asked(tmp_path, "writes"))
    with pytest.raises(Failed, match="wrote into its input x"):
        worker.measure(PLAN)


@pytest.mark.parametrize("sets", [1, 3])
def test_a_state_is_restored_before_each_call(worker: Any, tmp_path: Path, sets: int) -> None:
    exact = reference(tmp_path, "accumulate")
    worker.prepare(asked(tmp_path, "accumulate", ACCUMULATE, input_sets=sets))
    assert compared(exact, tmp_path, 1, ACCUMULATE) < 1e-6
    seed = worker.measure(PLAN)["checked"]["seed"]
    assert compared(exact, tmp_path, seed, ACCUMULATE) < 1e-6
    with pytest.raises(Unsupported, match="changes a state"):
        worker.repeat(3, None, False)


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_lengths_are_drawn_again_until_they_are_others(tmp_path: Path, rows: int) -> None:
    """Two lengths are in the same order in every second draw, and one length is always the same."""
    code = """
import numpy

def mean(x: numpy.ndarray, lengths: numpy.ndarray):
    return numpy.array([row[:length].mean() for row, length in zip(x, lengths)])
"""
    exact = declared.reference(tmp_path, code, "mean")
    lengths = declared.tensor("lengths", [rows], "lengths", 2, 8, dtype="i32")
    output = {"name": "y", "shape": [rows], "dtype": "f32", "limit": 5e-6}
    operands = {"inputs": [declared.tensor("x", [rows, 8]), lengths], "outputs": [output]}
    for seed in range(8):
        moved = exact.compare({"operands": operands, "seed": seed, "results": None})["errors"]
        assert moved.keys() == ({"x y", "lengths y"} if rows > 1 else {"x y"})
        assert min(error["relative_l2"] for error in moved.values()) > 1e-3


def test_a_reference_is_as_sensitive_as_its_formula(tmp_path: Path) -> None:
    def moved(function: str) -> dict[str, float]:
        errors = reference(tmp_path, function).compare({"operands": RMSNORM, "seed": 1})["errors"]
        return {name: error["relative_l2"] for name, error in errors.items()}

    assert all(error > 2e-5 for error in moved("rmsnorm").values())
    assert moved("ignores")["eps y"] == 0.0
    # A rate of decay may not be doubled, so half of it is tried.
    rate = {"operands": {**RMSNORM, "scalars": {"eps": 0.75}}, "seed": 1}
    errors = reference(tmp_path, "decays").compare(rate)["errors"]
    assert errors["eps y"]["relative_l2"] == pytest.approx(0.625**0.5 / 0.25**0.5 - 1)


def test_a_reference_says_what_is_wrong_with_it(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="not finite"):
        reference(tmp_path, "infinite").compare({"operands": RMSNORM, "seed": 1})
    with pytest.raises(Failed, match="narrow gives y as float32: compute in float64"):
        reference(tmp_path, "narrow").compare({"operands": RMSNORM, "seed": 1})
    with pytest.raises(Failed, match="ValueError: 2e-06, with the scalar `eps` doubled to 2e-06"):
        reference(tmp_path, "exact_eps").compare({"operands": RMSNORM, "seed": 1})
    with pytest.raises(Failed, match="has no function `none`"):
        reference(tmp_path, "none")
    (variant,) = reference(tmp_path).hello()["variants"]
    assert variant["arguments"]["required"] == ["x", "weight", "eps"]


LATE = """
import importlib
import runpy

def imports(x, weight, eps):
    return importlib.import_module("norms").rmsnorm(x, weight, eps)

def runs(x, weight, eps):
    return runpy.run_path(PATH)["rmsnorm"](x, weight, eps)

def reads(x, weight, eps):
    import wave
    with open(__file__) as own:
        own.read()
    return x * ((x * x).mean(axis=-1, keepdims=True) + eps) ** -0.5 * weight
"""


def test_a_reference_that_loads_code_in_its_call_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tested = tmp_path / "norms.py"
    tested.write_text("def rmsnorm(x, weight, eps): return x * weight * eps\n")
    late = LATE.replace("PATH", repr(str(tested)))
    monkeypatch.syspath_prepend(tmp_path)
    request = {"operands": RMSNORM, "seed": 1}
    # An import leaves the module loaded, so it comes last.
    for function in ("runs", "imports"):
        with pytest.raises(Failed, match=r"loads .*norms\.py when it is called"):
            declared.reference(tmp_path, late, function).compare(request)
    monkeypatch.delitem(sys.modules, "norms")
    assert declared.reference(tmp_path, late, "reads").compare(request)["errors"]


def test_inputs_keep_their_streams_apart() -> None:
    wires = [{**RMSNORM["inputs"][1], "name": name} for name in ("x", "y")]
    first, second = (read(wire).drawn(1) for wire in wires)
    assert abs(float(np.corrcoef(first.ravel(), second.ravel())[0, 1])) < 0.3


JAX_CODE = """
import time

import jax
import jax.numpy as jnp

def rmsnorm(x: jax.Array, weight, eps):
    return x * jax.lax.rsqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight

jitted = jax.jit(rmsnorm)

def sleeps(x, weight, eps):
    def late(y):
        time.sleep(0.02)
        return y
    return jax.pure_callback(late, x, rmsnorm(x, weight, eps))

def half(x, weight, eps):
    return rmsnorm(x, weight, eps).astype(jnp.float16)

def accumulate(s, x):
    return s + x
"""


@pytest.fixture
def jax_worker(tmp_path: Path) -> Any:
    worker = declared.served(tmp_path, JAX_CODE, "jax")
    yield worker
    worker.release()


@pytest.mark.parametrize("variant", ["rmsnorm", "jitted"])
@pytest.mark.parametrize("sets", [1, 3])
def test_a_function_of_jax_arrays_is_right_before_and_after_timing(
    jax_worker: Any, tmp_path: Path, variant: str, sets: int
) -> None:
    exact = reference(tmp_path)
    prepared = jax_worker.prepare(asked(tmp_path, variant, input_sets=sets))
    assert set(prepared["first_call_parts"]) == {"tracing", "compiling"}
    assert compared(exact, tmp_path, 1) < 1e-6
    measured = jax_worker.measure(PLAN)
    seed = measured["checked"]["seed"]
    assert seed == (1 if sets == 1 else 2)
    assert compared(exact, tmp_path, seed) < 1e-6


def test_the_clock_waits_for_jax(jax_worker: Any, tmp_path: Path) -> None:
    jax_worker.prepare(asked(tmp_path, "sleeps"))
    # Less than the 20 ms where the main thread waited for a core meanwhile.
    assert max(jax_worker.measure(PLAN)["device_ns"]) >= 15e6


@pytest.mark.parametrize(
    ("variant", "wire", "error", "words"),
    [
        ("half", RMSNORM, Failed, "returned y as float16; the operator's is f32"),
        ("accumulate", ACCUMULATE, Unsupported, "cannot be written into, and the output sum"),
        (
            "rmsnorm",
            {**RMSNORM, "inputs": [{**one, "dtype": "i64"} for one in RMSNORM["inputs"]]},
            Unsupported,
            "JAX has no i64 unless JAX_ENABLE_X64=1 is set, which input weight is",
        ),
    ],
)
def test_what_jax_cannot_do_is_refused(
    jax_worker: Any, tmp_path: Path, variant: str, wire: Any, error: Any, words: str
) -> None:
    with pytest.raises(error, match=words):
        jax_worker.prepare(asked(tmp_path, variant, wire))
