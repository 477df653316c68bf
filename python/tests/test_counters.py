"""Counting the calls of functions, on modules made for it and on those of the libraries."""

import itertools
import sys
import types
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

import pytest

import support
from regatta_worker.census import counters
from regatta_worker.census.counters import BUILT_IN, COUNTED_CALLS, Counter, count

LIBRARY = """
import time

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

def compile():
    time.sleep(0.02)

def tune():
    time.sleep(0.01)
    compile()
    compile()
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


@pytest.fixture
def library() -> Iterator[Any]:
    yield loaded("counted_library", LIBRARY)
    for name in ("counted_library", "counted_user", "counted_later"):
        sys.modules.pop(name, None)


@pytest.fixture
def user(library: Any) -> Any:
    return loaded("counted_user", USER)


def counted(call: Callable[[], Any], *functions: str) -> dict[str, int]:
    asked = Counter("it", tuple(f"counted_library:{name}" for name in functions))
    counts, uncounted = count(call, [asked], built_in=())
    assert uncounted == {}
    return counts


def test_every_name_in_every_module_is_counted_and_put_back(library: Any, user: Any) -> None:
    original, modules = library.select, []

    def call() -> None:
        modules.append(loaded("counted_later", USER))
        for module in (user, modules[-1]):
            module.run(1)
        library.select(2)

    counts = counted(call, "select")
    assert counts["calls.it"] == 3
    assert counts["ns.it"] >= 0
    assert {library.select, user.choose, modules[-1].choose} == {original}


def test_a_function_of_two_counters_is_counted_by_both(library: Any, user: Any) -> None:
    original = library.select
    both = [Counter(name, ("counted_library:select",)) for name in ("one", "other")]
    counts, _ = count(lambda: (user.run(1), library.select(2)), both, built_in=())
    assert (counts["calls.one"], counts["calls.other"]) == (2, 2)
    assert library.select is user.choose is original


@pytest.mark.parametrize(
    ("name", "call", "expected"),
    [
        ("Selector.select", lambda module: module.selector.select(1), 1),
        ("Selector.pure", lambda module: module.Selector.pure(1), 1),
        ("Selector.pure", lambda module: module.selector.pure(1), 1),
        ("Selector.named", lambda module: module.Selector.named(1), 1),
        ("Selector.inherited", lambda module: module.selector.inherited(), 1),
        ("Selector.inherited", lambda module: module.Base().inherited(), 0),
    ],
)
def test_methods_of_every_kind(
    library: Any, name: str, call: Callable[..., Any], expected: int
) -> None:
    before, result = dict(vars(library.Selector)), call(library)
    assert counted(lambda: call(library), name)["calls.it"] == expected
    assert call(library) == result
    assert dict(vars(library.Selector)) == before


def test_nested_calls_count_once_each_and_their_time_once(library: Any) -> None:
    with mock.patch("time.perf_counter_ns", side_effect=itertools.count()):
        counts = counted(lambda: library.outer(4), "outer", "select")
    assert counts["calls.it"] == 6
    # Six events read the clock twice each: the outermost spans all of it.
    assert counts["ns.it"] == 11


def test_calls_that_differ_have_their_sum_beside_the_most(library: Any) -> None:
    kinds = iter(range(100))
    counts = counted(lambda: library.select(1) if next(kinds) % 4 == 2 else None, "select")
    assert counts["calls.it"] == 1
    assert counts[f"calls_in_{COUNTED_CALLS}.it"] == COUNTED_CALLS // 4


def test_other_threads_count(library: Any) -> None:
    def call() -> None:
        with ThreadPoolExecutor() as pool:
            list(pool.map(library.select, range(3)))

    assert counted(call, "select")["calls.it"] == 3


def test_exceptions_pass_and_leave_nothing_behind(library: Any) -> None:
    original = library.fails
    with pytest.raises(LookupError, match="as it does"):
        counted(lambda: library.fails(), "fails")
    assert library.fails is original

    def call() -> None:
        with pytest.raises(LookupError):
            library.fails()

    assert counted(call, "fails")["calls.it"] == 1


def test_progress_tells_which_calls_are_events(library: Any) -> None:
    counter = Counter("it", ("counted_library:select",), progress=lambda kind: len(kind))
    kinds: list[int] = []
    assert count(lambda: library.select(kinds), [counter], built_in=())[0] == {"calls.it": 0}
    library.select = lambda kind: kind.append(1)
    assert count(lambda: library.select(kinds), [counter], built_in=())[0]["calls.it"] == 1


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("no_such_module:f", "is not there: ModuleNotFoundError: No module named"),
        ("counted_library:nothing", "has no attribute 'nothing'"),
        ("counted_library:Selector.nothing", "has no attribute 'nothing'"),
        ("counted_library:nothing.at_all", "has no attribute 'nothing'"),
        ("counted_library:Selector", "is a type of a module: name a function"),
        ("counted_library:Selector.cache", "is a int of a type: name a function"),
        ("counted_library:Selector.kind", "is a property of a type"),
        ("counted_library:selector.select", "is a method of a Selector"),
        ("builtins:str.join", "cannot be wrapped"),
    ],
)
def test_what_cannot_be_counted_says_why(
    library: Any, user: Any, function: str, reason: str
) -> None:
    original = library.select
    gone = Counter("gone", ("counted_library:select", function))
    asked = [gone, Counter("it", ("counted_library:select",))]
    counts, uncounted = count(lambda: user.run(1), asked, built_in=())
    # Never 0: what was not counted is not there.
    assert "calls.gone" not in counts
    assert uncounted["calls.gone"].startswith(function)
    assert reason in uncounted["calls.gone"]
    assert counts["calls.it"] == 1, "the others are counted"
    assert user.choose is original


def test_built_in_counters_of_libraries_that_are_not_loaded_are_left_out() -> None:
    assert count(lambda: None, [], built_in=[Counter("it", ("never_loaded:f",))]) == ({}, {})
    assert "never_loaded" not in sys.modules


WATCHED = (
    ("tuning", "counted_library:tune"),
    ("compiling", "counted_library:compile"),
    ("loading", "counted_library:of_another_version"),
    ("planning", "a_module_that_is_not_loaded:plan"),
    ("failing", "counted_library:fails"),
)


def test_parts_of_a_first_call_are_their_own(library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "WATCHED", WATCHED)
    tune, sleep = library.tune, library.time.sleep
    _, reply = counters.first_call(lambda: library.tune(), lambda: sleep(0.005))
    parts = reply["first_call_parts"]
    assert {name: part["count"] for name, part in parts.items()} == {"tuning": 1, "compiling": 2}
    assert parts["compiling"]["ns"] >= 40e6
    # The wait is in the call and in no part.
    assert sum(part["ns"] for part in parts.values()) + 5e6 <= reply["first_call_ns"]
    assert library.tune is tune, "as it was"
    assert counters.first_call(lambda: 3, lambda: None)[1]["first_call_parts"] == {}
    with pytest.raises(LookupError, match="without being counted"):
        counters.first_call(lambda: library.fails(), lambda: None)


def built_in(name: str) -> list[Counter]:
    """The built-in counter of this name, as one that is asked for, so that it is loaded."""
    return [counter for counter in BUILT_IN if counter.name == name]


class TestLibraries:
    """The functions that the built-in counters name exist, and run when they should."""

    def test_jax_compiles_for_each_new_shape(self) -> None:
        jax = pytest.importorskip("jax")
        double, lengths = jax.jit(lambda x: x * 2 + 1), iter(range(1, 100))
        counter, one, same = built_in("jax_compile"), jax.numpy.ones, jax.numpy.ones(5)
        new = count(lambda: double(one(next(lengths))), counter, ())
        assert new[0]["calls.jax_compile"] >= 1
        assert count(lambda: double(same), counter, ()) == ({"calls.jax_compile": 0}, {})

    def test_torch_compiles_once_for_a_shape(self) -> None:
        torch = pytest.importorskip("torch")

        def fresh() -> Any:
            torch.compiler.reset()
            compiled = torch.compile(lambda x: x * 2 + 1, backend="eager")
            return compiled(torch.ones(3)), compiled(torch.ones(3))

        counter = built_in("torch_compile")
        assert count(fresh, counter, ())[0]["calls.torch_compile"] == 1
        compiled, held = torch.compile(lambda x: x * 2 + 1, backend="eager"), torch.ones(3)
        steady = count(lambda: compiled(held), counter, ())
        assert steady == ({"calls.torch_compile": 0}, {})
        # Operators are not counted in a process that compiles; other tests count some.
        torch.compiler.reset()

    @pytest.mark.skipif(not support.installed("triton"), reason="triton is not installed")
    def test_triton_has_what_is_counted(self) -> None:
        for name in ("triton_autotune", "triton_compile"):
            assert count(lambda: None, built_in(name), ()) == ({f"calls.{name}": 0}, {})
