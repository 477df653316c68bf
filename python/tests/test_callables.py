"""Somebody's own functions as variants, on NumPy and JAX, and on torch where it is there."""

import contextlib
import io
import re
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import support
from regatta_worker.callables.function import read
from regatta_worker.callables.load import Target, begin, framework, open_worker
from regatta_worker.protocol.channel import Failed

NUMPY = '''
import numpy as np
from typing import Literal

def attention(q, k, v, problem, block: int = 64, order: Literal["rows", "columns"] = "rows"):
    """Attention as it is written on a board."""
    if not problem.mask.is_full or problem.varlen or problem.kv_heads != problem.heads:
        raise NotImplementedError("full masks alone")
    if block == 13:
        raise ValueError("13 is not a block")
    q, k, v = (x if problem.layout == "bhsd" else x.swapaxes(1, 2) for x in (q, k, v))
    scores = q @ k.swapaxes(2, 3) * np.float32(problem.head_dim**-0.5)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    out = (weights / weights.sum(-1, keepdims=True)) @ v
    return (out if problem.layout == "bhsd" else out.swapaxes(1, 2)).astype(q.dtype)

def gradients(q, k, v, dout):
    q, k, v, dout = (x.swapaxes(1, 2) for x in (q, k, v, dout))
    scale = np.float32(q.shape[-1] ** -0.5)
    scores = q @ k.swapaxes(2, 3) * scale
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    seen = dout @ v.swapaxes(2, 3)
    inner = weights * (seen - (seen * weights).sum(-1, keepdims=True)) * scale
    found = inner @ k, inner.swapaxes(2, 3) @ q, weights.swapaxes(2, 3) @ dout
    return tuple(x.swapaxes(1, 2) for x in found)

def twice(q, k, v):
    return q, q

def nothing(q, k, v):
    return None

def turned(q, k, v):
    return q.swapaxes(1, 2)

def wide(q, k, v):
    return q.astype(np.float64)

def softmax(x):
    return x

def _own(q, k, v):
    return q
'''

JAX = """
import jax
import jax.numpy as jnp

def attention(q: jax.Array, k: jax.Array, v: jax.Array, problem):
    if problem.layout == "bhsd":
        q, k, v = (jnp.swapaxes(x, 1, 2) for x in (q, k, v))
    if problem.mask.is_causal and not problem.is_square:
        raise NotImplementedError("square alone")
    out = jax.nn.dot_product_attention(q, k, v, is_causal=problem.mask.is_causal)
    return jnp.swapaxes(out, 1, 2) if problem.layout == "bhsd" else out

@jax.jit
def gradients(q, k, v, dout):
    return jax.vjp(jax.nn.dot_product_attention, q, k, v)[1](dout)

def wide(q, k, v):
    return (q, k)

def wrong(q, k, v):
    return jnp.dot(q, k)
"""

TORCH = """
import torch
import torch.nn.functional as F

def attention(q, k, v, problem):
    if problem.layout == "bshd":
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    if not problem.mask.is_full and not problem.mask.is_causal:
        raise NotImplementedError("causal and full alone")
    out = F.scaled_dot_product_attention(q, k, v, is_causal=problem.mask.is_causal)
    return out.transpose(1, 2) if problem.layout == "bshd" else out

def gradients(q, k, v, dout):
    inputs = tuple(x.detach().requires_grad_() for x in (q, k, v))
    out = F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in inputs)).transpose(1, 2)
    return torch.autograd.grad(out, inputs, dout)

def wide(q, k, v):
    return q.float().double()

def broken(q, k, v):
    return q @ v[..., :3]
"""


SHAPES = "of shape (2, 4, 24, 16); layout = bshd wants (2, 24, 4, 16)"
DIRECTIONS = [
    ("attention", 1e-5, {"direction": direction, "layout": layout})
    for direction in ("forward", "backward", "both")
    for layout in ("bshd", "bhsd")
]
GRADIENTS = ("gradients", 1e-5, {"direction": "backward"})

FRAMEWORKS: dict[str, tuple[str, list[Any], list[Any], list[Any]]] = {
    "numpy": (
        NUMPY,
        [
            ("attention", 1e-5, {}),
            ("attention", 1e-5, {"layout": "bhsd", "head_dim_v": 8}),
            ("attention", 3e-3, {"dtype": "f16"}),
            GRADIENTS,
        ],
        [
            ("attention", {"mask": support.CAUSAL}, "full masks alone"),
            ("attention", {"direction": "backward"}, "names no `dout`"),
        ],
        [
            (
                *("gradients", {"direction": "both"}),
                "bench.py:gradients returned 3 results, and direction = both is of 4 results: "
                "return out, dq, dk, dv",
            ),
            ("twice", {}, "bench.py:twice returned 2 results, and direction = forward is of 1"),
            ("nothing", {}, "bench.py:nothing returned out as NoneType; return an array"),
            ("turned", {}, f"returned out {SHAPES}"),
            ("wide", {}, "returned out as float64; return it as"),
            (
                *("attention", {"params": {"block": 13}}),
                "bench.py:attention: line 10, in attention: ValueError: 13 is not a block",
            ),
        ],
    ),
    "jax": (
        JAX,
        [*DIRECTIONS, GRADIENTS],
        [("attention", {"mask": support.CAUSAL, "seq_k": 48}, "alone")],
        [
            ("wide", {}, "bench.py:wide returned 2 results"),
            ("wrong", {}, "bench.py:wrong: line 21, in wrong: TypeError: dot_general"),
        ],
    ),
    "torch": (
        TORCH,
        [*DIRECTIONS, GRADIENTS],
        [("attention", {"mask": {"left": 3, "right": 0, "align": "top-left"}}, "alone")],
        [
            ("wide", {}, "returned out as torch.float64; return it as torch.float32"),
            ("broken", {}, "bench.py:broken: line 22, in broken: RuntimeError"),
        ],
    ),
}
"""By framework: the file; cases that are measured, with their tolerance; those that are refused,
and those that are wrong, with the words."""


