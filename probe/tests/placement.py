#!/usr/bin/env python3
"""What keeps two invocations from reading alike: the clock, or where things lie in memory.

    python3 probe/tests/placement.py [--regatta PATH] [--rounds 14] [--samples 120]

Times forwards of some µs through the native worker, over and over: in one process as
prepared once, in one process prepared anew each time, and in a new process each time. The
first is the clock's own noise. What the others add no number of samples takes away.
"""

from __future__ import annotations

import argparse
import statistics

from native_worker import SHAPES, Worker


def median(worker: Worker, options: argparse.Namespace, cache: str) -> float:
    return statistics.median(worker.device_ns(options.samples, cache))


def prepared_once(options: argparse.Namespace, cache: str) -> dict[str, list[float]]:
    worker = Worker(options.regatta)
    found: dict[str, list[float]] = {}
    for shape in SHAPES:
        worker.prepare(shape)
        found[shape] = [median(worker, options, cache) for _ in range(options.rounds)]
    worker.close()
    return found


def prepared_anew(options: argparse.Namespace, cache: str) -> dict[str, list[float]]:
    worker = Worker(options.regatta)
    found: dict[str, list[float]] = {shape: [] for shape in SHAPES}
    for _ in range(options.rounds):
        for shape in SHAPES:
            worker.prepare(shape)
            found[shape].append(median(worker, options, cache))
    worker.close()
    return found


def started_anew(options: argparse.Namespace, cache: str) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {shape: [] for shape in SHAPES}
    for _ in range(options.rounds):
        worker = Worker(options.regatta)
        for shape in SHAPES:
            worker.prepare(shape)
            found[shape].append(median(worker, options, cache))
        worker.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--regatta", default="target/release/regatta", metavar="PATH")
    parser.add_argument("--rounds", type=int, default=14)
    parser.add_argument("--samples", type=int, default=120)
    options = parser.parse_args()
    print(
        "median us and coefficient of variation of",
        options.rounds,
        "medians of",
        options.samples,
        "samples",
    )
    for cache in ("cold", "hot"):
        for way in (prepared_once, prepared_anew, started_anew):
            for shape, medians in way(options, cache).items():
                spread = statistics.stdev(medians) / statistics.mean(medians)
                print(
                    f"{cache:4} {way.__name__.replace('_', ' '):14} {shape:18} "
                    f"{statistics.median(medians) / 1e3:7.2f} {spread:7.2%}"
                )


if __name__ == "__main__":
    main()
