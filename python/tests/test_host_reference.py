"""The reference of host time: an entry a sample, and none where no host time is reported."""

from __future__ import annotations

import gc
from unittest import mock

import pytest

from regatta_worker.clock import reference, timing

PLAN = timing.Plan(0, samples=3, min_samples=3, budget_ms=0, cold=False)


class TestEachSample:
    def test_the_operations_run_once_untimed_and_then_in_each(self) -> None:
        done: list[bool] = []
        host = reference.HostReference(lambda: done.append(gc.isenabled()))
        assert (len(done), host.ns) == (1, [])
        host.take()
        host.take()
        assert done[1:] == [False, False], "nothing is collected in the time"
        assert gc.isenabled()
        assert len(host.ns) == 2 and min(host.ns) > 0

    def test_collection_stays_as_it_was(self) -> None:
        host = reference.HostReference(lambda: None)
        gc.disable()
        try:
            host.take()
            assert not gc.isenabled()
        finally:
            gc.enable()

    def test_the_device_is_done_after_each(self) -> None:
        trace: list[str] = []
        host = reference.HostReference(lambda: trace.append("work"), lambda: trace.append("wait"))
        host.take()
        assert trace == ["work", "wait"] * 2

    def test_of_torch(self) -> None:
        torch = pytest.importorskip("torch")
        host = reference.torch_reference()
        with mock.patch.object(torch, "add", wraps=torch.add) as add:
            other = reference.torch_reference()
            other.take()
        assert add.call_count == 2 * reference.OPERATIONS
        assert all(argument.device.type == "cpu" for argument in add.call_args.args)
        before = len(gc.get_objects())
        host.take()
        assert len(gc.get_objects()) <= before, "no result outlives the reference"
        assert len(host.ns) == 1 and host.ns[0] > 0


class TestByTheWall:
    def test_after_each_sample_once_the_result_is_there(self) -> None:
        trace: list[str] = []
        host = reference.HostReference(lambda: trace.append("reference"))
        gpu = mock.Mock()
        gpu.clock_mhz.return_value = 1980.0
        gpu.state.return_value = {}
        measured = timing.measure_wall(
            lambda: trace.append("call"),
            lambda result: trace.append("wait"),
            PLAN,
            lambda: None,
            gpu=gpu,
            host=host,
        )
        assert trace == ["reference"] + ["call", "wait", "reference"] * 3
        assert len(measured["host_reference_ns"]) == len(measured["host_ns"]) == 3
        assert min(measured["host_reference_ns"]) > 0

    def test_none_where_host_and_device_are_one(self) -> None:
        host = reference.HostReference(lambda: None)
        measured = timing.measure_wall(
            lambda: None, lambda result: None, PLAN, lambda: None, host=host
        )
        assert measured["host_ns"] == []
        assert "host_reference_ns" not in measured
