"""Projections over two ranks, for real on the CPU: results, samples, lost and hung ranks."""

import itertools
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import support

pytest.importorskip("torch")


import torch

from regatta_worker.clock.timing import Plan
from regatta_worker.libraries.sequence_parallel import LIMIT_VARIABLE, slowest
from regatta_worker.problem.input_sets import Inputs
from regatta_worker.problem.projection import Geometry, Projection, power_of_two
from regatta_worker.protocol.channel import Failed
from regatta_worker.ranks import sequence_parallel as one_rank
from regatta_worker.ranks.processes import Agreement
from regatta_worker.ranks.sequence_parallel_variants import Operator

KINDS = ("all-gather", "reduce-scatter")
TOLERANCE = {"f32": 5e-6, "f16": 2e-3, "bf16": 1e-2}
HUNG_AFTER_S = "20"
"""A rank that is only slow, on a machine that is busy, must not be taken for hung."""


def layer(kind: str, ranks: int = 2, **axes: Any) -> dict[str, Any]:
    return axes | {"projection": {"kind": kind, "hidden": 40, "ranks": ranks}}


def children(pid: int) -> list[int]:
    """Processes that `pid` has started, oldest first."""
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def parsed(kind: str, **axes: Any) -> Projection:
    return Projection.from_wire(support.wire(**layer(kind, **axes)))


class TestRows:
    def test_nonsense_is_malformed(self) -> None:
        for bad in ({"kind": "scatter"}, {"ranks": 5}, {"ranks": 0}, {"hidden": None}):
            wire = support.wire(**layer("all-gather"))
            wire["projection"] |= bad
            with pytest.raises(Failed, match="malformed projection"):
                Projection.from_wire(wire)

    def test_padding_is_more_rows_of_which_none_counts(self) -> None:
        assert [power_of_two(n) for n in (1, 2, 3, 24, 32)] == [1, 2, 4, 32, 32]
        gathered = Geometry(parsed("all-gather"), 1, pad=True)
        assert gathered.padded(20) == 32
        assert gathered.activation_span == (24 * 40, 32)
        assert gathered.counted_rows(20) == [(0, 20), (24, 44)]
        scattered = Geometry(parsed("reduce-scatter"), 1, pad=True)
        assert scattered.activation_span == (48 * 64, 64)
        assert scattered.counted_rows(20) == [(32, 52)]
        plain = Geometry(parsed("reduce-scatter"), 1, pad=False)
        assert plain.counted_rows(20) == [(20, 40)]


class TestOneAnswerOfMany:
    def test_the_slowest_rank_is_the_sample(self) -> None:
        fast: dict[str, Any] = {
            "device_ns": [3.0, 9.0],
            "host_ns": [1.0, 2.0],
            "host_reference_ns": [7.0, 8.0],
        }
        fast |= {"clock_mhz": [1980.0, 1980.0], "state": {"sm_mhz": 1980}}
        slow: dict[str, Any] = {
            "device_ns": [5.0, 4.0],
            "host_ns": [0.5, 3.0],
            "host_reference_ns": [9.0, 6.0],
        }
        slow |= {"clock_mhz": [1400.0, 1980.0], "state": {"throttle_bits": 4}, "synchronised": True}
        found = slowest([fast, slow])
        assert found["device_ns"] == [5.0, 9.0]
        assert found["host_ns"] == [1.0, 3.0]
        assert found["host_reference_ns"] == [7.0, 6.0], "of the rank whose host time it is"
        assert found["clock_mhz"] == [1400.0, 1980.0]
        assert found["state"]["throttle_bits"] == 4
        assert found["synchronised"]
        with pytest.raises(Failed, match="different numbers of samples"):
            slowest([fast, fast | {"device_ns": [1.0]}])

    def test_what_any_rank_computed_wrongly_is_wrong(self) -> None:
        def reply(seed: int, error: float, sets: int) -> dict[str, Any]:
            errors = {"out": {"relative_l2": error, "max_abs": 1.0}}
            counted = {"input_sets": sets} | ({"input_sets_reason": "short"} if sets == 1 else {})
            checked = {"seed": seed, "errors": errors, "probes": {"out": [error]}}
            return {"device_ns": [1.0], "host_ns": []} | counted | {"checked": checked}

        found = slowest([reply(43, 0.0, 4), reply(43, 0.7, 1)])
        assert found["checked"]["errors"]["out"]["relative_l2"] == 0.7
        assert found["checked"]["probes"]["out"] == [0.0], "of rank 0"
        assert (found["input_sets"], found["input_sets_reason"]) == (1, "short")
        with pytest.raises(Failed, match="different seeds"):
            slowest([reply(43, 0.0, 3), reply(42, 0.0, 3)])


