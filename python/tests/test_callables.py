"""Somebody's own functions as variants, on NumPy and JAX, and on torch where it is there."""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import pytest

import support
from regatta_worker.callables.function import Function, read
from regatta_worker.callables.load import Target, framework, open_worker
from regatta_worker.protocol.channel import Failed
from regatta_worker.serving import Session

NUMPY = '''
import numpy as np
from typing import Literal

def attention(q, k, v, problem, block: int = 64, order: Literal["rows", "columns"] = "rows"):
    """Attention as it is written on a board."""
    if not problem.mask.is_full or problem.varlen or problem.kv_heads != problem.heads:
        raise NotImplementedError("full masks alone")
    if block == 13:
        raise ValueError("13 is no block")
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


class OfFile(support.Conversing):
    CODE = ""

    @classmethod
    def setup_class(cls) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "bench.py"
            file.write_text(cls.CODE)
            cls.worker = support.StartedWorker(("--file", str(file), "--name", "mine"))
            cls.hello = cls.worker.ask("hello", protocol=1)

    def variants(self) -> dict[str, Any]:
        return {variant["name"]: variant for variant in self.hello["variants"]}

    def measured(self, variant: str, tolerance: float, **axes: Any) -> None:
        prepared = self.worker.prepare(variant, **axes)
        support.right(prepared, tolerance)
        measured = self.worker.ask("measure", **support.PLAN)
        support.right_after_timing(measured, tolerance, prepared)
        assert self.worker.ask("census")["type"] == "census"

    def fails(self, words: str, variant: str, params: Any = None, **axes: Any) -> None:
        self.refused(self.worker.prepare(variant, params, **axes), words, "failed")


class TestOfNumpy(OfFile):
    CODE = NUMPY

    def test_each_public_function_of_q_k_and_v_is_a_variant(self) -> None:
        known = ["attention", "gradients", "twice", "nothing", "turned", "wide"]
        assert list(self.variants()) == known
        attention = self.variants()["attention"]
        assert attention["summary"] == "Attention as it is written on a board."
        assert attention["directions"] == ["forward"]
        parameters = {"block": "integer", "order": ["rows", "columns"]}
        assert attention["parameters"] == parameters
        assert self.variants()["gradients"]["directions"] == ["backward", "both"]
        assert self.hello["worker"] == "mine"
        assert "numpy" in self.hello["versions"]

    def test_it_is_measured_in_either_layout(self) -> None:
        self.measured("attention", 1e-5)
        self.measured("attention", 1e-5, layout="bhsd", head_dim_v=8)
        self.measured("attention", 3e-3, dtype="f16")

    def test_gradients_of_its_own(self) -> None:
        self.measured("gradients", 1e-5, direction="backward")
        self.fails(
            "bench.py:gradients returned 3 results, and direction = both is of 4 results: return "
            "out, dq, dk, dv",
            "gradients",
            direction="both",
        )

    def test_what_it_does_not_do_is_unsupported(self) -> None:
        self.refused(self.worker.prepare("attention", mask=support.CAUSAL), "full masks alone")
        self.refused(self.worker.prepare("attention", direction="backward"), "names no `dout`")

    def test_what_is_wrong_is_said_with_the_function(self) -> None:
        self.fails("bench.py:twice returned 2 results, and direction = forward is of 1", "twice")
        self.fails("bench.py:nothing returned out as NoneType; return an array", "nothing")
        self.fails(
            "returned out of shape (2, 4, 24, 16); layout = bshd wants (2, 24, 4, 16)", "turned"
        )
        self.fails("returned out as float64; return it as", "wide")
        words = "bench.py:attention: line 10, in attention: ValueError: 13 is no block"
        self.fails(words, "attention", {"block": 13})


class OfFramework(OfFile):
    REFUSED: ClassVar[dict[str, Any]]
    WRONG: tuple[tuple[str, str], ...]

    def test_it_is_measured_and_differentiated(self) -> None:
        for direction in ("forward", "backward", "both"):
            for layout in ("bshd", "bhsd"):
                self.measured("attention", 1e-5, direction=direction, layout=layout)

    def test_gradients_of_its_own(self) -> None:
        self.measured("gradients", 1e-5, direction="backward")

    def test_what_is_wrong_is_said_and_what_is_not_done_is_unsupported(self) -> None:
        self.refused(self.worker.prepare("attention", **self.REFUSED), "alone")
        for variant, words in self.WRONG:
            self.fails(words, variant)


@pytest.mark.skipif(not support.installed("jax"), reason="JAX is not installed")
class TestOfJax(OfFramework):
    CODE = JAX
    REFUSED: ClassVar = {"mask": support.CAUSAL, "seq_k": 48}
    WRONG = (
        ("wide", "bench.py:wide returned 2 results"),
        ("wrong", "bench.py:wrong: line 21, in wrong: TypeError: dot_general"),
    )


@pytest.mark.skipif(not support.installed("torch"), reason="torch is not installed")
class TestOfTorch(OfFramework):
    CODE = TORCH
    REFUSED: ClassVar = {"mask": {"left": 3, "right": 0, "align": "top-left"}}
    WRONG = (
        ("wide", "returned out as torch.float64; return it as torch.float32"),
        ("broken", "bench.py:broken: line 22, in broken: RuntimeError"),
    )


class TestNamed:
    """What is said of code that cannot be served; no library is needed for it."""

    @pytest.mark.parametrize(
        ("words", "code", "function"),
        [
            ("there is no file /", None, None),
            ("has no function `f`; there are g", "def g(x): pass\n", "f"),
            ("no public function that begins with the parameters q, k, v", "x = 1\n", None),
            ("cannot be imported: line 2: ZeroDivisionError", "x = 1\ny = x / 0\n", None),
            ("bench.py:1: SyntaxError", "def f(:\n", None),
            ("-m pip install no_such_thing`", "import no_such_thing\n", None),
            ('behind `if __name__ == "__main__":`', "import sys\nsys.exit(3)\n", None),
            ("it is called with q, k and v in their places", "def f(q, k): pass\n", "f"),
            ("`scale` without a default", "def f(q, k, v, scale): pass\n", "f"),
            ("f is no function", "f = 3\n", "f"),
        ],
    )
    def test_code_that_cannot_be_served(
        self, words: str, code: str | None, function: str | None, tmp_path: Path
    ) -> None:
        self.refused(words, tmp_path / "bench.py", code, function)

    def test_a_file_that_would_hide_a_module(self, tmp_path: Path) -> None:
        self.refused(
            "it would hide from all that import it", tmp_path / "numpy.py", "x = 1\n", None
        )

    def refused(self, words: str, path: Path, code: str | None, function: str | None) -> None:
        if code is not None:
            path.write_text(code)
        target = Target("mine", str(path), function=function)
        session = Session(lambda: open_worker(target), "mine")
        with (
            contextlib.redirect_stderr(io.StringIO()),
            mock.patch.object(sys, "path", [*sys.path]),
            mock.patch.dict(sys.modules),
        ):
            hello = session.answer(b'{"id":1,"type":"hello","protocol":1}')
        assert hello["type"] == "failed"
        assert words in hello["reason"]

    def test_what_a_function_tells_of_itself(self) -> None:
        def attention(q: Any, k: Any, v: Any) -> None: ...

        function: Any = attention
        function.regatta_variant = {"dtypes": ("f32",), "tf32": True}
        variant = read("attention", "bench.py:attention", function).variant(True)
        assert (variant.dtypes, variant.tf32) == (("f32",), True)
        function.regatta_variant = {"dtype": ("f32",)}
        with pytest.raises(Failed, match="a variant has no `dtype`; known: summary, dtypes"):
            read("attention", "bench.py:attention", function)

    def test_an_annotation_whose_names_are_not_there(self) -> None:
        def attention(q: "cupy.ndarray", k: Any, v: Any) -> None: ...  # type: ignore[name-defined]  # noqa: F821, UP037

        assert read("attention", "bench.py:attention", attention).framework == "cupy"
        attention.__annotations__["q"] = "'jax.Array'"
        assert read("attention", "bench.py:attention", attention).framework == "jax"
        attention.__annotations__["q"] = "Tensor"
        assert read("attention", "bench.py:attention", attention).framework is None

    def test_functions_of_two_frameworks(self) -> None:
        functions = {
            name: Function(name, f"bench.py:{name}", print, frozenset(), {}, False, name)
            for name in ("jax", "torch")
        }
        with pytest.raises(Failed, match="jax takes jax and bench.py:torch takes torch"):
            framework(functions)
        del functions["torch"]
        assert framework(functions) == "jax"