@pytest.mark.parametrize("arrays", FRAMEWORKS)
def test_functions_of_a_file(arrays: str, tmp_path: Path) -> None:
    if not support.installed(arrays):
        pytest.skip(f"{arrays} is not installed")
    code, measured, refused, wrong = FRAMEWORKS[arrays]
    (tmp_path / "bench.py").write_text(code)
    worker = support.StartedWorker(("--file", str(tmp_path / "bench.py"), "--name", "mine"))
    hello = worker.hello
    assert hello["worker"] == "mine"
    assert arrays in hello["versions"]
    if arrays == "numpy":
        variants = {variant["name"]: variant for variant in hello["variants"]}
        named = ["attention", "gradients", "twice", "nothing", "turned", "wide"]
        assert list(variants)[: len(named)] == named
        attention = variants["attention"]
        assert attention["summary"] == "Attention as it is written on a board."
        assert attention["directions"] == ["forward"]
        assert attention["parameters"] == {"block": "integer", "order": ["rows", "columns"]}
        assert variants["gradients"]["directions"] == ["backward", "both"]
    for variant, tolerance, axes in measured:
        prepared = worker.prepare(variant, **axes)
        support.right(prepared, tolerance)
        support.right_after_timing(worker.ask("measure", **support.PLAN), tolerance, prepared)
        assert worker.ask("census")["type"] == "census"
    for kind, rows in (("unsupported", refused), ("failed", wrong)):
        for variant, axes, words in rows:
            reply = worker.prepare(variant, **axes)
            assert reply["type"] == kind, reply
            assert words in reply["reason"]
    assert worker.exit_status() == 0


@pytest.mark.parametrize(
    ("words", "file", "code", "function"),
    [
        ("does not exist", "bench.py", None, None),
        ("has no function `f`; there are g", "bench.py", "def g(x): pass\n", "f"),
        ("no public function that can be called", "bench.py", "x = 1\n", None),
        ("cannot be imported: line 2: ZeroDivisionError", "bench.py", "x = 1\ny = x / 0\n", None),
        ("bench.py:1: SyntaxError", "bench.py", "def f(:\n", None),
        ("-m pip install no_such_thing`", "bench.py", "import no_such_thing\n", None),
        ('behind `if __name__ == "__main__":`', "bench.py", "import sys\nsys.exit(3)\n", None),
        ("f is not a function", "bench.py", "f = 3\n", "f"),
        ("it would hide from all that import it", "numpy.py", "x = 1\n", None),
    ],
)
def test_code_that_cannot_be_served(
    words: str, file: str, code: str | None, function: str | None, tmp_path: Path
) -> None:
    if code is not None:
        (tmp_path / file).write_text(code)
    target = Target("mine", str(tmp_path / file), function=function)
    with (
        contextlib.redirect_stderr(io.StringIO()),
        mock.patch.object(sys, "path", [*sys.path]),
        mock.patch.dict(sys.modules),
        pytest.raises(Failed, match=re.escape(words)),
    ):
        open_worker(target)


def test_what_a_function_tells_of_itself() -> None:
    def attention(q: Any, k: Any, v: Any) -> None: ...

    function: Any = attention
    function.regatta_variant = {"dtypes": ("f32",), "tf32": True}
    variant = read("bench.py:attention", function).variant(True)
    assert (variant.dtypes, variant.tf32) == (("f32",), True)
    function.regatta_variant = {"dtype": ("f32",)}
    with pytest.raises(Failed, match="a variant has no `dtype`; known: summary, dtypes"):
        read("bench.py:attention", function)


def test_whose_arrays_functions_take() -> None:
    def attention(q: "cupy.ndarray", k: Any, v: Any) -> None: ...  # type: ignore[name-defined]

    cupy = read("bench.py:cupy", attention)
    assert cupy.framework == "cupy", "although it is not there"
    attention.__annotations__["q"] = "'jax.Array'"
    jax = read("bench.py:jax", attention)
    assert framework([jax]) == "jax"
    attention.__annotations__["q"] = "Tensor"
    assert read("bench.py:attention", attention).framework is None
    with pytest.raises(Failed, match="jax takes jax and bench.py:cupy takes cupy"):
        framework([jax, cupy])


def test_a_package_below_src_needs_no_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "src" / "below_src"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("import numpy\ndef double(x): return 2 * x\n")
    (tmp_path / "uses_it.py").write_text("from below_src import double as twice\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for target in (
        Target("mine", module="below_src", function="double"),
        Target("mine", str(tmp_path / "uses_it.py"), function="twice"),
    ):
        names = [one["name"] for one in open_worker(target).hello()["variants"]]
        assert names == [target.function]
    with pytest.raises(
        Failed, match="below_scr is not a module of .* or its `src`, and not installed"
    ):
        open_worker(Target("mine", module="below_scr"))


def test_a_file_that_hides_a_library_is_refused_behind_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "colorsys.py").write_text("def double(x): return 2 * x\n")
    monkeypatch.setattr(sys, "path", list(sys.path))
    target = Target("mine", str(tmp_path / "colorsys.py"))
    begin(target)
    with pytest.raises(Failed, match="has the name of the module `colorsys` of "):
        open_worker(target)
