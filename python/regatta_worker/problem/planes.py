"""Parts of a problem that are computed by themselves: one key-value head of one sequence each.

A plane is attention on its own (its queries, its keys, no others'), so a few of them say
whether a result is that of its inputs, at the cost of a few.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

from regatta_worker.problem.attention import Problem, Sequence

SHARE = 8
"""One plane in so many is checked, and always the first and the last."""


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


def chosen(problem: Problem, length: int | None = None) -> tuple[Plane, ...]:
    """One plane in `SHARE`, the first, the last, and others spread over sequences and heads.

    `length`: of every sequence its first so many rows alone, both of queries and of keys.
    """
    sequences = problem.sequences
    if length is not None:
        sequences = [of._replace(seq_q=length, seq_k=length) for of in sequences]
    count = len(sequences) * problem.kv_heads
    return tuple(
        Plane(
            place // problem.kv_heads,
            sequences[place // problem.kv_heads],
            place % problem.kv_heads,
            problem.heads // problem.kv_heads,
        )
        for place in _spread(count, max(min(2, count), -(-count // SHARE)))
    )


def _spread(count: int, wanted: int) -> list[int]:
    """So many of `count` places, the ends first and then by the golden section.

    Evenly spaced ones would be the same head of each sequence, where their distance is a
    multiple of the heads.
    """
    found = dict.fromkeys((0, count - 1))
    golden = (int(count * ((number + 1) * 0.6180339887498949 % 1.0)) for number in range(count))
    # Rounding may give a place twice: what is missing is taken from the beginning.
    for place in chain(golden, range(count)):
        if len(found) >= wanted:
            break
        found[place] = None
    return sorted(list(found)[:wanted])
