"""Runs one program with one thing different, and prints how long a step takes.

    python3 crates/probe/tests/faults/main.py llama eager-attention

The second word is a change of `table`, or `as-it-should-be`.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from faults import table

STEPS, WARM_UPS = {"more-steps": 17, "fewer-steps": 9}, {"warm-up-twice": 6}
"""By change; else 12 and 3."""

NEIGHBOUR = """
import torch
a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
a @ a
torch.cuda.synchronize()
print("ready", flush=True)
while True:
    for _ in range(20):
        a @ a
    torch.cuda.synchronize()
"""


def main(program: str, change: str) -> None:
    """Runs the program."""
    table.find(program, change)
    if change == "no-garbage-collection":
        gc.disable()
    if change == "unused-library":
        for name in ("sqlite3", "torchvision"):
            importlib.import_module(name)
    if change == "other-environment":
        os.environ.update({"LC_TIME": "C", "EXPERIMENT": "second", "TZ": "UTC"})
    import torch

    build = importlib.import_module(f"faults.programs.{program}").build
    with other_stream(change):
        step = build(change)
        with neighbour(change):
            for number in range(-WARM_UPS.get(change, 3), 0):
                step(number)
            torch.cuda.synchronize()
            start, steps = time.perf_counter(), STEPS.get(change, 12)
            for number in range(steps):
                ranges = torch.cuda.nvtx.range(f"step {number}") if change == "ranges" else None
                with ranges or contextlib.nullcontext():
                    step(number)
                if change == "print":
                    print("step", number)
            torch.cuda.synchronize()
            milliseconds = (time.perf_counter() - start) * 1e3 / steps
    print(f"{program} {change}: {milliseconds:.3f} ms a step", file=sys.stderr)


def other_stream(change: str) -> contextlib.AbstractContextManager[object]:
    """A stream of PyTorch's that is not the default one, where that is the change."""
    if change not in ("other-stream", "streams-created-in-another-order"):
        return contextlib.nullcontext()
    import torch

    stream = torch.cuda.Stream()
    return torch.cuda.stream(stream) if change == "other-stream" else contextlib.nullcontext()


@contextlib.contextmanager
def neighbour(change: str) -> Iterator[None]:
    """Another process that computes, where that is the change."""
    if change != "neighbour":
        yield
        return
    # It is not a part of what is traced.
    variables = {key: of for key, of in os.environ.items() if key != "CUDA_INJECTION64_PATH"}
    command = [sys.executable, "-c", NEIGHBOUR]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=variables) as other:
        try:
            assert other.stdout and other.stdout.readline()
            yield
        finally:
            other.kill()


if __name__ == "__main__":
    main(*sys.argv[1:])
