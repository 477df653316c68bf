"""The Python side of hardware counters, with a library that gives a census and counts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from regatta_worker.census import instructions
from regatta_worker.census.launches import CensusError
from regatta_worker.protocol.channel import Relay, Unsupported
from regatta_worker.serving import Session

EXECUTED = "sm__inst_executed.sum"
LAUNCHED = {
    "dropped": 0,
    "operations": [
        {"kind": "copy"},
        {"kind": "kernel", "name": "flash"},
        {"kind": "kernel", "name": "combine"},
    ],
}


def counted(library: Any, kernels: Any, dropped: int = 0) -> list[dict[str, Any]]:
    """What is counted of three calls by a probe that gives these counts."""
    library.texts["census_end"] = LAUNCHED
    library.texts["counters_end"] = {"metrics": [EXECUTED], "kernels": kernels, "dropped": dropped}
    return instructions.count_instructions(lambda: None, lambda result: None, [EXECUTED])


def test_kernels_have_the_names_of_the_census_call_by_call(library: Any) -> None:
    calls = counted(library, [[600], [7], [600], [7], [601], [None]])
    assert len(calls) == instructions.COUNTED_CALLS
    flash, combine = calls[2]["kernels"]
    assert flash == {"name": "flash", "counts": {EXECUTED: 601}}
    assert combine == {"name": "combine", "counts": {}}, "unknown is not 0"
    assert library.trace.index("census_end") < library.trace.index("counters_begin")


@pytest.mark.parametrize(
    ("kernels", "dropped", "fails", "words"),
    [
        (5, 0, None, "6 kernels were expected"),
        (6, 2, None, "6 kernels were expected"),
        (0, 0, "counters_begin", "words of the library"),
    ],
)
def test_a_counting_that_is_refused_or_of_other_kernels_says_why(
    library: Any, kernels: int, dropped: int, fails: str | None, words: str
) -> None:
    library.fails = fails
    with pytest.raises(CensusError, match=words):
        counted(library, [[1.0]] * kernels, dropped)


class Case:
    """A worker with a case, as `Session` asks it."""

    def call(self) -> None:
        pass

    def census(self) -> dict[str, Any]:
        return {"launches": [], "counts": {}}


class Counts(Case):
    def counted(self, metrics: list[str]) -> list[dict[str, Any]]:
        return [{"kernels": [{"name": "flash", "counts": dict.fromkeys(metrics, 1.0)}]}]


class Refuses(Case):
    def counted(self, metrics: list[str]) -> list[dict[str, Any]]:
        raise Unsupported("this device is none")


class Ranks(Case, Relay):
    pass


def answer(worker: Any, **request: Any) -> dict[str, Any]:
    session = Session(lambda: worker)
    session._worker = worker
    return session.answer(json.dumps({"id": 1, "type": "census", **request}).encode())


@pytest.mark.parametrize("times_only", [False, True])
def test_counters_are_read_where_they_are_asked_for(times_only: bool) -> None:
    found = answer(Counts(), metrics=[EXECUTED], times_only=times_only)
    assert found["counted"][0]["kernels"][0]["counts"] == {EXECUTED: 1.0}
    assert "counted" not in answer(Counts(), times_only=times_only)


@pytest.mark.parametrize(
    ("worker", "why"),
    [
        (Case(), "reads no hardware counters"),
        (Refuses(), "this device is none"),
        (Ranks(), "several processes"),
    ],
)
def test_why_they_are_not_is_said(worker: Any, why: str) -> None:
    found = answer(worker, metrics=[EXECUTED])
    assert why in found["uncounted"]["instructions"]
    assert "counted" not in found
