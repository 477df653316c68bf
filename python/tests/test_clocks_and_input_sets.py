"""The gated clock changes the inputs between samples, keeps what the last call gave, and counts
no memory of the sets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from regatta_worker.clock import probe, timing
from regatta_worker.problem.input_sets import Inputs

PLAN = timing.Plan(0, samples=3, min_samples=3, budget_ms=0, cold=False)


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


@pytest.fixture
def clock(library: Any, monkeypatch: pytest.MonkeyPatch) -> probe.Probe:
    monkeypatch.setattr(timing, "reset_peak_bytes", lambda: None)
    monkeypatch.setattr(timing, "requested_bytes", lambda when="current": 5000)
    return probe.Probe("fake")


def test_on_a_blocked_stream(clock: probe.Probe) -> None:
    inputs = Changing()
    measured = timing.measure_blocked(inputs.call, PLAN, clock, inputs)
    assert inputs.trace == ["changed", "called", "changed", "called", "last", "called"]
    assert inputs.kept == [6]
    assert len(measured["host_reference_ns"]) == 3 and min(measured["host_reference_ns"]) > 0
    assert measured["peak_bytes"] == 5000 - 1000


def test_a_graphs_results_are_where_it_was_captured(
    clock: probe.Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs, results = Changing(), (torch.zeros(1),)
    graph = timing.Captured(lambda: inputs.trace.append("replayed"), results, held_bytes=64)
    monkeypatch.setattr(timing, "captured", lambda call: graph)
    monkeypatch.setattr(timing, "stream_clock", lambda: clock)
    plan, gpu = timing.Plan(0, 3, 3, 0, cold=False, graph=True), SimpleNamespace(state=dict)
    measured = timing.measure_cuda(lambda: None, plan, gpu, inputs)  # type: ignore[arg-type]
    # Once before the first sample: the graph's own warm-up.
    timed = ["changed", "replayed", "changed", "replayed", "last", "replayed"]
    assert inputs.trace == ["replayed", *timed]
    assert inputs.kept == [results]
    assert measured["graph"]
    assert measured["peak_bytes"] == 5000 - 1000 - 64
