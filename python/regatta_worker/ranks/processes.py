"""A worker as a process of its own, which speaks the protocol."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from regatta_worker.protocol.channel import REPLY_FD, REQUEST_FD

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
