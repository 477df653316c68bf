"""The launch census and hardware counters, with a library that gives a recording and counts."""

import contextlib
import copy
import json
import os
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

import support
from regatta_worker.case import CaseWorker
from regatta_worker.census import launches
from regatta_worker.census.launches import CensusError, effective_from_grid
from regatta_worker.census.private import CUTLASS_SPLITS
from regatta_worker.clock import probe
from regatta_worker.libraries.sequence_parallel import SequenceParallelWorker
from regatta_worker.problem.arrays import Arrays
from regatta_worker.protocol.channel import Unsupported

COPY: dict[str, Any] = {"kind": "copy", "direction": "HtoD", "bytes": 64, "stream": 7}
KERNEL: dict[str, Any] = {
    "kind": "kernel",
    "name": "fmha_cutlassB",
    "grid": [157, 1, 1],
    "block": [32, 4, 1],
    "cluster": [2, 1, 1],
    "registers": 232,
    "shared_bytes": 53520,
    "local_bytes": 0,
    "stream": 7,
}
SET: dict[str, Any] = {"kind": "set", "bytes": 4, "stream": 7}
RECORDED: dict[str, Any] = {
    "dropped": 0,
    "counts": {"module_loads": 0, "launches": 2},
    "ns": {"launches": 900},
    "operations": [
        COPY | {"start_ns": 2000, "end_ns": 2100},
        KERNEL | {"start_ns": 2500, "end_ns": 4000, "launched_ns": 1900, "launch_ns": 5000},
        SET | {"start_ns": 4100, "end_ns": 4101},
    ],
}

ONCE = ["census_begin", "the call", "census_returned", "waited", "census_end"]


class TestOfACall:
    @pytest.fixture(autouse=True)
    def fake(self, library: Any) -> None:
        self.library = library
        self.records(RECORDED)

    def records(self, recording: dict[str, Any]) -> None:
        self.library.texts["census_end"] = recording

    def call(self) -> str:
        self.library.trace.append("the call")
        return "its result"

    def wait(self, result: str) -> None:
        assert result == "its result"
        self.library.trace.append("waited")

    def test_the_second_of_two_recordings_counts(self) -> None:
        launches.profile_call(self.call, self.wait)
        assert self.library.trace == ONCE * 2

    def test_calls_recorded_as_they_are_timed_tell_what_is_theirs(self) -> None:
        timed = copy.deepcopy(RECORDED) | {"called": 1800, "returned": 1950}
        operations: Any = timed["operations"]
        operations[0]["launched_ns"], operations[2]["launched_ns"] = 1500, 1940
        self.records(timed)

        def sample(call: Any) -> float:
            call()
            return 42.0

        found = launches.record_samples(self.call, sample)
        assert len(found) == launches.RECORDED_CALLS
        assert [each["kind"] for each in found[0]["operations"]] == ["kernel", "set"]
        assert found[0]["calls"] == RECORDED["counts"]
        assert found[0]["time_ns"] == 42.0
        assert "calls" not in launches.record_samples(self.call, sample, waits=True)[0]

    def test_a_third_call_within_ranges_names_operators_and_no_times(self) -> None:
        marked = copy.deepcopy(RECORDED)
        operations: Any = marked["operations"]
        operations[1] |= {"operator": "aten::mm", "start_ns": 7000}

        @contextlib.contextmanager
        def ranges() -> Iterator[None]:
            self.library.trace.append("ranges")
            self.records(marked)
            yield
            self.library.trace.append("no ranges")

        found = launches.profile_call(self.call, self.wait, ranges)
        assert self.library.trace == [*ONCE, *ONCE, "ranges", *ONCE, "no ranges"]
        assert os.environ[launches.NVTX] == "fake"
        operators = [operation.get("operator") for operation in found["activity"]["operations"]]
        assert operators == [None, "aten::mm", None]
        assert found["activity"]["operations"][1]["start_ns"] == 500

        operations[1]["grid"] = [1, 1, 1]
        self.records(RECORDED)
        found = launches.profile_call(self.call, self.wait, ranges)
        operations = [
            operation for operation in found["activity"]["operations"] if "operator" in operation
        ]
        assert operations == [], "another call's, which did something else"

    def test_ranges_that_fail_leave_a_census(self) -> None:
        ranges = mock.Mock(side_effect=RuntimeError("a profiler is on"))
        found = launches.profile_call(self.call, self.wait, ranges)
        assert len(found["launches"]) == 1

    def test_times_count_from_the_first_start_and_a_launch_has_what_its_kernel_takes(self) -> None:
        found = launches.profile_call(self.call, self.wait)
        copy, kernel, fill = found["activity"]["operations"]
        assert copy == COPY | {"start_ns": 0, "end_ns": 100}
        assert (kernel["start_ns"], kernel["launched_ns"]) == (500, -100)
        assert fill == SET | {"start_ns": 2100, "end_ns": 2101}
        assert found["activity"]["calls"]["launches"] == 2
        assert found["activity"]["host_ns"] >= 0
        known = {key: value for key, value in KERNEL.items() if key not in ("kind", "stream")}
        assert found["launches"] == [known]
        assert found["counts"] == {"copies": 1, "memsets": 1}

    def test_no_census_is_in_the_librarys_words(self) -> None:
        self.library.fails = "census_begin"
        with pytest.raises(CensusError, match="words of the library"):
            launches.profile_call(self.call, self.wait)
        assert self.library.trace == ["census_begin"]

    def test_a_call_that_fails_ends_its_recording(self) -> None:
        with pytest.raises(ZeroDivisionError):
            launches.profile_call(lambda: 1 / 0, self.wait)
        assert self.library.trace == ["census_begin", "census_end"]


