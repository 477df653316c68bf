"""Parts of a problem that are computed by themselves: one key-value head of one sequence each.

A plane is attention on its own (its queries, its keys, no others'), so a few of them say
whether a result is that of its inputs, at the cost of a few.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, NamedTuple

from regatta_worker.problem.attention import Problem, Sequence

SHARE = 8
"""One plane in so many of the last timed call is checked, and at least two."""

DRAW = random.SystemRandom()
"""Draws what is checked, after the call: no code under test can know it beforehand."""


class Plane(NamedTuple):
    """A key-value head of a sequence, with the query heads that read it."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls
    """Of the sequence in the batch."""
    sequence: Sequence
    kv_head: int
    group: int
    """Query heads to a key-value head."""

    def problem(self, whole: Problem) -> Problem:
        """The plane as a problem of its own, of one sequence."""
        return replace(
            whole,
            batch=1,
            heads=self.group,
            kv_heads=1,
            seq_q=self.sequence.seq_q,
            seq_k=self.sequence.seq_k,
            layout="bshd",
            varlen=None,
        )

    def rows(self, tensor: str) -> range:
        """Its rows of a tensor of the whole, where all sequences are packed."""
        of = self.sequence
        start, length = (of.k_start, of.seq_k) if _of_keys(tensor) else (of.q_start, of.seq_q)
        return range(start, start + length)

    def heads(self, tensor: str) -> range:
        """Its heads of a tensor of the whole."""
        of_one = 1 if _of_keys(tensor) else self.group
        return range(self.kv_head * of_one, (self.kv_head + 1) * of_one)

    def cut(self, tensor: str, whole: Any) -> Any:
        """Its part `[rows, heads, width]` of a whole tensor, packed or `[batch, seq, ...]`."""
        rows, heads = self.rows(tensor), self.heads(tensor)
        if whole.ndim == 3:
            return whole[rows.start : rows.stop, heads.start : heads.stop]
        return whole[self.index, : len(rows), heads.start : heads.stop]


def _of_keys(tensor: str) -> bool:
    return tensor.removeprefix("d") in ("k", "v")


def drawn(
    problem: Problem, wanted: int | None = None, length: int | None = None
) -> tuple[Plane, ...]:
    """So many planes at random, by default one in `SHARE`.

    `length`: of every sequence its first so many rows alone, both of queries and of keys.
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
