"""How processes of one machine come to the same point at the same time.

Each spins on words of shared memory: a message through a pipe or a socket has to wake a
process, which takes longer and not always as long.
"""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path

from regatta_worker.protocol.channel import Failed

WORD = 8
SPINS = 2000
"""Looks before the processor is offered to others: there may be fewer cores than ranks."""


class Agreement:
    """One of several processes that share a file of words: the decision, then arrivals by rank."""

    def __init__(self, path: Path, rank: int, ranks: int, limit_s: float) -> None:
        self._rank, self._ranks, self._limit_s = rank, ranks, limit_s
        descriptor = os.open(path, os.O_RDWR)
        try:
            self._words = memoryview(mmap.mmap(descriptor, WORD * (1 + ranks))).cast("Q")
        finally:
            os.close(descriptor)
        self._met = 0
        self._decided = 0

    @staticmethod
    def create(path: Path, ranks: int) -> None:
        """A new file of zeros, before any process opens it."""
        path.write_bytes(bytes(WORD * (1 + ranks)))

    def meet(self) -> None:
        """Returns when every rank has come here as often as this one."""
        self._met += 1
        self._words[1 + self._rank] = self._met
        for rank in range(self._ranks):
            self._await(1 + rank, self._met, f"rank {rank}")

    def decided(self, own: bool) -> bool:
        """What rank 0 says, on every rank; `own` is what it says if this is rank 0."""
        self._decided += 1
        if self._rank == 0:
            self._words[0] = 2 * self._decided + own
        self._await(0, 2 * self._decided, "rank 0")
        # It cannot be overwritten yet: rank 0 decides again only after all have met.
        said = bool(self._words[0] & 1)
        self.meet()
        return said

    def _await(self, word: int, least: int, who: str) -> None:
        spins, since = 0, 0.0
        while self._words[word] < least:
            spins += 1
            if spins > SPINS:
                os.sched_yield()
                since = since or time.monotonic()
                if time.monotonic() - since > self._limit_s:
                    raise Failed(f"{who} did not come within {self._limit_s:.0f} s")
