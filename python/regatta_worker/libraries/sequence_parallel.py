"""Library `sequence_parallel`: projections whose rows are spread over several GPUs.

What the harness talks to is this process, which has no device. It starts the ranks, hands
each request on to all of them, and makes one answer of theirs: times are those of the
slowest rank, errors those of the worst, probes and structure those of rank 0.
"""

from __future__ import annotations

import atexit
from typing import Any

from regatta_worker.problem.projection import Projection
from regatta_worker.problem.reference import worst
from regatta_worker.protocol.channel import Absent, Failed, Message, Relay, Unsupported, required
from regatta_worker.ranks.processes import Ranks

NAME = "sequence_parallel"
ON_THE_CPU = "gloo"
ENVELOPE = ("id", "type", "protocol")


class SequenceParallelWorker(Relay):
    """The ranks of a case, seen as one worker."""

    def __init__(self) -> None:
        self._ranks = Ranks(NAME)
        self._gpus = 0
        atexit.register(self._ranks.end)

    def hello(self) -> Message:
        """What rank 0 says of itself: all ranks are taken to be alike."""
        said = _unanimous([self._ranks.introduce()])[0]
        if "absent" in said:
            raise Absent(said["absent"])
        self._gpus = said.pop("gpus")
        return said

    def prepare(self, request: Message) -> Message:
        """Has the ranks up that the case needs, and the case prepared on each."""
        problem = Projection.from_wire(required(request, "problem"))
        self._refuse(required(request, "variant"), problem.ranks)
        group = self._ranks.group(problem.ranks)
        replies = self._ask("prepare", **_body(request), group=group)
        return replies[0] | {
            "errors": {
                name: worst(*(reply["errors"][name] for reply in replies))
                for name in replies[0]["errors"]
            },
            "first_call_ns": max(reply["first_call_ns"] for reply in replies),
        }

    def _refuse(self, variant: str, ranks: int) -> None:
        if variant == ON_THE_CPU:
            if self._gpus:
                raise Unsupported("gloo is for machines without a GPU; here `nccl` is its like")
        elif self._gpus == 0:
            raise Unsupported(f"{variant} needs a GPU for each rank, and torch sees none here")
        elif self._gpus < ranks:
            there = "there is 1" if self._gpus == 1 else f"there are {self._gpus}"
            raise Unsupported(f"{ranks} ranks need {ranks} GPUs, {there}")

    def measure(self, request: Message) -> Message:
        """Samples that all ranks take at once."""
        self._prepared()
        return slowest(self._ask("measure", **_body(request)))

    def census(self) -> Message:
        """What one call does on rank 0."""
        self._prepared()
        return self._ask("census")[0]

    def call(self) -> Any:
        """No call is made in this process."""
        raise Failed("the calls are made by the ranks")

    def release(self) -> None:
        """Drops the case on every rank; the ranks stay."""
        if self._ranks.up:
            self._ask("release")

    def _prepared(self) -> None:
        if not self._ranks.up:
            raise Failed("no case is prepared")

    def _ask(self, kind: str, **fields: Any) -> list[Message]:
        replies = self._ranks.ask(kind, **fields)
        try:
            return _unanimous(replies)
        except Failed:
            # What broke on the way may have left the ranks at different points.
            self._ranks.end()
            raise


def _body(message: Message) -> Message:
    """A request or reply without what belongs to its channel."""
    return {key: value for key, value in message.items() if key not in ENVELOPE}


def _unanimous(replies: list[Message]) -> list[Message]:
    """The replies' bodies; raises what all ranks say, or what one says against the others."""
    kinds = {reply["type"] for reply in replies}
    if kinds == {"unsupported"}:
        raise Unsupported(replies[0]["reason"])
    for rank, reply in enumerate(replies):
        if "reason" in reply:
            where = "" if len(replies) == 1 else f"rank {rank}: "
            raise Failed(f"{where}{reply['reason']}")
    return [_body(reply) for reply in replies]


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
        # Of the rank whose host time it is.
        both = (zip(reply["host_ns"], reply["host_reference_ns"], strict=True) for reply in replies)
        measured["host_reference_ns"] = [max(ranks)[1] for ranks in zip(*both, strict=True)]
    if all("peak_bytes" in reply for reply in replies):
        measured["peak_bytes"] = max(reply["peak_bytes"] for reply in replies)
    if any(reply.get("synchronised") for reply in replies):
        measured["synchronised"] = True
    if all("checked" in reply for reply in replies):
        measured |= _checked(replies)
    if all("state" in reply for reply in replies):
        measured["state"] = _most_disturbed([reply["state"] for reply in replies])
    return measured


def _checked(replies: list[Message]) -> Message:
    """What the calls computed on any rank: errors of the worst, probes of rank 0."""
    if len(seeds := {reply["checked"]["seed"] for reply in replies}) != 1:
        raise Failed(f"the ranks ended on inputs of different seeds: {sorted(seeds)}")
    fewest = min(replies, key=lambda reply: reply["input_sets"])
    found = worst(*(reply["checked"]["errors"]["out"] for reply in replies))
    of = next(reply["checked"] for reply in replies if reply["checked"]["errors"]["out"] is found)
    sets = {key: fewest[key] for key in ("input_sets", "input_sets_reason") if key in fewest}
    return sets | {"checked": of | {"probes": replies[0]["checked"]["probes"]}}


def _most_disturbed(states: list[Message]) -> Message:
    """The state of the device with the most against it: the slowest rank may be any."""
    return max(
        states,
        key=lambda state: (state.get("throttle_bits", 0), state.get("other_processes", 0)),
    )


WORKER = SequenceParallelWorker
