"""Python functions of a call, by watching it: with a library that stands in for one."""

from __future__ import annotations

import contextlib
import sys
import types
import unittest
from collections.abc import Callable
from typing import Any
from unittest import mock

import support  # noqa: F401  (puts the worker's package on the path)

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
    """A module of that name."""
    module = types.ModuleType(name)
    exec(compile(CODE, f"{name}.py", "exec"), module.__dict__)
    return module


def named(function: str) -> str:
    """What a method is called: without its class before Python 3.11."""
    return function if sys.version_info >= (3, 11) else function.rpartition(".")[2]


class OfACall(unittest.TestCase):
    def test_functions_of_the_library_are_counted_and_those_of_python_are_not(self) -> None:
        watched = functions.of_call(library().attention, "stand_in")
        expected = {
            "stand_in.ops:attention": 1,
            "stand_in.ops:plan": 2,
            # Begins and goes on twice, in both calls.
            "stand_in.ops:steps": 6,
            f"stand_in.ops:{named('Op.apply')}": 3,
        }
        self.assertEqual(watched.calls, expected)
        self.assertEqual(watched.uncounted, {})
        self.assertEqual(watched.functions_ns.keys(), expected.keys())
        self.assertEqual(watched.operators_ns, {})

    def test_a_framework_is_told_where_it_is_the_library(self) -> None:
        call = library("torch.nn.functional").attention
        self.assertEqual(functions.of_call(call, "xformers").calls, {})
        self.assertIn("torch.nn.functional:plan", functions.of_call(call, "torch").calls)

    def test_times_are_each_functions_own_and_add_up(self) -> None:
        tally, clock = functions.Tally("lib", timed=True), iter([0, 10, 20, 50, 90, 95, 99, 100])
        named, framework = {"__name__": "lib.ops"}, {"__name__": "torch.nn"}

        def outer() -> None: ...

        def inner() -> None: ...

        with mock.patch("time.perf_counter_ns", lambda: next(clock)):
            tally.enter(outer.__code__, named)  # 0
            tally.enter(inner.__code__, framework)  # 10, the framework's: it is outer's
            tally.operator("aten::mm", lambda: None)  # 20 to 50
            tally.leave(inner.__code__)  # 90
            tally.enter(inner.__code__, {"__name__": "regatta_worker.x"})  # 95, nobody's
            tally.leave(inner.__code__)  # 99
            tally.leave(outer.__code__)  # 100
        (spent,) = tally.functions_ns.values()
        self.assertEqual(spent, 100 - 30 - 4)
        self.assertEqual(tally.operators_ns, {"aten::mm": 30})

    def test_operators_and_what_calls_them_have_times_where_functions_are_watched(self) -> None:
        tallies: list[functions.Tally] = []
        module = library()

        def watch(tally: functions.Tally) -> contextlib.AbstractContextManager[None]:
            tallies.append(tally)
            return contextlib.nullcontext()

        def dispatched(run: Callable[[], None]) -> None:
            """As a framework has it: untimed calls have no operators."""
            if tallies:
                tallies[-1].operator("aten::mm", run)

        module.__dict__["dispatched"] = dispatched
        exec("def step(): dispatched(lambda: time.sleep(0.002))", module.__dict__)
        watched = functions.of_call(module.step, "stand_in", watch)
        self.assertEqual(list(watched.operators_ns), ["aten::mm"])
        self.assertIn("stand_in.ops:step", watched.functions_ns)

    def test_an_operator_that_raises_ends(self) -> None:
        tally = functions.Tally("lib", timed=True)
        with self.assertRaises(ZeroDivisionError):
            tally.operator("aten::div", lambda: 1 / 0)
        self.assertEqual(list(tally.operators_ns), ["aten::div"])

    def test_what_differs_between_calls_is_left_out_and_named(self) -> None:
        module, turns = library(), iter(range(9))
        watched = functions.of_call(lambda: [module.plan() for _ in range(next(turns))], "")
        self.assertNotIn("stand_in.ops:plan", watched.calls)
        self.assertIn("stand_in.ops:plan: 1 and 2", watched.uncounted["functions"])

    def test_a_call_that_raises_leaves_nobody_watching(self) -> None:
        def fails() -> None:
            raise ValueError

        with self.assertRaises(ValueError), functions._profiling(mock.Mock(), mock.Mock()):
            fails()
        self.assertIsNone(sys.getprofile())

    def test_of_many_names_the_rest_is_one(self) -> None:
        figures = {"a": 1, "b": 5, "c": 5, "d": 2}
        told = {"b": 5, "c": 5, functions.OTHERS: 3}
        self.assertEqual(functions.bounded(figures, 2), told)
        self.assertEqual(functions.bounded(figures, 4), figures)


class Asked(unittest.TestCase):
    def test_a_census_has_functions_and_their_times(self) -> None:
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
        self.assertEqual(census["functions"]["stand_in.ops:plan"], 2)
        self.assertIn("stand_in.ops:plan", census["host"]["functions_ns"])
        self.assertEqual(census["uncounted"], {"operators": "two calls differ"})


if __name__ == "__main__":
    unittest.main()
