"""Parts of a problem that are computed by themselves: one key-value head of one sequence each.

A plane is attention on its own (its queries, its keys, no others'), so a few of them say
whether a result is that of its inputs, at the cost of a few.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from regatta_worker.problem.attention import Problem, Sequence

SHARE = 8
"""One in `SHARE` planes of the last timed call is checked, and at least two."""

DRAW = random.SystemRandom()
"""Draws what is checked, after the call: no code under test can know it beforehand."""


class Plane(NamedTuple):
    """A key-value head of a sequence, with the query heads that read it."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which is not called
    """The index of the sequence in the batch."""
    sequence: Sequence
    kv_head: int
    group: int
    """Query heads to a key-value head."""
    seed: int = 0
    """That of the inputs of the call."""
    along: float = 0.0
    """By which part of their memory the inputs of the call are rotated."""

    def of_call(self, seed: int, along: float = 0.0) -> Plane:
        """The same plane of the call that has these inputs."""
        return self._replace(seed=seed, along=along)

    def rows(self, tensor: str) -> range:
        """The rows in a tensor of the whole, where all sequences are packed."""
        of = self.sequence
        start, length = (of.k_start, of.seq_k) if _of_keys(tensor) else (of.q_start, of.seq_q)
        return range(start, start + length)

    def heads(self, tensor: str) -> range:
        """The heads in a tensor of the whole."""
        of_one = 1 if _of_keys(tensor) else self.group
        return range(self.kv_head * of_one, (self.kv_head + 1) * of_one)

    def cut(self, tensor: str, whole: Any) -> Any:
        """The part `[rows, heads, width]` of a whole tensor, packed or `[batch, seq, ...]`."""
        rows, heads = self.rows(tensor), self.heads(tensor)
        if whole.ndim == 3:
            return whole[rows.start : rows.stop, heads.start : heads.stop]
        return whole[self.index, : len(rows), heads.start : heads.stop]


Planes = tuple[Plane, ...]


def alike(planes: Planes) -> list[Planes]:
    """The planes by their lengths: those of one length, of whichever call, are computed at once."""
    by_length: dict[tuple[int, int], list[Plane]] = {}
    for plane in planes:
        by_length.setdefault((plane.sequence.seq_q, plane.sequence.seq_k), []).append(plane)
    return [tuple(of_length) for of_length in by_length.values()]


def apart(planes: Planes, tensor: str, joined: Any) -> Iterator[tuple[Plane, Any]]:
    """Each of some alike planes with its heads of a tensor `[rows, heads, width]` of them all."""
    own = len(planes[0].heads(tensor))
    for place, plane in enumerate(planes):
        yield plane, joined[:, place * own : (place + 1) * own]


def problem_of(planes: Planes, whole: Problem) -> Problem:
    """Alike planes as a problem of its own: one sequence, whose key-value heads they are."""
    one = planes[0]
    return replace(
        whole,
        batch=1,
        heads=one.group * len(planes),
        kv_heads=len(planes),
        seq_q=one.sequence.seq_q,
        seq_k=one.sequence.seq_k,
        layout="bshd",
        varlen=None,
    )


def _of_keys(tensor: str) -> bool:
    return tensor.removeprefix("d") in ("k", "v")


def drawn(problem: Problem, wanted: int | None = None, length: int | None = None) -> Planes:
    """`wanted` planes at random, by default one in `SHARE`.

    With a `length`, only the first `length` rows of each sequence, of queries and of keys.
    """
    sequences = problem.sequences
    if length is not None:
        sequences = [of._replace(seq_q=length, seq_k=length) for of in sequences]
    heads, count = problem.kv_heads, len(sequences) * problem.kv_heads
    places = DRAW.sample(range(count), wanted or max(min(2, count), -(-count // SHARE)))
    return tuple(
        Plane(place // heads, sequences[place // heads], place % heads, problem.heads // heads)
        for place in sorted(places)
    )
