"""The common parts of the tests: problems, and a started worker."""

from __future__ import annotations

import importlib.util
import json
import signal
import tempfile
from pathlib import Path
from typing import Any

from regatta_worker.clock import timing
from regatta_worker.ranks.processes import WorkerProcess
from regatta_worker.serving import Session

ROOT = Path(__file__).resolve().parents[2]
WORKER = ROOT / "python" / "regatta_worker"

Mask = dict[str, Any]

FULL: Mask = {"left": None, "right": None, "align": "top-left"}
CAUSAL: Mask = {"left": None, "right": 0, "align": "top-left"}
CAUSAL_BR: Mask = {"left": None, "right": 0, "align": "bottom-right"}

SETS = 3
"""Sets of inputs, as the harness asks for them."""
SEED = 42
PLAN = {"warmup": 1, "samples": 3, "min_samples": 3, "budget_ms": 0, "cache": "hot"}

REPLY_LIMIT_S = 120
"""After this long a silent worker is taken for hung; no test says how long anything takes."""


def installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def wire(**axes: Any) -> dict[str, Any]:
    """A problem as the harness writes it: small, unless `axes` say otherwise."""
    problem: dict[str, Any] = {"batch": 2, "heads": 4, "seq_q": 24, "head_dim": 16, "dtype": "f32"}
    problem |= {"mask": FULL, "layout": "bshd", "direction": "forward", **axes}
    for axis, like in (("kv_heads", "heads"), ("seq_k", "seq_q"), ("head_dim_v", "head_dim")):
        problem.setdefault(axis, problem[like])
    return problem


def request(variant: str, params: Any = None, sets: int = SETS, **axes: Any) -> dict[str, Any]:
    """A request for a case with the inputs of seed 42, and of others for its samples."""
    case = {"variant": variant, "params": params or {}, "problem": wire(**axes)}
    return case | {"seed": SEED, "input_sets": sets}


def answer(worker: Any, kind: str, library: str = "", **fields: Any) -> dict[str, Any]:
    """The reply of a session that has opened this worker."""
    session = Session(lambda: worker, library)
    session._worker = worker
    return session.answer(json.dumps({"id": 1, "type": kind, **fields}).encode())


def right(prepared: dict[str, Any], tolerance: float) -> None:
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


def measured(call: Any, samples: int = 5) -> dict[str, Any]:
    """Samples of a call by the host's clock."""
    plan = timing.Plan(0, samples, samples, 0.0, cold=False)
    return timing.measure_wall(call, lambda results: None, plan, lambda: None)


class StartedWorker(WorkerProcess):
    """A worker process that has said hello, asked as the harness asks it."""

    def __init__(self, served: str | tuple[str, ...], *interpreter_options: str) -> None:
        """`served` is a library, or the words that name somebody's functions."""
        words = ("--library", served) if isinstance(served, str) else served
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the worker)
        super().__init__(*words, options=interpreter_options, log=self._log)
        self.log = b""
        """The worker's standard error, once it has ended."""
        self._next = 0
        self.hello = self.ask("hello", protocol=1)

    def __enter__(self) -> StartedWorker:
        return self

    def __exit__(self, *error: object) -> None:
        self.exit_status()

    def send(self, line: bytes) -> dict[str, Any]:
        """Writes a line as it is and reads one reply."""
        self.write(line + b"\n")
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

    def prepare(self, variant: str, params: Any = None, **axes: Any) -> dict[str, Any]:
        return self.ask("prepare", **request(variant, params, **axes))

    def exit_status(self) -> int:
        """Closes the channel and waits; negative where a signal ended the worker."""
        code = self.end(REPLY_LIMIT_S)
        self._log.seek(0)
        self.log = self._log.read()
        self._log.close()
        return code


class Conversing:
    LIBRARY = ""
    worker: StartedWorker

    @classmethod
    def setup_class(cls) -> None:
        cls.worker = StartedWorker(cls.LIBRARY)

    @classmethod
    def teardown_class(cls) -> None:
        assert cls.worker.ask("shutdown")["type"] == "bye"
        assert cls.worker.exit_status() == 0

    def refused(self, reply: dict[str, Any], words: str, kind: str = "unsupported") -> None:
        assert reply["type"] == kind, reply
        assert words in reply["reason"]
