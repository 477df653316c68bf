"""What the tests share: the worker's modules on the path, problems, and a started worker."""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

WORKER = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(WORKER))

FULL = {"left": None, "right": None, "align": "top-left"}
CAUSAL = {"left": None, "right": 0, "align": "top-left"}
CAUSAL_BR = {"left": None, "right": 0, "align": "bottom-right"}

REPLY_LIMIT_S = 120
"""After this long a silent worker is taken for hung; no test says how long anything takes."""


def installed(module: str) -> bool:
    """Whether a library is there to be tested with."""
    return importlib.util.find_spec(module) is not None


def wire(**axes: Any) -> dict[str, Any]:
    """A problem as the harness writes it: small, unless `axes` say otherwise."""
    problem = {
        "batch": 2,
        "heads": 4,
        "kv_heads": 4,
        "seq_q": 24,
        "seq_k": 24,
        "head_dim": 16,
        "head_dim_v": 16,
        "dtype": "f32",
        "mask": FULL,
        "layout": "bshd",
        "direction": "forward",
    } | axes
    problem["kv_heads"] = axes.get("kv_heads", problem["heads"])
    problem["seq_k"] = axes.get("seq_k", problem["seq_q"])
    problem["head_dim_v"] = axes.get("head_dim_v", problem["head_dim"])
    return problem


def _pipe_above_nine() -> list[int]:
    """A pipe whose ends are not overwritten when one end of another is put on 3 or 4."""
    ends = []
    for end in os.pipe():
        ends.append(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10))
        os.close(end)
    return ends


class StartedWorker:
    """A worker process as the harness starts it: requests on 3, replies on 4."""

    def __init__(self, library: str, *interpreter_options: str) -> None:
        request_read, request_write = _pipe_above_nine()
        reply_read, reply_write = _pipe_above_nine()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the worker)
        main = str(WORKER / "main.py")
        self.pid = os.posix_spawn(
            sys.executable,
            [sys.executable, *interpreter_options, main, "--library", library],
            os.environ,
            file_actions=[
                # First, because the log itself may lie on 3 or 4.
                (os.POSIX_SPAWN_DUP2, self._log.fileno(), 2),
                (os.POSIX_SPAWN_DUP2, request_read, 3),
                (os.POSIX_SPAWN_DUP2, reply_write, 4),
            ],
        )
        os.close(request_read)
        os.close(reply_write)
        self.requests = os.fdopen(request_write, "wb")
        self.replies = os.fdopen(reply_read, "rb")
        self.log = b""
        """What the worker printed on its standard error, once it has ended."""
        self._next = 0

    def send(self, line: bytes) -> dict[str, Any]:
        """Writes a line as it is and reads one reply."""
        self.requests.write(line + b"\n")
        self.requests.flush()
        signal.alarm(REPLY_LIMIT_S)
        reply = self.replies.readline()
        signal.alarm(0)
        return json.loads(reply)

    def ask(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Sends a request and reads its reply, which must repeat the id."""
        self._next += 1
        reply = self.send(json.dumps({"id": self._next, "type": kind, **fields}).encode())
        assert reply["id"] == self._next, reply
        return reply

    def prepare(self, variant: str, params: dict[str, Any] | None = None, **axes: Any) -> Any:
        """Asks for a case with the inputs of seed 42."""
        problem = wire(**axes)
        return self.ask("prepare", variant=variant, seed=42, params=params or {}, problem=problem)

    def exit_status(self) -> int:
        """Closes the channel and waits; negative where a signal ended the worker."""
        self.requests.close()
        self.replies.close()
        signal.alarm(REPLY_LIMIT_S)
        _, status = os.waitpid(self.pid, 0)
        signal.alarm(0)
        self._log.seek(0)
        self.log = self._log.read()
        self._log.close()
        return os.waitstatus_to_exitcode(status)
