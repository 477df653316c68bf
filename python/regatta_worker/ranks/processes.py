"""Workers as processes of their own, and how some of one machine come to the same point at the same
time: each spins on words of shared memory. A message through a pipe or a socket has to wake a
process, which takes longer and not always as long.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from regatta_worker.protocol.channel import REPLY_FD, REQUEST_FD, Failed

POLL_S = 0.01


def _pipe() -> list[int]:
    """Both ends above the descriptors of the protocol, so that neither overwrites the other."""
    low = os.pipe()
    ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, REPLY_FD + 1) for end in low]
    for end in low:
        os.close(end)
    return ends


class WorkerProcess:
    """A worker as the harness starts it: requests on its descriptor 3, replies on its 4."""

    def __init__(
        self, *words: str, options: Sequence[str] = (), log: IO[bytes] | None = None
    ) -> None:
        """`words` are the worker's arguments, `options` Python's; `log` gets standard error."""
        (request_read, request_write), (reply_read, reply_write) = _pipe(), _pipe()
        ends = {request_read: REQUEST_FD, reply_write: REPLY_FD}
        if log:
            # First, because the log itself may lie on one of them.
            ends = {log.fileno(): 2, **ends}
        worker = str(Path(__file__).parent.parent)
        self.pid = os.posix_spawn(
            sys.executable,
            [sys.executable, *options, worker, *words],
            os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, *of) for of in ends.items()],
        )
        os.close(request_read)
        os.close(reply_write)
        self.requests = os.fdopen(request_write, "wb", buffering=0)
        self.replies = os.fdopen(reply_read, "rb")

    def write(self, line: bytes) -> None:
        """Writes a request; of a worker that is gone the end of its replies tells."""
        with contextlib.suppress(BrokenPipeError):
            self.requests.write(line)

    def end(self, within_s: float = 0.0) -> int:
        """Ends it unless it ends by itself within this time; its exit code, negative for a
        signal."""
        self.requests.close()
        deadline = time.monotonic() + within_s
        while not (ended := os.waitpid(self.pid, os.WNOHANG))[0]:
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)
                ended = os.waitpid(self.pid, 0)
                break
            time.sleep(POLL_S)
        self.replies.close()
        return os.waitstatus_to_exitcode(ended[1])


WORD = 8
SPINS = 2000
"""Looks before the processor is offered to others: there may be fewer cores than ranks."""


class SharedFolder:
    """A temporary folder for the ranks of a worker. It is locked while the worker lives: those of
    workers that were killed are removed."""

    PREFIX = "regatta-ranks-"

    def __init__(self) -> None:
        for left in Path(tempfile.gettempdir()).glob(f"{self.PREFIX}*"):
            with contextlib.suppress(OSError):
                descriptor = _locked(left, fcntl.LOCK_NB)
                shutil.rmtree(left, ignore_errors=True)
                os.close(descriptor)
        self.path, self._descriptor = Path(), -1
        # Another worker may remove it before it is locked.
        while self._descriptor < 0:
            self.path = Path(tempfile.mkdtemp(prefix=self.PREFIX))
            with contextlib.suppress(FileNotFoundError):
                self._descriptor = _locked(self.path)
            if self._descriptor >= 0 and not self.path.exists():
                os.close(self._descriptor)
                self._descriptor = -1

    def remove(self) -> None:
        """Removes it with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._descriptor)


def _locked(folder: Path, more: int = 0) -> int:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | more)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


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
        """The answer of rank 0, on every rank; `own` is that answer if this is rank 0."""
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