def test_rank_0_alone_says_how_many_samples(tmp_path: Path) -> None:
    Agreement.create(tmp_path / "agreement", 2)

    def samples(rank: int) -> int:
        agreement = Agreement(tmp_path / "agreement", rank, 2, 60.0)
        plan = Plan(0, 9, 2, budget_ms=3.5, cold=False, agreed=agreement.decided)
        # A second passes between looks at rank 1's clock: its own budget is spent at once.
        ticks = itertools.count(0, 1 + 999 * rank)
        return len(list(plan.rounds(Inputs(), lambda: next(ticks) / 1e3)))

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(samples, range(2))) == [5, 5]


@pytest.mark.parametrize("params", [{}, {"lengths": 2}])
def test_a_rank_that_computes_its_last_call_alone_is_wrong(
    params: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, a_call = support.PLAN | {"warmup": 0, "samples": 6, "min_samples": 6}, len(params) + 1

    def zeros(name: str, of: Projection, weight: torch.Tensor) -> Operator:
        calls = itertools.count()
        return Operator(lambda x: x @ weight * (next(calls) // a_call in (0, 6)))

    monkeypatch.setattr(one_rank, "operator", zeros)
    monkeypatch.setattr(one_rank, "_end_with_parent", lambda: None)
    Agreement.create(tmp_path / "agreement", 1)
    limits = dict.fromkeys(("meeting_limit_s", "collective_limit_s"), 60.0)
    request = support.request("gloo", params, **layer("all-gather", ranks=1))
    rank = one_rank.Rank(0)
    try:
        prepared = rank.prepare(request | {"group": {"folder": tmp_path, "ranks": 1, **limits}})
        support.right(prepared, TOLERANCE["f32"])
        checked = rank.measure(plan)["checked"]
    finally:
        torch.distributed.destroy_process_group()
    assert checked["errors"]["out"]["relative_l2"] > 0.5
    assert 1 <= checked["call"] < plan["samples"]


class TestConversation(support.Conversing):
    LIBRARY = "sequence_parallel"

    def prepare(self, kind: str, params: Any = None, dtype: str = "f32", **axes: Any) -> Any:
        reply = self.worker.prepare("gloo", params, **layer(kind, dtype=dtype, **axes))
        support.right(reply, TOLERANCE[dtype])
        return reply

    def test_hello(self) -> None:
        hello = self.worker.hello
        assert hello["type"] == "hello", hello
        assert "gpus" not in hello
        for variant in hello["variants"]:
            assert variant["projections"] == list(KINDS)

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("params", [{}, {"lengths": 3}, {"lengths": 3, "pad": "pow2"}])
    def test_two_ranks_are_right(self, kind: str, params: dict[str, Any]) -> None:
        # As many calls as there are lengths for.
        plan = support.PLAN | {"warmup": 0, "samples": 2, "min_samples": 2}
        for dtype, tolerance in TOLERANCE.items():
            reply = self.prepare(kind, params, dtype)
            assert reply.get("problems", 1) == params.get("lengths", 1)
            measured = self.worker.ask("measure", **plan)
            if not params:
                support.right_after_timing(measured, tolerance, reply)
                continue
            checked = measured["checked"]
            assert checked["probes"] == {}, "of other lengths than the problem's"
            assert checked["seed"] == support.SEED + 1
            assert checked["errors"]["out"]["relative_l2"] < tolerance

    def test_samples_and_census(self) -> None:
        counter = {"name": "gathers", "functions": ["torch.distributed:all_gather_into_tensor"]}
        request = support.request("gloo", sets=1, **layer("all-gather"))
        assert self.worker.ask("prepare", **request, counters=[counter])["type"] == "prepared"
        measured = self.worker.ask("measure", **support.PLAN | {"cache": "cold"})
        assert len(measured["device_ns"]) == 3, measured
        # Rank 0's clock alone says when the budget is spent.
        spent = self.worker.ask("measure", **support.PLAN | {"samples": 5, "min_samples": 2})
        assert len(spent["device_ns"]) == 2, spent
        census = self.worker.ask("census")
        assert census["launches"] == []
        assert census["counts"]["calls.gathers"] == 1, "in as many calls on each rank"

    def test_lengths_run_out_in_words(self) -> None:
        self.prepare("all-gather", {"lengths": 1}, batch=1, seq_q=8)
        self.refused(self.worker.ask("measure", **support.PLAN), "all have been made", "failed")
        self.prepare("all-gather", batch=1, seq_q=8)

    def test_what_cannot_run_here_is_unsupported(self) -> None:
        for variant in ("nccl", "symm-mem", "xformers"):
            reply = self.worker.prepare(variant, **layer("all-gather"))
            self.refused(reply, "needs a GPU for each rank")
        self.prepare("all-gather", {"start": "queued"})
        self.refused(self.worker.ask("measure", **support.PLAN), "no GPU")

    def test_another_number_of_ranks(self) -> None:
        for ranks in (1, 2):
            reply = self.worker.prepare("gloo", **layer("reduce-scatter", ranks=ranks))
            support.right(reply, TOLERANCE["f32"])
            assert len(children(self.worker.pid)) == ranks


class TestLostRanks:
    def setup_method(self) -> None:
        os.environ[LIMIT_VARIABLE] = HUNG_AFTER_S
        self.worker = support.StartedWorker("sequence_parallel")
        del os.environ[LIMIT_VARIABLE]
        assert self.worker.hello["type"] == "hello"
        self.prepare()

    def prepare(self) -> None:
        reply = self.worker.prepare("gloo", **layer("all-gather"))
        assert reply["type"] == "prepared", reply

    def ranks(self) -> list[int]:
        return children(self.worker.pid)

    @pytest.mark.parametrize(
        ("number", "words"),
        [
            (signal.SIGKILL, ["rank 1 was ended by SIGKILL during `measure`"]),
            (signal.SIGSTOP, ["rank 1 did not come", "rank 1 did not answer `measure`"]),
        ],
    )
    def test_a_rank_that_dies_or_hangs_costs_its_case(
        self, number: signal.Signals, words: list[str]
    ) -> None:
        os.kill(self.ranks()[1], number)
        reply = self.worker.ask("measure", **support.PLAN)
        assert reply["type"] == "failed", reply
        assert all(part in reply["reason"] for part in words)
        assert self.ranks() == []
        assert "no case" in self.worker.ask("measure", **support.PLAN)["reason"]
        self.prepare()
        assert self.worker.ask("shutdown")["type"] == "bye"
        assert self.worker.exit_status() == 0

    def test_ranks_do_not_outlive_the_worker(self) -> None:
        ranks = self.ranks()
        os.kill(ranks[0], signal.SIGSTOP)
        os.kill(self.worker.pid, signal.SIGKILL)
        assert self.worker.exit_status() == -signal.SIGKILL
        deadline = time.monotonic() + support.REPLY_LIMIT_S
        while any(map(alive, ranks)) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not list(filter(alive, ranks))


def alive(pid: int) -> bool:
    """True if a process runs; one that has ended and waits to be collected does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")
