#!/usr/bin/env python3
"""Is a launch's cost on the device the clock's noise, or does each process have its own?

    python3 probe/tests/processes.py LIBRARY [--processes 20]

LIBRARY is libregatta_probe.so, whose path `regatta doctor` prints. Starts processes that
calibrate the clock four times and then read 1, 4 and 12 kernels that do nothing, hot and
cold; prints each process, and how far apart they lie with and without what calibration
subtracts. Needs a GPU, and no framework.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "workers/python"))
from regatta_worker.clock import probe

SAMPLES = 150


def one_process(library: str) -> dict[str, Any]:
    """Readings of this process in ns, nothing subtracted."""
    clock = probe.Probe(library, 0, 0)
    calibrations = [clock.calibrate() for _ in range(4)]
    cost = calibrations[-1].cost_ns
    found: dict[str, Any] = {
        "pair": [c.pair_ns for c in calibrations],
        "null": [c.null_kernel_ns for c in calibrations],
    }
    for kernels in (1, 4, 12):

        def call(kernels: int = kernels) -> None:
            for _ in range(kernels):
                clock.null_kernel()

        for cache in ("hot", "cold"):
            samples = [clock.sample(cache == "cold", call) for _ in range(SAMPLES)]
            found[f"{kernels} {cache}"] = statistics.median(s.device_ns for s in samples) + cost
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("library")
    parser.add_argument("--processes", type=int, default=20)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one_process(options.library)))
        return
    command = [sys.executable, __file__, options.library, "--one"]
    found = [
        json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        for _ in range(options.processes)
    ]
    readings = [name for name in found[0] if name not in ("pair", "null")]
    print("ns, as read: an empty pair, a null kernel beyond it, and medians of readings")
    print("  pair   null " + " ".join(f"{name:>8}" for name in readings))
    for process in found:
        print(
            f"{process['pair'][-1]:6.0f} {process['null'][-1]:6.0f} "
            + " ".join(f"{process[name]:8.0f}" for name in readings)
        )
    within = statistics.mean(statistics.stdev(process["null"]) for process in found)
    print(f"\na null kernel's four calibrations within a process: standard deviation {within:.0f}")
    print("between processes    as read    less what calibration subtracts")
    for name in readings:
        read = [process[name] for process in found]
        less = [process[name] - process["pair"][-1] - process["null"][-1] for process in found]
        print(f"{name:18} {statistics.stdev(read):9.0f} {statistics.stdev(less):9.0f}")


if __name__ == "__main__":
    main()
