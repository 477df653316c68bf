#!/usr/bin/env python3
"""Holds the native worker's device times against CUPTI's kernel times, on a GPU.

    python3 probe/tests/ruler_native.py LIBRARY [--regatta PATH] [--rounds 6] [--samples 60]

LIBRARY is libregatta_probe.so, whose path `regatta doctor` prints. In each round the worker
is started twice: as it is, and with the launch census injected, which writes down when each
kernel began and ended. Exit code 1 when a cold forward of 5 or 15 us is off by more than
half a microsecond.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from typing import Any

TOLERANCE_NS = 500

SHAPES = {
    "[1, 8, 128, 64]": (1, 8, 128),
    "[2, 16, 512, 64]": (2, 16, 512),
    "[2, 16, 1024, 64]": (2, 16, 1024),
}
"""Batch, heads, length; head_dim is 64."""


class Worker:
    """The native worker, spoken to as docs/PROTOCOL.md says."""

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


def cupti_ns(folder: str, samples: int) -> float:
    """Duration of the last launches of the forward kernel that the census wrote down."""
    names, found = {}, []
    for path in pathlib.Path(folder).glob("*.jsonl"):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            if record["kind"] == "name":
                names[record["id"]] = record["name"]
            elif record["kind"] == "kernel" and "flash_mma_forward" in names[record["name"]]:
                found.append((record["start_ns"], record["end_ns"] - record["start_ns"]))
    return float(statistics.median(length for _, length in sorted(found)[-samples:]))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("library")
    parser.add_argument("--regatta", default="target/release/regatta", metavar="PATH")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--samples", type=int, default=60)
    options = parser.parse_args()
    failed = 0
    print("us: the worker's median, CUPTI's, and the worker's with CUPTI attached")
    for cache in ("cold", "hot"):
        for shape in SHAPES:
            plain, truth, attached = [], [], []
            for _ in range(options.rounds):
                worker = Worker(options.regatta)
                worker.prepare(shape)
                plain.append(statistics.median(worker.device_ns(options.samples, cache)))
                worker.close()
                with tempfile.TemporaryDirectory() as folder:
                    worker = Worker(
                        options.regatta,
                        {"CUDA_INJECTION64_PATH": options.library, "REGATTA_TRACE": folder},
                    )
                    worker.prepare(shape)
                    attached.append(statistics.median(worker.device_ns(options.samples, cache)))
                    worker.close()
                    truth.append(cupti_ns(folder, options.samples))
            read, true, with_cupti = map(statistics.median, (plain, truth, attached))
            bad = cache == "cold" and abs(read - true) > TOLERANCE_NS
            failed += bad
            print(
                f"{'FAIL' if bad else 'ok':5} {cache:4} {shape:18} {read / 1e3:6.2f} "
                f"{true / 1e3:6.2f} {with_cupti / 1e3:6.2f}"
            )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
