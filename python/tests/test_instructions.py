"""The Python side of hardware counters, with a library that gives a census and counts."""

from __future__ import annotations

import ctypes
import json
import os
from typing import Any
from unittest import mock

import pytest

from regatta_worker.census import instructions
from regatta_worker.census.launches import CensusError
from regatta_worker.clock import probe
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


class FakeLibrary:
    """A probe whose census and whose counting are given."""

    def __init__(self, kernels: list[list[float | None]], dropped: int = 0) -> None:
        self.asked: list[str] = []
        self.refuses = ""
        counted = {"metrics": [EXECUTED], "kernels": kernels, "dropped": dropped}
        self._texts = {
            "census_end": ctypes.c_char_p(json.dumps(LAUNCHED).encode()),
            "counters_end": ctypes.c_char_p(json.dumps(counted).encode()),
        }

    def __getattr__(self, name: str) -> Any:
        name = name.removeprefix("regatta_probe_")

        def function(*arguments: Any) -> Any:
            if name == "last_error":
                return b"performance counters need root"
            self.asked.append(name)
            if name == self.refuses:
                return 1
            if name in self._texts:
                arguments[0]._obj.value = self._texts[name].value
            return 0

        setattr(self, name, function)
        return function


def counted(library: FakeLibrary) -> list[dict[str, Any]]:
    """What is counted of three calls by this library."""
    with (
        mock.patch("ctypes.CDLL", return_value=library),
        mock.patch.dict(os.environ, {probe.VARIABLE: "fake"}),
    ):
        return instructions.of_calls(lambda: None, lambda result: None, [EXECUTED])


class TestOfCalls:
    def test_kernels_have_the_names_of_the_census_call_by_call(self) -> None:
        library = FakeLibrary([[600], [7], [600], [7], [601], [None]])
        calls = counted(library)
        assert len(calls) == instructions.COUNTED_CALLS
        assert [kernel["name"] for kernel in calls[2]["kernels"]] == ["flash", "combine"]
        assert calls[2]["kernels"][0]["counts"] == {EXECUTED: 601}
        assert calls[2]["kernels"][1]["counts"] == {}, "unknown is not 0"
        assert library.asked.index("census_end") < library.asked.index("counters_begin")

    def test_other_kernels_than_the_census_saw_are_not_guessed(self) -> None:
        for number, dropped in ((5, 0), (6, 2)):
            kernels: list[list[float | None]] = [[1.0]] * number
            with pytest.raises(CensusError, match="6 kernels were expected"):
                counted(FakeLibrary(kernels, dropped))

    def test_a_counting_that_is_refused_says_why(self) -> None:
        library = FakeLibrary([])
        library.refuses = "counters_begin"
        with pytest.raises(CensusError, match="need root"):
            counted(library)


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


class TestAsked:
    def answer(self, worker: Any, **request: Any) -> dict[str, Any]:
        session = Session(lambda: worker)
        session._worker = worker
        return session.answer(json.dumps({"id": 1, "type": "census", **request}).encode())

    def test_counters_are_read_where_they_are_asked_for(self) -> None:
        for times_only in (False, True):
            told = self.answer(Counts(), metrics=[EXECUTED], times_only=times_only)
            assert told["counted"][0]["kernels"][0]["counts"] == {EXECUTED: 1.0}
        assert "counted" not in self.answer(Counts())

    def test_why_they_are_not_is_told(self) -> None:
        for worker, why in (
            (Case(), "reads no hardware counters"),
            (Refuses(), "this device is none"),
            (Ranks(), "several processes"),
        ):
            told = self.answer(worker, metrics=[EXECUTED])
            assert why in told["uncounted"]["instructions"]
            assert "counted" not in told