def test_a_case_whose_launches_are_not_counted_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(probe.VARIABLE, raising=False)
    found = CaseWorker(Arrays.for_numpy(), mock.Mock()).launches(lambda: None)
    assert (found["launches"], found["counts"]) == ([], {}), "and never 0 of them"
    # So begin the reasons that a report names.
    assert found["uncounted"] == {"census": "the census failed: REGATTA_PROBE names no library"}


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
    """The counters of three calls by a probe that gives these counts."""
    library.texts["census_end"] = LAUNCHED
    library.texts["counters_end"] = {"metrics": [EXECUTED], "kernels": kernels, "dropped": dropped}
    return launches.count_instructions(lambda: None, lambda result: None, [EXECUTED])


def test_kernels_have_the_names_of_the_census_call_by_call(library: Any) -> None:
    calls = counted(library, [[600], [7], [600], [7], [601], [None]])
    assert len(calls) == launches.COUNTED_CALLS
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


def worker(**members: Any) -> Any:
    """A worker with a case, as `Session` asks it."""
    census: dict[str, Any] = {"launches": [], "counts": {}}
    members = {"call": lambda self: None, "census": lambda self: dict(census), **members}
    return type("Case", (), members)()


def counts(_: Any, metrics: list[str]) -> list[dict[str, Any]]:
    return [{"kernels": [{"name": "flash", "counts": dict.fromkeys(metrics, 1.0)}]}]


def refuses(_: Any, metrics: list[str]) -> list[dict[str, Any]]:
    raise Unsupported("this device is not one")


def test_counters_are_read_where_they_are_asked_for() -> None:
    found = support.answer(worker(counted=counts), "census", metrics=[EXECUTED])
    assert found["counted"][0]["kernels"][0]["counts"] == {EXECUTED: 1.0}
    assert "counted" not in support.answer(worker(counted=counts), "census")


@pytest.mark.parametrize(
    ("refusing", "why"),
    [
        (worker(), "reads no hardware counters"),
        (worker(counted=refuses), "this device is not one"),
        (worker(counted=SequenceParallelWorker.counted), "several processes"),
    ],
)
def test_why_they_are_not_is_said(refusing: Any, why: str) -> None:
    found = support.answer(refusing, "census", metrics=[EXECUTED])
    assert why in found["uncounted"]["instructions"]
    assert "counted" not in found


RECORDED_RUNS = (
    "baselines/xformers-backward/h200-132sm.jsonl",
    *(
        f"reports/samples/{sample}/run.jsonl"
        for sample in (
            "xformers-0.0.26",
            "xformers-gate",
            "xformers-library",
            "xformers-library-0.0.26",
        )
    ),
)


def recorded_cases() -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Cases of an H200 with their launches, and what their worker said that the splits became."""
    for run in RECORDED_RUNS:
        for line in (support.ROOT / run).read_text().splitlines():
            entry = json.loads(line)
            measured = entry.get("record") or entry.get("outcome", {}).get("measured", {})
            if "case" in entry and "structure" in measured:
                launched = measured["structure"]["launches"]
                yield entry["case"], launched, measured["effective"]


def test_the_grid_of_the_backward_kernel_shows_the_splits() -> None:
    shown = [
        (case, effective_from_grid(launched, CUTLASS_SPLITS).get("num_splits_key"), effective)
        for case, launched, effective in recorded_cases()
    ]
    differ = [row for row in shown if row[1] != row[2].get("num_splits_key")]
    assert not differ
    splits = {(case, value) for case, value, _ in shown}
    # The heuristic, and the bug of xFormers 0.0.26, which passed 1.
    assert {("torch/efficient:s10000,d32,bwd", 157), ("torch/efficient:s10000,d32,bwd", 1)} < splits
    assert ("torch/efficient:h25,s4096,d64,f16,bwd", 64) in splits
    # With FlashAttention-3 in its place nothing splits the keys.
    assert ("xformers/default:h4,s8192,d128,bf16,bwd", None) in splits
    assert len(shown) > 100


def test_kernels_that_differ_show_all_values() -> None:
    launched = [{"name": name, "grid": [size, 4, 1]} for name, size in (("b_f32", 8), ("b_f16", 2))]
    assert effective_from_grid(launched, {"splits": ("b_*", 0)}) == {"splits": "8+2"}
    assert effective_from_grid(launched, {"splits": ("b_*", 1)}) == {"splits": 4}
    assert effective_from_grid(launched, {"splits": ("c_*", 0)}) == {}
