"""What the tests share: problems, and a started worker."""

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

ROOT = Path(__file__).resolve().parents[2]
WORKER = ROOT / "python" / "regatta_worker"

Mask = dict[str, Any]

FULL: Mask = {"left": None, "right": None, "align": "top-left"}
CAUSAL: Mask = {"left": None, "right": 0, "align": "top-left"}
CAUSAL_BR: Mask = {"left": None, "right": 0, "align": "bottom-right"}

SETS = 3
"""Of inputs, as the harness asks for them."""
SEED = 42
PLAN = {"warmup": 1, "samples": 3, "min_samples": 3, "budget_ms": 0, "cache": "hot"}

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


def right(prepared: dict[str, Any], tolerance: float) -> None:
    """That a case was prepared, and all its results are right."""
    assert prepared.get("type", "prepared") == "prepared", prepared
    for name, error in prepared["errors"].items():
        assert error["relative_l2"] < tolerance, name
        assert len(prepared["probes"][name]) == 16


def right_after_timing(measured: dict[str, Any], tolerance: float, of: dict[str, Any]) -> None:
    """The last timed call, whose inputs are another set's than those of `of`, what was
    prepared: checked, and right."""
    assert measured.get("type") != "failed", measured
    assert measured["input_sets"] >= SETS
    assert "input_sets_reason" not in measured
    checked = measured["checked"]
    assert checked["seed"] == SEED + 1
    assert list(checked["errors"]) == list(of["errors"])
    right(checked, tolerance)
    for name, probes in checked["probes"].items():
        assert probes != of["probes"][name], "of other inputs"


def _pipe_above_nine() -> list[int]:
    """A pipe whose ends are not overwritten when one end of another is put on 3 or 4."""
    ends = []
    for end in os.pipe():
        ends.append(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10))
        os.close(end)
    return ends


class StartedWorker:
    """A worker process as the harness starts it: requests on 3, replies on 4."""

    def __init__(self, served: str | tuple[str, ...], *interpreter_options: str) -> None:
        """`served` is a library, or the words that name somebody's functions."""
        words = ("--library", served) if isinstance(served, str) else served
        request_read, request_write = _pipe_above_nine()
        reply_read, reply_write = _pipe_above_nine()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the worker)
        self.pid = os.posix_spawn(
            sys.executable,
            [sys.executable, *interpreter_options, str(WORKER), *words],
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
        answer: dict[str, Any] = json.loads(reply)
        return answer

    def ask(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Sends a request and reads its reply, which must repeat the id."""
        self._next += 1
        reply = self.send(json.dumps({"id": self._next, "type": kind, **fields}).encode())
        assert reply["id"] == self._next, reply
        return reply

    def prepare(self, variant: str, params: dict[str, Any] | None = None, **axes: Any) -> Any:
        """Asks for a case with the inputs of seed 42, and of others for its samples."""
        given = {"variant": variant, "params": params or {}, "problem": wire(**axes)}
        return self.ask("prepare", **given, seed=SEED, input_sets=SETS)

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


class Conversing:
    """Tests that share one worker."""

    LIBRARY = ""
    worker: StartedWorker
    hello: dict[str, Any]

    @classmethod
    def setup_class(cls) -> None:
        cls.worker = StartedWorker(cls.LIBRARY)
        cls.hello = cls.worker.ask("hello", protocol=1)

    @classmethod
    def teardown_class(cls) -> None:
        assert cls.worker.ask("shutdown")["type"] == "bye"
        assert cls.worker.exit_status() == 0

    def refused(self, reply: dict[str, Any], words: str, kind: str = "unsupported") -> None:
        assert reply["type"] == kind, reply
        assert words in reply["reason"]
