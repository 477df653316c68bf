"""The processes of a library that needs several: one a rank, each a worker of the protocol.

The process that the harness talks to makes no calls itself. So a rank that dies or hangs,
and the others that wait for it inside a collective for ever, are ended and their case
fails with a reason; the next case starts them anew.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import selectors
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from regatta_worker.protocol.channel import PROTOCOL_VERSION, REPLY_FD, REQUEST_FD, Failed, Message
from regatta_worker.ranks.agreement import Agreement

LIMIT_VARIABLE = "REGATTA_RANK_LIMIT_S"
LIMIT_S = 100.0
"""What ranks may take over one request, unless the variable says otherwise; always for
`hello`, in which they load their library. Where a case has ranks started, loading is part of
its `prepare`, and what it took is taken off. So all of it stays below the harness's own limit
for a request (`timeout_s`, 120 unless a suite says otherwise), which would end everything
and could not say which rank it was."""

MEETING_SHARE, COLLECTIVE_SHARE = 0.8, 0.9
"""Of that limit, what a rank waits for another in a meeting, and in a collective. Less than
all, so that it says who did not come before everything is ended; and first in a
meeting, which knows who that was."""

GRACE_S = 5.0
"""How long the others may go on once one rank has failed: they may be waiting for it."""

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


class Ranks:
    """The ranks of one library. The first is started for `hello`, the others for a case."""

    def __init__(self, library: str) -> None:
        self._library = library
        self._processes: list[WorkerProcess] = []
        """By rank."""
        self._folder: Path | None = None
        """What the ranks of a group share; None while they are no group."""
        self._next = 0
        self._limit_s = float(os.environ.get(LIMIT_VARIABLE, LIMIT_S))
        self._loading_s = 0.0
        """What starting the ranks has taken of the request that is being answered."""

    @property
    def up(self) -> bool:
        """Whether a group has been formed and lives."""
        return self._folder is not None

    def introduce(self) -> Message:
        """What rank 0 says of itself."""
        if not self._processes:
            self._start(1)
        return self.ask("hello", protocol=PROTOCOL_VERSION)[0]

    def group(self, ranks: int) -> Message:
        """Has so many ranks up; what each needs to form a group with the others."""
        if self._folder and len(self._processes) != ranks:
            # A process joins one group in its life: libraries keep state of it.
            self.end()
        if not self._folder:
            begin = time.monotonic()
            self._start(ranks)
            for reply in self.ask("hello", protocol=PROTOCOL_VERSION):
                if reply["type"] != "hello":
                    self.end()
                    raise Failed(f"a rank did not come up: {reply.get('reason')}")
            self._folder = Path(tempfile.mkdtemp(prefix="regatta-ranks-"))
            Agreement.create(self._folder / "agreement", ranks)
            self._loading_s = time.monotonic() - begin
        return {
            "folder": str(self._folder),
            "ranks": ranks,
            "meeting_limit_s": MEETING_SHARE * self._limit_s,
            "collective_limit_s": COLLECTIVE_SHARE * self._limit_s,
        }

    def _start(self, ranks: int) -> None:
        for rank in range(len(self._processes), ranks):
            words = ("--library", self._library, "--rank", str(rank))
            self._processes.append(WorkerProcess(*words))

    def ask(self, kind: str, **fields: Any) -> list[Message]:
        """The replies of all ranks to one request.

        Raises Failed, and ends all ranks, where one has ended or not answered in time.
        """
        self._next += 1
        line = json.dumps({"id": self._next, "type": kind, **fields}).encode() + b"\n"
        for process in self._processes:
            process.write(line)
        replies: dict[int, Message] = {}
        limit_s = LIMIT_S if kind == "hello" else self._remaining_s()
        deadline = time.monotonic() + limit_s
        with selectors.DefaultSelector() as waiting:
            for rank, process in enumerate(self._processes):
                waiting.register(process.replies, selectors.EVENT_READ, rank)
            while len(replies) < len(self._processes):
                ready = waiting.select(max(0.0, deadline - time.monotonic()))
                if not ready:
                    silent = [rank for rank in range(len(self._processes)) if rank not in replies]
                    names = ", ".join(f"rank {rank}" for rank in silent)
                    raise self._broken(
                        f"{names} did not answer `{kind}` within {limit_s:.0f} s", replies
                    )
                for rank in (key.data for key, _ in ready):
                    process = self._processes[rank]
                    text = process.replies.readline()
                    if not text:
                        # Its descriptors are closed a moment before it can be waited for.
                        code = process.end(GRACE_S)
                        how = f"ended with status {code}"
                        if code < 0:
                            how = f"was ended by {signal.Signals(-code).name}"
                        del self._processes[rank]
                        raise self._broken(f"rank {rank} {how} during `{kind}`", replies)
                    replies[rank] = json.loads(text)
                    waiting.unregister(process.replies)
                    if replies[rank]["type"] in ("failed", "unsupported"):
                        deadline = min(deadline, time.monotonic() + GRACE_S)
        return [replies[rank] for rank in range(len(self._processes))]

    def _remaining_s(self) -> float:
        """The limit of a request, less what starting the ranks has taken of the longest."""
        whole = max(LIMIT_S, self._limit_s)
        remaining = min(self._limit_s, whole - self._loading_s)
        self._loading_s = 0.0
        return max(0.0, remaining)

    def _broken(self, what: str, replies: dict[int, Message]) -> Failed:
        """Ends all ranks; what broke, and what a rank that answered says of it."""
        self.end()
        complaints = [
            f"rank {rank}: {reply['reason']}"
            for rank, reply in sorted(replies.items())
            if "reason" in reply
        ]
        return Failed("; ".join([what, *(complaints[:1] or ["all ranks were ended"])]))

    def end(self) -> None:
        """Ends every rank; the next request for a group starts others."""
        for process in self._processes:
            process.end()
        self._processes = []
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None
