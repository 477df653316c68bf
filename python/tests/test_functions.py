"""Python functions of a call, by watching it: with a library that stands in for one."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from regatta_worker.census import functions
from regatta_worker.serving import Session

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
    """A module of that name, as if it were imported."""
    module = sys.modules[name] = types.ModuleType(name)
    module.__file__ = f"{name}.py"
    exec(compile(CODE, f"{name}.py", "exec"), module.__dict__)
    return module


def named(function: str) -> str:
    """What a method is called: without its class before Python 3.11."""
    return function if sys.version_info >= (3, 11) else function.rpartition(".")[2]


class TestOfACall:
    def test_functions_of_the_library_are_counted_and_those_of_python_are_not(self) -> None:
        calls, uncounted = functions.count_functions(library().attention, "stand_in")
        expected = {
            "stand_in.ops:attention": 1,
            "stand_in.ops:plan": 2,
            # Begins and goes on twice, in both calls.
            "stand_in.ops:steps": 6,
            f"stand_in.ops:{named('Op.apply')}": 3,
        }
        assert calls == expected
        assert uncounted == {}

    def test_a_framework_is_told_where_it_is_the_library(self) -> None:
        call = library("cupy.made_up").attention
        assert functions.count_functions(call, "xformers")[0] == {}
        assert "cupy.made_up:plan" in functions.count_functions(call, "cupy")[0]

    def test_what_differs_between_calls_is_left_out_and_named(self) -> None:
        module, turns = library(), iter(range(9))
        calls, uncounted = functions.count_functions(
            lambda: [module.plan() for _ in range(next(turns))], ""
        )
        assert "stand_in.ops:plan" not in calls
        assert "stand_in.ops:plan: 1 and 2" in uncounted["functions"]

    def test_a_call_that_raises_leaves_nobody_watching(self) -> None:
        def fails() -> None:
            raise ValueError

        with pytest.raises(ValueError):
            functions._profiled(fails, "")
        assert sys.getprofile() is None

    def test_of_many_names_the_rest_is_one(self) -> None:
        figures = {"a": 1, "b": 5, "c": 5, "d": 2}
        told = {"b": 5, "c": 5, functions.OTHERS: 3}
        assert functions.bounded(figures, 2) == told
        assert functions.bounded(figures, 4) == figures


class TestAsked:
    def test_a_census_has_functions(self) -> None:
        module = library()

        class Worker:
            def hello(self) -> dict[str, Any]:
                return {}

            def call(self) -> Any:
                return module.attention()

            def census(self) -> dict[str, Any]:
                why = {"operators": "two calls differ"}
                return {"launches": [], "counts": {}, "uncounted": why}

        session = Session(lambda: Worker(), "stand_in")  # type: ignore[arg-type,return-value]
        session.answer(b'{"id":1,"type":"hello","protocol":1}')
        census = session.answer(b'{"id":2,"type":"census"}')
        assert census["functions"]["stand_in.ops:plan"] == 2
        assert census["uncounted"] == {"operators": "two calls differ"}
