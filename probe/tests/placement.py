#!/usr/bin/env python3
"""What keeps two invocations from reading alike: the clock, or where things lie in memory.

    python3 probe/tests/placement.py [--regatta PATH] [--rounds 14] [--samples 120]

Times forwards of some µs through the native worker, over and over: in one process as
prepared once, in one process prepared anew each time, and in a new process each time. The
first is the clock's own noise. What the others add no number of samples takes away.
"""

import argparse
import json
import os
import statistics
import subprocess

SHAPES = {"[1, 8, 128, 64]": (1, 8, 128), "[2, 16, 512, 64]": (2, 16, 512),
          "[2, 16, 1024, 64]": (2, 16, 1024)}


class Worker:
    """A worker process, spoken to as docs/PROTOCOL.md says."""

    def __init__(self, regatta):
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
                                        preexec_fn=in_the_child)
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
        batch, heads, seq = SHAPES[shape]
        problem = {"batch": batch, "heads": heads, "kv_heads": heads, "seq_q": seq, "seq_k": seq,
                   "head_dim": 64, "head_dim_v": 64, "dtype": "bf16", "layout": "bshd",
                   "mask": {"left": None, "right": None, "align": "top-left"},
                   "direction": "forward"}
        self.ask("prepare", variant="flash-mma", params={}, seed=1, problem=problem)

    def median(self, samples, cache):
        measured = self.ask("measure", warmup=5, samples=samples, min_samples=samples,
                            budget_ms=0, cache=cache)
        return statistics.median(measured["device_ns"])

    def close(self):
        self.ask("shutdown")
        self.process.wait()
        os.close(self.requests)
        self.replies.close()


def prepared_once(options, cache):
    worker = Worker(options.regatta)
    found = {}
    for shape in SHAPES:
        worker.prepare(shape)
        found[shape] = [worker.median(options.samples, cache) for _ in range(options.rounds)]
    worker.close()
    return found


def prepared_anew(options, cache):
    worker = Worker(options.regatta)
    found = {shape: [] for shape in SHAPES}
    for _ in range(options.rounds):
        for shape in SHAPES:
            worker.prepare(shape)
            found[shape].append(worker.median(options.samples, cache))
    worker.close()
    return found


def started_anew(options, cache):
    found = {shape: [] for shape in SHAPES}
    for _ in range(options.rounds):
        worker = Worker(options.regatta)
        for shape in SHAPES:
            worker.prepare(shape)
            found[shape].append(worker.median(options.samples, cache))
        worker.close()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--regatta", default="target/release/regatta", metavar="PATH")
    parser.add_argument("--rounds", type=int, default=14)
    parser.add_argument("--samples", type=int, default=120)
    options = parser.parse_args()
    print("median us and coefficient of variation of", options.rounds, "medians of",
          options.samples, "samples")
    for cache in ("cold", "hot"):
        for way in (prepared_once, prepared_anew, started_anew):
            for shape, medians in way(options, cache).items():
                spread = statistics.stdev(medians) / statistics.mean(medians)
                print(f"{cache:4} {way.__name__.replace('_', ' '):14} {shape:18} "
                      f"{statistics.median(medians) / 1e3:7.2f} {spread:7.2%}")


if __name__ == "__main__":
    main()
