"""Library `sequence_parallel`: projections whose rows are spread over several GPUs.

The harness talks to this process, which has no device and makes no calls. It starts the ranks, each
a worker of the protocol, forwards each request to all of them, and combines their replies into one:
the times of the slowest rank, the errors of the worst, probes and structure of rank 0. If a rank
dies or hangs, all ranks are ended, since the others would wait for it inside a collective for ever.
The case then fails with a reason, and the next case starts new ranks.
"""

from __future__ import annotations

import atexit
import json
import os
import selectors
import signal
import time
from typing import Any

from regatta_worker.problem.input_sets import drawn_first
from regatta_worker.problem.projection import Projection
from regatta_worker.problem.reference import worst
from regatta_worker.protocol.channel import (
    PROTOCOL_VERSION,
    Absent,
    Failed,
    Message,
    Unsupported,
    required,
)
from regatta_worker.ranks.processes import Agreement, SharedFolder, WorkerProcess

NAME = "sequence_parallel"
ON_THE_CPU = "gloo"
ENVELOPE = ("id", "type", "protocol")

LIMIT_VARIABLE = "REGATTA_RANK_LIMIT_S"
LIMIT_S = 100.0
"""The time limit of ranks for one request, unless the variable says otherwise; always for
`hello`, in which they load their library. Where a case has ranks started, loading is part of
its `prepare`, and what it took is taken off. So all of it stays below the harness's own limit
for a request (`timeout_s`, 120 unless a suite says otherwise), which would end everything
and could not say which rank it was."""

MEETING_SHARE, COLLECTIVE_SHARE = 0.8, 0.9
"""The shares of that limit that a rank waits for another in a meeting and a collective. Less than
all, so that it says who did not come before everything is ended; and first in a
meeting, which knows who that was."""

GRACE_S = 5.0
"""The time that the others get once one rank has failed: they may be waiting for it."""


class SequenceParallelWorker:
    """The ranks of a case, seen as one worker. The first is started for `hello`, the others for a
    case."""

    def __init__(self) -> None:
        self._ranks: list[WorkerProcess] = []
        self._folder: SharedFolder | None = None
        """The folder that the ranks of a group share; None without a group."""
        self._gpus = 0
        self._requests = 0
        self._limit_s = float(os.environ.get(LIMIT_VARIABLE, LIMIT_S))
        atexit.register(self._end)

    # The requests.

    def hello(self) -> Message:
        """The hello of rank 0: all ranks are taken to be alike."""
        if not self._ranks:
            self._start(1)
        said = self._ask("hello", LIMIT_S, protocol=PROTOCOL_VERSION)[0]
        if "absent" in said:
            raise Absent(said["absent"])
        self._gpus = said.pop("gpus")
        return said

    def prepare(self, request: Message) -> Message:
        """Has the ranks up that the case needs, and the case prepared on each."""
        problem = Projection.from_wire(required(request, "problem"))
        self._refuse(required(request, "variant"), problem.ranks)
        whole_s, begin = max(LIMIT_S, self._limit_s), time.monotonic()
        group = self._group(problem.ranks)
        remaining_s = min(self._limit_s, whole_s - (time.monotonic() - begin))
        replies = self._ask("prepare", remaining_s, **_body(request), group=group)
        return replies[0] | {
            "errors": {
                name: worst(*(reply["errors"][name] for reply in replies))
                for name in replies[0]["errors"]
            },
            "first_call_ns": max(reply["first_call_ns"] for reply in replies),
        }

    def measure(self, request: Message) -> Message:
        self._prepared()
        return slowest(self._ask("measure", **_body(request)))

    def census(self) -> Message:
        self._prepared()
        return self._ask("census")[0]

    def counted(self, metrics: list[str]) -> list[Message]:
        raise Unsupported(
            "several processes make this call together, and a kernel that waits for another "
            "process cannot be run again for each pass"
        )

    def release(self) -> None:
        """Drops the case on every rank; the ranks stay."""
        if self._folder:
            self._ask("release")

    def _refuse(self, variant: str, ranks: int) -> None:
        if variant == ON_THE_CPU:
            if self._gpus:
                raise Unsupported("gloo is for machines without a GPU; here `nccl` is its like")
        elif self._gpus == 0:
            raise Unsupported(f"{variant} needs a GPU for each rank, and torch sees none here")
        elif self._gpus < ranks:
            there = "there is 1" if self._gpus == 1 else f"there are {self._gpus}"
            raise Unsupported(f"{ranks} ranks need {ranks} GPUs, {there}")

    def _prepared(self) -> None:
        if not self._folder:
            raise Failed("no case is prepared")

    # The ranks.

    def _start(self, ranks: int) -> None:
        for rank in range(len(self._ranks), ranks):
            self._ranks.append(WorkerProcess("--library", NAME, "--rank", str(rank)))

    def _group(self, ranks: int) -> Message:
        """Starts `ranks` ranks, and returns what each needs to form a group with the others."""
        if self._folder and len(self._ranks) != ranks:
            # A process joins one group in its life: libraries keep state of it.
            self._end()
        if not self._folder:
            self._start(ranks)
            self._ask("hello", LIMIT_S, protocol=PROTOCOL_VERSION)
            self._folder = SharedFolder()
            Agreement.create(self._folder.path / "agreement", ranks)
        return {
            "folder": str(self._folder.path),
            "ranks": ranks,
            "meeting_limit_s": MEETING_SHARE * self._limit_s,
            "collective_limit_s": COLLECTIVE_SHARE * self._limit_s,
            "first_set": drawn_first(),
        }

    def _ask(self, kind: str, limit_s: float | None = None, **fields: Any) -> list[Message]:
        """The bodies of all ranks' replies to one request.

        Raises Unsupported where all say so, and Failed, with all ranks ended, where one says so,
        has ended or did not answer in time: what broke on the way may have left the ranks at
        different points.
        """
        limit_s = self._limit_s if limit_s is None else limit_s
        replies, broken = self._replies(kind, limit_s, fields)
        if not broken and {reply["type"] for reply in replies.values()} == {"unsupported"}:
            raise Unsupported(replies[0]["reason"])
        several = broken or len(replies) > 1
        reasons = [
            f"rank {rank}: {reply['reason']}" if several else str(reply["reason"])
            for rank, reply in sorted(replies.items())
            if "reason" in reply
        ][:1]
        if broken or reasons:
            self._end()
            words = [broken, *(reasons or ["all ranks were ended"])] if broken else reasons
            raise Failed("; ".join(words))
        return [_body(replies[rank]) for rank in range(len(replies))]

    def _replies(
        self, kind: str, limit_s: float, fields: Message
    ) -> tuple[dict[int, Message], str]:
        """The answer of each rank; and the failure, if one has ended or is silent."""
        self._requests += 1
        line = json.dumps({"id": self._requests, "type": kind, **fields}).encode() + b"\n"
        replies: dict[int, Message] = {}
        deadline = time.monotonic() + limit_s
        with selectors.DefaultSelector() as waiting:
            for rank, process in enumerate(self._ranks):
                process.write(line)
                waiting.register(process.replies, selectors.EVENT_READ, rank)
            while len(replies) < len(self._ranks):
                ready = waiting.select(max(0.0, deadline - time.monotonic()))
                if not ready:
                    silent = [rank for rank in range(len(self._ranks)) if rank not in replies]
                    names = ", ".join(f"rank {rank}" for rank in silent)
                    return replies, f"{names} did not answer `{kind}` within {limit_s:.0f} s"
                for rank in (key.data for key, _ in ready):
                    process = self._ranks[rank]
                    text = process.replies.readline()
                    if not text:
                        # The descriptors are closed a moment before it can be waited for.
                        code = process.end(GRACE_S)
                        how = f"ended with status {code}"
                        if code < 0:
                            how = f"was ended by {signal.Signals(-code).name}"
                        del self._ranks[rank]
                        return replies, f"rank {rank} {how} during `{kind}`"
                    replies[rank] = json.loads(text)
                    waiting.unregister(process.replies)
                    if "reason" in replies[rank]:
                        deadline = min(deadline, time.monotonic() + GRACE_S)
        return replies, ""

    def _end(self) -> None:
        """Ends every rank; the next case starts others."""
        for process in self._ranks:
            process.end()
        self._ranks = []
        if self._folder:
            self._folder.remove()
        self._folder = None


