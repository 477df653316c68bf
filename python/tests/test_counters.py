"""Counting the calls of functions, on modules made for it and on those of the libraries."""

from __future__ import annotations

import itertools
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest

import support
from regatta_worker.census.counters import (
    BUILT_IN,
    COUNTED_CALLS,
    FEWEST_CALLS,
    WARMUP_CALLS,
    Counter,
    count,
)

LIBRARY = """
def select(kind):
    return kind

def outer(depth):
    return outer(depth - 1) if depth else select("inner")

def fails():
    raise LookupError("as it does without being counted")

class Base:
    def inherited(self):
        return "inherited"

class Selector(Base):
    cache = 3
    def select(self, kind):
        return (self, kind)
    @staticmethod
    def pure(kind):
        return kind
    @classmethod
    def named(cls, kind):
        return (cls, kind)
    @property
    def kind(self):
        return "kind"

selector = Selector()
"""

USER = """
from counted_library import select as choose

def run(kind):
    return choose(kind)
"""


def loaded(name: str, text: str) -> Any:
    """A module of this text, as if it had been imported."""
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(text, vars(module))
    return module


class TestCounting:
    @pytest.fixture(autouse=True)
    def modules(self) -> Iterator[None]:
        self.library = loaded("counted_library", LIBRARY)
        self.user = loaded("counted_user", USER)
        yield
        for name in ("counted_library", "counted_user", "counted_later"):
            sys.modules.pop(name, None)

    def counted(self, call: Callable[[], Any], *functions: str) -> dict[str, int]:
        asked = Counter("it", tuple(f"counted_library:{name}" for name in functions))
        counts, uncounted = count(call, [asked], built_in=())
        assert uncounted == {}
        return counts

    def test_others_decide_how_many_calls_are_made(self) -> None:
        made: list[int] = []
        wishes: list[bool] = []

        def twice_more(own: bool) -> bool:
            wishes.append(own)
            return len(wishes) <= 2

        asked = Counter("it", ("counted_library:select",))
        counts, _ = count(lambda: made.append(1), [asked], built_in=(), agreed=twice_more)
        assert len(made) == WARMUP_CALLS + FEWEST_CALLS + 2
        assert (wishes, counts) == ([True, True, True], {"calls.it": 0})

    def test_never_is_zero_and_has_no_time(self) -> None:
        assert self.counted(lambda: None, "select") == {"calls.it": 0}

    def test_under_another_name_in_another_module(self) -> None:
        original = self.library.select
        counts = self.counted(lambda: (self.user.run(1), self.library.select(2)), "select")
        assert counts["calls.it"] == 2
        assert counts["ns.it"] >= 0
        assert self.library.select is original
        assert self.user.choose is original

    def test_a_module_loaded_while_counting_keeps_no_wrapper(self) -> None:
        original, modules = self.library.select, []

        def call() -> None:
            modules.append(loaded("counted_later", USER))
            modules[-1].run(1)

        assert self.counted(call, "select")["calls.it"] == 1
        assert modules[-1].choose is original

    @pytest.mark.parametrize(
        ("name", "call", "counted"),
        [
            ("Selector.select", lambda module: module.selector.select(1), 1),
            ("Selector.pure", lambda module: module.Selector.pure(1), 1),
            ("Selector.pure", lambda module: module.selector.pure(1), 1),
            ("Selector.named", lambda module: module.Selector.named(1), 1),
            ("Selector.inherited", lambda module: module.selector.inherited(), 1),
            ("Selector.inherited", lambda module: module.Base().inherited(), 0),
        ],
    )
    def test_methods_of_every_kind(self, name: str, call: Callable[..., Any], counted: int) -> None:
        before, result = dict(vars(self.library.Selector)), call(self.library)
        assert self.counted(lambda: call(self.library), name)["calls.it"] == counted
        assert call(self.library) == result
        assert dict(vars(self.library.Selector)) == before

    def test_a_function_of_c(self) -> None:
        import math

        counts, _ = count(lambda: math.sqrt(4.0), [Counter("it", ("math:sqrt",))], built_in=())
        assert counts["calls.it"] == 1
        assert isinstance(math.sqrt, types.BuiltinFunctionType)

    def test_nested_calls_count_once_each_and_their_time_once(self) -> None:
        ticks = itertools.count()
        with mock.patch("time.perf_counter_ns", side_effect=ticks):
            counts = self.counted(lambda: self.library.outer(4), "outer", "select")
        assert counts["calls.it"] == 6
        # Six events read the clock twice each: the outermost spans all of it.
        assert counts["ns.it"] == 11

    def test_calls_that_differ_have_their_sum_beside_the_most(self) -> None:
        kinds = iter(range(100))

        def call() -> None:
            if next(kinds) % 4 == 2:
                self.library.select(1)

        counts = self.counted(call, "select")
        assert counts["calls.it"] == 1
        assert counts[f"calls_in_{COUNTED_CALLS}.it"] == COUNTED_CALLS // 4

    def test_other_threads_count(self) -> None:
        def call() -> None:
            threads = [threading.Thread(target=self.library.select, args=(n,)) for n in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        assert self.counted(call, "select")["calls.it"] == 3

    def test_exceptions_pass_and_leave_nothing_behind(self) -> None:
        original = self.library.fails
        with pytest.raises(LookupError, match="as it does"):
            self.counted(lambda: self.library.fails(), "fails")
        assert self.library.fails is original
        seen: list[LookupError] = []

        def call() -> None:
            try:
                self.library.fails()
            except LookupError as error:
                seen.append(error)

        assert self.counted(call, "fails")["calls.it"] == 1
        assert len(seen) == COUNTED_CALLS + 2

    def test_progress_tells_which_calls_are_events(self) -> None:
        counter = Counter("it", ("counted_library:select",), progress=lambda kind: len(kind))
        kinds: list[int] = []

        def call() -> None:
            self.library.select(kinds)

        assert count(call, [counter], built_in=())[0] == {"calls.it": 0}
        select = self.library.select
        self.library.select = lambda kind: kind.append(select(1))
        assert count(call, [counter], built_in=())[0]["calls.it"] == 1

    @pytest.mark.parametrize(
        ("function", "reason"),
        [
            ("no_such_module:f", "no_such_module cannot be imported: ModuleNotFoundError"),
            ("counted_library:nothing", "counted_library has no `nothing`"),
            ("counted_library:Selector.nothing", "Selector has no `nothing`"),
            ("counted_library:nothing.at_all", "counted_library has no `nothing`"),
            ("counted_library:Selector", "is a class; name its `__init__`"),
            ("counted_library:Selector.cache", "is no function but a int"),
            ("counted_library:Selector.kind", "is no function but a property"),
            ("counted_library:selector.select", "is an attribute of an instance"),
            ("builtins:str.join", "cannot be wrapped"),
        ],
    )
    def test_what_cannot_be_counted_says_why(self, function: str, reason: str) -> None:
        counts, uncounted = count(lambda: None, [Counter("it", (function,))], built_in=())
        # Never 0: what was not counted is not there.
        assert counts == {}
        assert uncounted["calls.it"].startswith(function)
        assert reason in uncounted["calls.it"]

    def test_one_that_cannot_be_found_leaves_the_others_counted_and_unwrapped(self) -> None:
        original = self.library.select
        asked = [
            Counter("gone", ("counted_library:select", "counted_library:nothing")),
            Counter("it", ("counted_library:select",)),
        ]
        counts, uncounted = count(lambda: self.user.run(1), asked, built_in=())
        assert counts["calls.it"] == 1
        assert list(uncounted) == ["calls.gone"]
        assert self.user.choose is original

    def test_built_in_counters_of_libraries_that_are_not_loaded_are_left_out(self) -> None:
        absent = Counter("it", ("never_loaded:f",))
        assert count(lambda: None, [], built_in=[absent]) == ({}, {})
        assert "never_loaded" not in sys.modules


def built_in(name: str) -> list[Counter]:
    """The built-in counter of this name, as one that is asked for, so that it is loaded."""
    return [counter for counter in BUILT_IN if counter.name == name]


class TestLibraries:
    """The functions that the built-in counters name exist, and run when they should."""

    @pytest.mark.skipif(not support.installed("jax"), reason="jax is not installed")
    def test_jax_compiles_for_each_new_shape(self) -> None:
        import jax
        import jax.numpy as jnp
        import numpy as np

        double, lengths = jax.jit(lambda x: x * 2 + 1), iter(range(1, 100))
        counter = built_in("jax_compile")
        new = lambda: double(np.ones(next(lengths), dtype=np.float32))  # noqa: E731
        assert count(new, counter, ())[0]["calls.jax_compile"] == 1
        same = jnp.ones(5)
        assert count(lambda: double(same), counter, ()) == ({"calls.jax_compile": 0}, {})

    @pytest.mark.skipif(not support.installed("torch"), reason="torch is not installed")
    def test_torch_compiles_once_for_a_shape(self) -> None:
        import torch

        def fresh() -> Any:
            torch.compiler.reset()
            compiled = torch.compile(lambda x: x * 2 + 1, backend="eager")
            return compiled(torch.ones(3)), compiled(torch.ones(3))

        counter = built_in("torch_compile")
        assert count(fresh, counter, ())[0]["calls.torch_compile"] == 1
        compiled = torch.compile(lambda x: x * 2 + 1, backend="eager")
        held = torch.ones(3)
        steady = count(lambda: compiled(held), counter, ())
        assert steady == ({"calls.torch_compile": 0}, {})
        # Operators are not counted in a process that compiles; other tests count some.
        torch.compiler.reset()

    @pytest.mark.skipif(not support.installed("triton"), reason="triton is not installed")
    def test_triton_has_what_is_counted(self) -> None:
        for name in ("triton_autotune", "triton_compile"):
            assert count(lambda: None, built_in(name), ()) == ({f"calls.{name}": 0}, {})
