"""Python functions of a call, by watching it: with a library that stands in for one."""

import functools
import sys
import types
from typing import Any

import pytest

import support
from regatta_worker.census import functions

CODE = """
import json, time
class Op:
    def apply(self, n):
        time.sleep(0)
        return n and self.apply(n - 1)
def steps():
    yield 1
    yield 2
def plan(): json.dumps({"a": 1}); return [n for n in steps()]
def attention(): plan(); plan(); return Op().apply(2)
"""


def library(name: str = "stand_in.ops") -> types.ModuleType:
    module = sys.modules[name] = types.ModuleType(name)
    module.__file__ = f"{name}.py"
    exec(compile(CODE, f"{name}.py", "exec"), module.__dict__)
    return module


def named(function: str) -> str:
    """The name of a method: without its class before Python 3.11."""
    return function if sys.version_info >= (3, 11) else function.rpartition(".")[2]


def test_functions_of_the_library_are_counted_and_what_it_calls_of_python() -> None:
    calls, _, uncounted = functions.count_functions(library().attention, "stand_in")
    assert calls == {
        "stand_in.ops:attention": 1,
        "stand_in.ops:plan": 2,
        # Begins and is resumed twice, in both calls.
        "stand_in.ops:steps": 6,
        f"stand_in.ops:{named('Op.apply')}": 3,
        # Functions that these call are left out.
        "json:dumps": 2,
        "time:sleep": 3,
    }
    assert uncounted == {}


def test_a_framework_is_told_where_it_is_the_library() -> None:
    call = library("cupy.made_up").attention
    assert functions.count_functions(call, "xformers")[0] == {}
    assert "cupy.made_up:plan" in functions.count_functions(call, "cupy")[0]


def test_what_differs_between_calls_is_left_out_and_named() -> None:
    module, turns = library(), iter(range(9))
    calls, _, uncounted = functions.count_functions(
        lambda: [module.plan() for _ in range(next(turns))], ""
    )
    assert "stand_in.ops:plan" not in calls
    assert "as of json:dumps: 1 and 2" in uncounted["functions"]


def test_causes_that_lie_in_python_or_numpy_are_named() -> None:
    numpy, module = pytest.importorskip("numpy"), library("stand_in.more")
    code = """
import gc, re
def clean(x, lines):
    x = x.copy()
    words = [re.compile(line) for line in lines]
    words.sort(key=id)
    gc.collect()
    return [x.sum() for _ in lines]
"""
    exec(compile(code, "stand_in.more.py", "exec"), module.__dict__)
    clean = functools.partial(module.clean, numpy.ones(3), "abc")
    calls, *_ = functions.count_functions(clean, "stand_in")
    assert calls == {
        "gc:collect": 1,
        "numpy:ndarray.copy": 1,
        "numpy:ndarray.sum": 3,
        "re:compile": 3,
        "stand_in.more:clean": 1,
    }


def test_the_part_of_a_function_has_what_it_does_without_a_name() -> None:
    module = library("stand_in.slow")
    code = """
import json
def inner(words): return [word for _ in range(90) for word in words if word in words]
def squares(): return sum(inner(words)[0] == words[0] for words in [["a", "b"] * 20] * 2)
def outer():
    squares()
    for _ in range(300): json.dumps(list(range(40)))
    for _ in range(300): sum(range(300))
"""
    exec(compile(code, "stand_in.slow.py", "exec"), module.__dict__)
    _, parts, _ = functions.count_functions(module.outer, "stand_in")
    names = {name.removeprefix(functions.PARTS) for name in parts}
    if sys.version_info >= (3, 11):
        assert names == {"stand_in.slow:inner", "stand_in.slow:outer", "json:dumps"}
    assert 950_000 < sum(parts.values()) <= 1_000_001


def test_small_parts_are_not_told() -> None:
    profiles = [{"a": 1.0, "b": 0.04, "c": 0.5}, {"a": 0.8, "b": 0.2, "c": 0.16}]
    assert functions.parts(profiles) == {"ppm.in.a": 800_000, "ppm.in.c": 160_000}
    assert functions.parts([{}]) == {}


def test_a_call_that_raises_leaves_no_profiler() -> None:
    with pytest.raises(ZeroDivisionError):
        functions._profiled(lambda: 1 / 0, "", {})
    assert sys.getprofile() is None


def test_of_many_names_the_rest_is_one() -> None:
    figures = {"a": 1, "b": 5, "c": 5, "d": 2}
    assert functions.bounded(figures, 2) == {"b": 5, "c": 5, functions.OTHERS: 3}
    assert functions.bounded(figures, 4) == figures


def test_a_census_has_functions() -> None:
    module, why = library(), {"operators": "two calls differ"}
    counted = {"launches": [], "counts": {}, "uncounted": why}
    worker = types.SimpleNamespace(call=module.attention, census=lambda: counted)
    census = support.answer(worker, "census", "stand_in")
    assert census["functions"]["stand_in.ops:plan"] == 2
    assert census["uncounted"] == why


class TestOperators:
    def count(self, call: Any) -> tuple[dict[str, int], dict[str, str]]:
        return functions.count_operators(call)

    def test_views_and_splits_are_seen_also_of_a_backward_pass(self) -> None:
        torch = pytest.importorskip("torch")
        # Another test may have compiled.
        torch.compiler.reset()
        packed = torch.randn(2, 8, 3, 4, requires_grad=True)

        def call() -> None:
            q, k, v = packed.unbind(2)
            left, right = torch.split(q * k * v, [3, 5], dim=1)
            (left.sum() + right.reshape(2, -1).sum()).backward()

        call()
        calls, _ = self.count(call)
        assert (calls["aten::split_with_sizes"], calls["aten::unbind"]) == (1, 1)
        assert calls["aten::mul"] > 2, "those of the backward pass, too"

    def test_calls_that_differ_and_calls_that_fail_say_so(self) -> None:
        torch = pytest.importorskip("torch")
        torch.compiler.reset()
        turns, one = iter((1, 2, 3)), torch.ones(1)
        differ = self.count(lambda: [one.add(1) for _ in range(next(turns))])
        assert differ == ({}, {"operators": "two calls differ, as in aten::add: 1 and 2"})
        failed = self.count(lambda: 1 / 0)
        assert failed == ({}, {"operators": "ZeroDivisionError: division by zero"})

    def test_compiled_code_is_not_run_otherwise_for_the_count(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pytest.importorskip("torch")
        monkeypatch.setattr(functions, "compiles", lambda: True)
        assert "torch.compile" in self.count(lambda: 1 / 0)[1]["operators"]