def _body(message: Message) -> Message:
    """A request or reply without what belongs to its channel."""
    return {key: value for key, value in message.items() if key not in ENVELOPE}


def slowest(replies: list[Message]) -> Message:
    """One `measured` of all ranks': a sample is the time of the slowest rank in it."""
    counts = {len(reply["device_ns"]) for reply in replies}
    if len(counts) != 1:
        raise Failed(f"the ranks took different numbers of samples: {sorted(counts)}")
    measured = dict(replies[0])
    for name, pick in (("device_ns", max), ("host_ns", max), ("clock_mhz", min)):
        if all(name in reply for reply in replies):
            of_ranks = zip(*(reply[name] for reply in replies), strict=True)
            measured[name] = list(map(pick, of_ranks))
    if all("host_reference_ns" in reply for reply in replies):
        # The references of the rank whose host time it is.
        both = (zip(reply["host_ns"], reply["host_reference_ns"], strict=True) for reply in replies)
        measured["host_reference_ns"] = [max(ranks)[1] for ranks in zip(*both, strict=True)]
    if all("peak_bytes" in reply for reply in replies):
        measured["peak_bytes"] = max(reply["peak_bytes"] for reply in replies)
    if any(reply.get("synchronised") for reply in replies):
        measured["synchronised"] = True
    if all("checked" in reply for reply in replies):
        measured |= _checked(replies)
    if all("state" in reply for reply in replies):
        # The state of the device with the most against it: the slowest rank may be any.
        measured["state"] = max(
            (reply["state"] for reply in replies),
            key=lambda state: (state.get("throttle_bits", 0), state.get("other_processes", 0)),
        )
    return measured


def _checked(replies: list[Message]) -> Message:
    """The check of the calls on any rank: errors of the worst, probes of rank 0."""
    if len(seeds := {reply["checked"]["seed"] for reply in replies}) != 1:
        raise Failed(f"the ranks ended on inputs of different seeds: {sorted(seeds)}")
    fewest = min(replies, key=lambda reply: reply["input_sets"])
    found = worst(*(reply["checked"]["errors"]["out"] for reply in replies))
    of = next(reply["checked"] for reply in replies if reply["checked"]["errors"]["out"] is found)
    sets = {key: fewest[key] for key in ("input_sets", "input_sets_reason") if key in fewest}
    return sets | {"checked": of | {"probes": replies[0]["checked"]["probes"]}}


WORKER = SequenceParallelWorker
