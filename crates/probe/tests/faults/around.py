"""A program's steps, and the changes that any program can have."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Program:
    """A program that is ready to run."""

    step: Callable[[int], None]
    """Issues one step, given its number; those before the first steady one are negative."""
    wait: Callable[[], None]
    """Returns when the device has done all of it."""
    steps: int = 12
    warm_ups: int = 3


def prepare(change: str) -> None:
    """Makes the changes that are not of one program alone, before anything else is done."""
    if change == "no-garbage-collection":
        gc.disable()
    if change == "unused-library":
        for name in ("sqlite3", "torchvision"):
            importlib.import_module(name)
    if change == "other-environment":
        os.environ.update({"LC_TIME": "C", "EXPERIMENT": "second", "TZ": "UTC"})
    if change == "idle-thread":
        threading.Thread(target=threading.Event().wait, daemon=True).start()


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


def run(program: Program, change: str) -> float:
    """Runs the steps and returns the wall time of a steady one in ms."""
    steps = {"more-steps": program.steps + 5, "fewer-steps": program.steps - 3}
    count = steps.get(change, program.steps)
    with neighbour(change):
        for number in range(-program.warm_ups * (2 if change == "warm-up-twice" else 1), 0):
            program.step(number)
        program.wait()
        start = time.perf_counter()
        for number in range(count):
            with named(change, number):
                program.step(number)
            if change == "print":
                print("step", number)
        program.wait()
        return (time.perf_counter() - start) * 1e3 / count


def named(change: str, number: int) -> contextlib.AbstractContextManager[object]:
    """An NVTX range around a step, where that is the change."""
    if change != "ranges":
        return contextlib.nullcontext()
    import torch

    marked: contextlib.AbstractContextManager[object] = torch.cuda.nvtx.range(f"step {number}")
    return marked
