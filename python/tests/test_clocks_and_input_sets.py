"""Each clock changes the inputs between samples, and keeps what the last call gave."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

pytest.importorskip("torch")

import torch

from regatta_worker.clock import probe, timing
from regatta_worker.problem.input_sets import Inputs


class Graph:
    """A CUDA graph on the host: replays run the call again, into the memory of the first."""

    recorded: Any = None
    results: tuple[torch.Tensor, ...] = ()

    def __init__(self) -> None:
        self.replays = 0
        self.calls: list[Any] = []

    def replay(self) -> None:
        self.replays += 1
        for into, value in zip(self.results, Graph.recorded(), strict=True):
            into.copy_(value)


class Requested(dict[str, int]):
    """What the allocator counts, asked for anew each time: the bytes that were requested."""

    def __init__(self, requested: Any) -> None:
        super().__init__()
        self.requested = requested

    def get(self, key: str, default: Any = None) -> Any:
        return self.requested() if key.startswith("requested_bytes.") else default


@contextlib.contextmanager
def without_a_gpu(allocated: Any) -> Any:
    """torch.cuda as the clocks use it, where `allocated()` is what the allocator counts."""

    @contextlib.contextmanager
    def capture(graph: Graph, stream: Any) -> Any:
        calls: list[Any] = []
        graph.calls = calls
        yield

    with mock.patch.multiple(
        torch.cuda,
        Stream=mock.Mock(),
        current_stream=mock.Mock(),
        stream=lambda side: contextlib.nullcontext(),
        CUDAGraph=Graph,
        graph=capture,
        synchronize=mock.Mock(),
        memory_stats=lambda: Requested(allocated),
        reset_peak_memory_stats=mock.Mock(),
    ):
        yield


class TestClocks:
    """Each clock keeps what the last timed call gave, and counts no memory of the sets."""

    def setup_method(self) -> None:
        self.held = 0
        self.made: list[int] = []
        test = self

        class Changing(Inputs):
            held_bytes = 1000

            def change(self, last: bool) -> None:
                super().change(last)
                test.made.append(-1 if last else 0)

        self.inputs = Changing()
        self.plan = timing.Plan(0, samples=3, min_samples=3, budget_ms=0, cold=False)

    def call(self) -> tuple[torch.Tensor, ...]:
        self.made.append(len(self.made))
        return (torch.tensor([float(len(self.made))]),)

    def test_behind_the_gate(self, library: Any) -> None:
        clock = probe.Probe("fake")
        with without_a_gpu(lambda: 5000):
            measured = timing.measure_gated(self.call, self.plan, clock, self.inputs)
            assert torch.cuda.reset_peak_memory_stats.call_count == 3
        assert self.made == [0, 1, 0, 3, -1, 5], "changed, called, changed, ..."
        assert [x.item() for x in self.inputs.kept[0]] == [6.0]
        assert len(self.inputs.kept) == 1
        assert measured["peak_bytes"] == 4000

    def test_by_events(self) -> None:
        event = mock.Mock()
        event.elapsed_time.return_value = 1.0
        gpu: Any = SimpleNamespace(l2_bytes=lambda: 0, clock_mhz=lambda: None)
        made = torch.randint
        with (
            without_a_gpu(lambda: 5000),
            mock.patch("torch.cuda.Event", return_value=event),
            mock.patch("torch.randint", lambda *given, device, **named: made(*given, **named)),
        ):
            measured = timing.measure_events(self.call, self.plan, gpu, self.inputs)
        assert [x.item() for x in self.inputs.kept[0]] == [6.0]
        assert (len(measured["device_ns"]), measured["peak_bytes"]) == (3, 4000)

    def test_a_graphs_results_are_where_it_was_captured(self, library: Any) -> None:
        clock = probe.Probe("fake")
        amounts = iter([100, 164])
        plan = timing.Plan(0, 3, 3, 0, cold=False, graph=True)
        results = (torch.zeros(1),)
        Graph.recorded, Graph.results = self.call, results
        with (
            without_a_gpu(lambda: next(amounts, 5000)),
            mock.patch("regatta_worker.clock.timing.gated_clock", return_value=clock),
        ):
            gpu: Any = SimpleNamespace(state=dict)
            measured = timing.measure_cuda(lambda: results, plan, gpu, self.inputs)
        assert self.inputs.kept[0] is results
        assert results[0].item() == float(len(self.made)), "of the last replay"
        assert measured["peak_bytes"] == 5000 - 1000 - 64
