"""The native worker, spoken to as docs/PROTOCOL.md says: for the scripts beside this one."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

SHAPES = {
    "[1, 8, 128, 64]": (1, 8, 128),
    "[2, 16, 512, 64]": (2, 16, 512),
    "[2, 16, 1024, 64]": (2, 16, 1024),
}
"""Batch, heads, length; head_dim is 64."""


class Worker:
    """A worker process."""

    def __init__(self, regatta: str, environment: dict[str, str] | None = None) -> None:
        request, self.requests = os.pipe()
        replies, reply = os.pipe()
        # Requests are read on descriptor 3 and answered on 4; moved out of the way first, as
        # either may have one of those numbers.
        read, write = os.dup(request), os.dup(reply)

        def in_the_child() -> None:
            moved = os.dup(read), os.dup(write)
            os.dup2(moved[0], 3)
            os.dup2(moved[1], 4)

        self.process = subprocess.Popen(
            [regatta, "worker", "serve", "cuda"],
            close_fds=False,
            preexec_fn=in_the_child,
            env={**os.environ, **(environment or {})},
        )
        for descriptor in (request, reply, read, write):
            os.close(descriptor)
        self.replies = os.fdopen(replies)
        self.ask("hello", protocol=1)

    def ask(self, kind: str, **fields: Any) -> dict[str, Any]:
        os.write(self.requests, (json.dumps({"id": 1, "type": kind, **fields}) + "\n").encode())
        reply: dict[str, Any] = json.loads(self.replies.readline())
        if reply["type"] in ("failed", "unsupported", "lost"):
            raise SystemExit(f"{kind}: {reply['reason']}")
        return reply

    def prepare(self, shape: str) -> None:
        """Makes a bfloat16 forward of `flash-mma` ready."""
        batch, heads, seq = SHAPES[shape]
        problem = {
            "batch": batch,
            "heads": heads,
            "kv_heads": heads,
            "seq_q": seq,
            "seq_k": seq,
            "head_dim": 64,
            "head_dim_v": 64,
            "dtype": "bf16",
            "layout": "bshd",
            "mask": {"left": None, "right": None, "align": "top-left"},
            "direction": "forward",
        }
        self.ask("prepare", variant="flash-mma", params={}, seed=1, problem=problem)

    def device_ns(self, samples: int, cache: str) -> list[float]:
        measured = self.ask(
            "measure", warmup=5, samples=samples, min_samples=samples, budget_ms=0, cache=cache
        )
        times: list[float] = measured["device_ns"]
        return times

    def close(self) -> None:
        self.ask("shutdown")
        self.process.wait()
        os.close(self.requests)
        self.replies.close()
