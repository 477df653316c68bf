"""What the launch census costs the host: a loop of tiny kernels, with it and without.

    REGATTA_PROBE=target/release/libregatta_probe.so python3 probe/tests/census_cost.py

Processes take turns, so that a machine that drifts does so for all: `plain`; `recorded`
(the library injected, recording to a file); `operators` (the same, with PyTorch's own
ranges on as `regatta trace --torch` has them); `after` (one census in the process, ended
before the loop). A process's figure is the median of its batches; printed is each
process's, their median, and its ratio to plain. Needs PyTorch and a GPU.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

KINDS = ("plain", "recorded", "operators", "after")
RANGES = Path(__file__).parents[2] / "workers" / "python" / "regatta_ranges"
BATCHES, LAUNCHES = 60, 500


def host_ns(kind: str) -> float:
    """Host time of one launch in this process: median over batches, each awaited after."""
    import torch

    number = torch.randn(32, device="cuda")
    if kind == "after":
        census(lambda: number.add_(1))
    taken = []
    for _ in range(BATCHES):
        begin = time.perf_counter_ns()
        for _ in range(LAUNCHES):
            number.add_(1)
        taken.append((time.perf_counter_ns() - begin) / LAUNCHES)
        torch.cuda.synchronize()
    # The first tenth loads and warms up.
    return statistics.median(taken[BATCHES // 10 :])


def census(call: Callable[[], Any]) -> None:
    """One census of a call in this process."""
    import torch

    library = ctypes.CDLL(os.environ["REGATTA_PROBE"])
    library.regatta_probe_last_error.restype = ctypes.c_char_p
    text = ctypes.c_char_p()

    def ask(status: int) -> None:
        if status != 0:
            sys.exit(library.regatta_probe_last_error().decode())

    ask(library.regatta_probe_census_begin())
    call()
    torch.cuda.synchronize()
    ask(library.regatta_probe_census_end(ctypes.byref(text)))


def process(kind: str, folder: Path) -> float:
    """The figure of a process of its own."""
    environment = dict(os.environ)
    for name in ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "REGATTA_TRACE"):
        environment.pop(name, None)
    if kind in ("recorded", "operators"):
        library = str(Path(environment["REGATTA_PROBE"]).resolve())
        environment["CUDA_INJECTION64_PATH"] = library
        environment["NVTX_INJECTION64_PATH"] = library
        environment["REGATTA_TRACE"] = str(folder)
    if kind == "operators":
        paths = [str(RANGES), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    command = [sys.executable, __file__, "--kind", kind]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE)
    return float(done.stdout)


def main() -> None:
    """Takes turns and prints the table, or is one of the processes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kind", choices=KINDS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.kind:
        print(host_ns(arguments.kind))
        return
    with tempfile.TemporaryDirectory() as folder:
        rounds = [
            {kind: process(kind, Path(folder)) for kind in KINDS} for _ in range(arguments.rounds)
        ]
        lines = [
            line for path in Path(folder).glob("*.jsonl") for line in path.read_text().splitlines()
        ]
    recorded = sum('"kind":"kernel"' in line for line in lines)
    told = sum('"operator":' in line for line in lines)
    lost = [line for line in lines if '"kind":"dropped"' in line]
    plain = statistics.median(found["plain"] for found in rounds)
    for kind in KINDS:
        found = [figures[kind] for figures in rounds]
        middle = statistics.median(found)
        each = " ".join(f"{ns / 1e3:.2f}" for ns in found)
        print(f"{kind:9} {middle / 1e3:.2f} us a launch, {middle / plain:.3f} of plain ({each})")
    launched = 2 * BATCHES * LAUNCHES * arguments.rounds
    print(f"{recorded} kernels recorded of {launched}, {told} with an operator; lost: {lost}")


if __name__ == "__main__":
    main()
