"""The native worker, spoken to as docs/PROTOCOL.md says: for the scripts beside this one."""

import json
import os
import subprocess

SHAPES = {"[1, 8, 128, 64]": (1, 8, 128), "[2, 16, 512, 64]": (2, 16, 512),
          "[2, 16, 1024, 64]": (2, 16, 1024)}
"""Batch, heads, length; head_dim is 64."""


class Worker:
    """A worker process."""

    def __init__(self, regatta, environment=None):
        request, self.requests = os.pipe()
        replies, reply = os.pipe()
        # Requests are read on descriptor 3 and answered on 4; moved out of the way first, as
        # either may have one of those numbers.
        read, write = os.dup(request), os.dup(reply)

        def in_the_child():
            moved = os.dup(read), os.dup(write)
            os.dup2(moved[0], 3)
            os.dup2(moved[1], 4)

        self.process = subprocess.Popen([regatta, "worker", "serve", "cuda"], close_fds=False,
                                        preexec_fn=in_the_child,
                                        env={**os.environ, **(environment or {})})
        for descriptor in (request, reply, read, write):
            os.close(descriptor)
        self.replies = os.fdopen(replies)
        self.ask("hello", protocol=1)

    def ask(self, kind, **fields):
        os.write(self.requests, (json.dumps({"id": 1, "type": kind, **fields}) + "\n").encode())
        reply = json.loads(self.replies.readline())
        if reply["type"] in ("failed", "unsupported", "lost"):
            raise SystemExit(f"{kind}: {reply['reason']}")
        return reply

    def prepare(self, shape):
        """Makes a bfloat16 forward of `flash-mma` ready."""
        batch, heads, seq = SHAPES[shape]
        problem = {"batch": batch, "heads": heads, "kv_heads": heads, "seq_q": seq, "seq_k": seq,
                   "head_dim": 64, "head_dim_v": 64, "dtype": "bf16", "layout": "bshd",
                   "mask": {"left": None, "right": None, "align": "top-left"},
                   "direction": "forward"}
        self.ask("prepare", variant="flash-mma", params={}, seed=1, problem=problem)

    def device_ns(self, samples, cache):
        measured = self.ask("measure", warmup=5, samples=samples, min_samples=samples,
                            budget_ms=0, cache=cache)
        return measured["device_ns"]

    def close(self):
        self.ask("shutdown")
        self.process.wait()
        os.close(self.requests)
        self.replies.close()
