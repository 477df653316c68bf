"""Calls that the harness times: each on other inputs, and some are checked."""

import itertools
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import support
from regatta_worker.callables import intact, load
from regatta_worker.clock import hooks
from regatta_worker.protocol.channel import Failed

pytestmark = pytest.mark.usefixtures("no_other_framework")

HONEST = support.ROOT / "tests/cheats/honest_numpy.py"


def prepared(function: str) -> Any:
    """A worker that has this function's case."""
    worker: Any = load.open_worker(load.Target("mine", str(HONEST), None, function))
    worker.prepare(support.request(function, layout="bhsd", heads=2, seq_q=33))
    return worker


def test_each_call_has_other_inputs_and_some_are_checked() -> None:
    worker = prepared("own_buffers")
    worker.measure(support.PLAN)
    seen, case, kept = [], worker.case, worker.case.bound

    def bound(*arguments: Any) -> Any:
        seen.append([x.tobytes() for x in arguments])
        return kept(*arguments)

    case.bound = bound
    assert worker.repeat(20, None, False, "change_and_call") == {}
    # Two of the twenty drawn numbers may be one.
    assert len({inputs[place] for inputs in seen for place in range(3)}) > 50
    assert sorted(seen[0][0]) == sorted(seen[19][0]), "turned, and no element is lost"
    worker.repeat(5, None, False, "change")
    assert len(seen) == 20
    (error,) = worker.repeat(0, None, False, "check")["errors"].values()
    assert error["relative_l2"] < 5e-6


def test_a_call_that_leaves_out_work_is_found() -> None:
    worker = prepared("matmul")
    case, kept = worker.case, worker.case.bound
    first, number = kept(*case.arguments), itertools.count()
    case.bound = lambda *arguments: kept(*arguments) if next(number) % 5 == 0 else first.copy()
    worker.repeat(20, None, False, "change_and_call")
    (error,) = worker.repeat(0, None, False, "check")["errors"].values()
    assert error["relative_l2"] > 0.1


def test_calls_on_inputs_that_stay_are_still_made() -> None:
    worker = prepared("matmul")
    before = [x.copy() for x in worker.case.arguments]
    worker.repeat(3, None, False)
    assert all(np.array_equal(a, b) for a, b in zip(before, worker.case.arguments, strict=True))


@pytest.mark.parametrize("install", [sys.setprofile, sys.settrace])
def test_a_hook_that_a_call_leaves_on_is_refused(install: Callable[[Any], None]) -> None:
    before = sys.getprofile(), sys.gettrace()
    install(lambda *_: None)
    with pytest.raises(Failed, match="left a function on"):
        hooks.none_left()
    assert (sys.getprofile(), sys.gettrace()) == before
    hooks.none_left()


class _Object:
    def __call__(self, *arguments: Any) -> Any:
        return arguments


def test_whatever_stands_in_the_place_of_a_part_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    # Other tests import the worker again.
    monkeypatch.setitem(sys.modules, load.__name__, load)
    monkeypatch.setattr(intact, "_known", {})
    intact.note()
    assert intact.replaced(None) == ""
    # As pandas does when it is imported.
    time.tzset()
    assert intact.replaced(None) == ""
    for module, name in ((time, "perf_counter_ns"), (json, "dumps"), (load, "working_thread")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, _Object())
            assert intact.replaced(None) == f"{module.__name__}.{name}"
    code = compile("def working_thread():\n    return ''\n", load.__file__, "exec")
    made: dict[str, Any] = {}
    exec(code, made)
    with monkeypatch.context() as patch:
        patch.setattr(load.working_thread, "__code__", made["working_thread"].__code__)
        assert intact.replaced(None) == "regatta_worker.callables.load.working_thread"
    assert intact.replaced(None) == ""
