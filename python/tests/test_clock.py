"""The GPU clock's Python side, with a library that notes what it is asked; and the reference of
host time, an entry a sample."""

import functools
import gc
import math
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from regatta_worker.clock import probe, timing
from regatta_worker.problem.input_sets import Inputs

PLAN = timing.Plan(0, samples=3, min_samples=3, budget_ms=0, cold=False)


def taken(*samples: probe.Sample) -> dict[str, Any]:
    """The members of `measured` for these samples."""
    plan, rest = timing.Plan(0, len(samples), len(samples), 0, cold=False), iter(samples)
    return timing.take_samples(plan, Inputs(), lambda keep: next(rest))


class TestSample:
    def test_the_call_stands_between_begin_and_end(self, library: Any) -> None:
        clock = probe.Probe("fake")
        sample = clock.sample(True, lambda: library.trace.append("the call"))
        assert library.trace == ["open", "sample_begin", "the call", "sample_end"]
        assert (sample.device_ns, sample.clock_mhz) == (5000.0, 1980.0)
        assert sample.host_ns and sample.host_ns > 0
        library.figures["sample_end"] = (5000.0, 0.0, 1980.0, probe.SYNCHRONISED)
        forced = clock.sample(True, lambda: None)
        assert "synchronised" not in taken(sample)
        assert taken(sample, forced)["synchronised"]

    def test_a_call_that_fails_is_cancelled(self, library: Any) -> None:
        with pytest.raises(ZeroDivisionError):
            probe.Probe("fake").sample(True, lambda: 1 / 0)
        assert library.trace[-2:] == ["sample_begin", "sample_cancel"]

    @pytest.mark.parametrize("fails", ["sample_begin", "sample_end"])
    def test_failures_are_in_the_librarys_words(self, library: Any, fails: str) -> None:
        clock = probe.Probe("fake")
        library.fails = fails
        with pytest.raises(probe.ProbeError, match="words of the library"):
            clock.sample(False, lambda: None)

    def test_a_clock_that_is_not_known_is_left_out(self, library: Any) -> None:
        library.figures["sample_end"] = (5000.0, 0.0, math.nan, 0)
        measured = taken(probe.Probe("fake").sample(True, lambda: None))
        assert "clock_mhz" not in measured and "host_reference_ns" not in measured


class TestOpen:
    def test_one_clock_a_stream(self, library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        first = probe.open_clock(7)
        assert probe.open_clock(7) is first
        assert probe.open_clock(8) is not first
        assert library.trace == ["open", "open"]
        monkeypatch.delenv(probe.VARIABLE)
        assert probe.open_clock(7) is None

    def test_a_clock_that_cannot_be_opened_is_not_tried_again(
        self, library: Any, capsys: pytest.CaptureFixture[str]
    ) -> None:
        library.fails = "open"
        assert probe.open_clock(0) is None
        library.fails = None
        assert probe.open_clock(0) is None
        assert "words of the library" in capsys.readouterr().err
        assert library.trace == ["open"]


class Changing(Inputs):
    """Notes each change and each call."""

    held_bytes = 1000

    def __init__(self) -> None:
        super().__init__()
        self.trace: list[Any] = []

    def change(self, last: bool) -> None:
        super().change(last)
        self.trace.append("last" if last else "changed")

    def call(self) -> int:
        self.trace.append("called")
        return len(self.trace)


class TestOfTorch:
    @pytest.fixture(autouse=True)
    def clock(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("torch")
        # Not before: torch loads libraries of its own.
        request.getfixturevalue("library")
        monkeypatch.setattr(timing, "reset_peak_bytes", lambda: None)
        monkeypatch.setattr(timing, "requested_bytes", lambda when="current": 5000)
        self.inputs = Changing()

    def test_inputs_change_between_samples_and_count_as_no_memory(self) -> None:
        inputs = self.inputs
        sample = functools.partial(probe.Probe("fake").sample, PLAN.cold, inputs.call)
        measured = timing.take_samples(PLAN, inputs, sample, on_torch=True)
        assert inputs.trace == ["changed", "called", "changed", "called", "last", "called"]
        assert inputs.kept == [6]
        assert len(measured["host_reference_ns"]) == 3 and min(measured["host_reference_ns"]) > 0
        assert measured["peak_bytes"] == 5000 - 1000

    def test_a_graphs_results_are_where_it_was_captured(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        inputs, results = self.inputs, ("a result",)
        graph = lambda: inputs.trace.append("replayed"), results, 64
        monkeypatch.setattr(timing, "captured", lambda call: graph)
        monkeypatch.setattr(timing, "stream_clock", lambda: probe.Probe("fake"))
        plan, gpu = timing.Plan(0, 3, 3, 0, cold=False, graph=True), SimpleNamespace(state=dict)
        measured = timing.measure_cuda(lambda: None, plan, gpu, inputs)  # type: ignore[arg-type]
        # Once before the first sample: the graph's own warm-up.
        timed = ["changed", "replayed", "changed", "replayed", "last", "replayed"]
        assert inputs.trace == ["replayed", *timed]
        assert inputs.kept == [results]
        assert measured["graph"]
        assert measured["peak_bytes"] == 5000 - 1000 - 64


class TestReference:
    def test_operations_run_once_untimed_and_then_without_a_collection(self) -> None:
        done: list[bool] = []
        wait = mock.Mock()
        host = timing.HostReference(lambda: done.append(gc.isenabled()), wait)
        host.take()
        host.take()
        assert done == [True, False, False]
        assert wait.call_count == 3
        assert gc.isenabled()
        assert len(host.ns) == 2 and min(host.ns) > 0
        gc.disable()
        try:
            host.take()
            assert not gc.isenabled(), "as it was"
        finally:
            gc.enable()

    def test_of_torch_it_leaves_nothing_behind(self) -> None:
        torch = pytest.importorskip("torch")
        with mock.patch.object(torch, "add", wraps=torch.add) as add:
            host = timing.torch_reference()
            host.take()
        assert add.call_count == 2 * timing.OPERATIONS
        assert all(argument.device.type == "cpu" for argument in add.call_args.args)
        host = timing.torch_reference()
        before = len(gc.get_objects())
        host.take()
        assert len(gc.get_objects()) <= before

    def test_by_the_wall_it_follows_each_sample_and_host_time_alone(self) -> None:
        trace: list[str] = []
        host = timing.HostReference(lambda: trace.append("reference"))
        gpu = mock.Mock(clock_mhz=lambda: 1980.0, state=dict)

        def measured(**given: Any) -> dict[str, Any]:
            call, wait = (lambda: trace.append("call"), lambda result: trace.append("wait"))
            return timing.measure_wall(call, wait, PLAN, lambda: None, host=host, **given)

        found = measured(gpu=gpu)
        assert trace == ["reference"] + ["call", "wait", "reference"] * 3
        assert len(found["host_reference_ns"]) == len(found["host_ns"]) == 3
        assert min(found["host_reference_ns"]) > 0
        without = measured()
        assert without["host_ns"] == [] and "host_reference_ns" not in without
