"""What is around a program's steps: its turn on the device, and changes that any one can have."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

TURN = "REGATTA_FAULTS_TURN"
"""Environment variable with a file: who holds its lock has the device."""

STEPS = 12
WARM_UPS = 3

NEIGHBOUR = """
import torch
a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
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
    """Issues one step, told its number; those before the first steady one are negative."""
    wait: Callable[[], None]
    """Returns when the device has done all of it."""
    steps: int = STEPS
    warm_ups: int = WARM_UPS


def take_turn() -> None:
    """Waits until no other of these programs uses the device; they may start meanwhile.

    The lock is held until the process ends.
    """
    if path := os.environ.get(TURN):
        fcntl.flock(os.open(path, os.O_RDWR | os.O_CREAT), fcntl.LOCK_EX)


@contextlib.contextmanager
def changed(change: str) -> Iterator[None]:
    """Makes the changes that are not of one program alone, before anything else is done."""
    if change == "no-garbage-collection":
        gc.disable()
    if change == "unused-library":
        import torch  # noqa: F401  # it names the folders of CUDA's libraries

        ctypes.CDLL("libcusolver.so.12", mode=ctypes.RTLD_LOCAL)
    if change == "other-environment":
        os.environ.update({"LC_TIME": "C", "EXPERIMENT": "second", "TZ": "UTC"})
    if change == "idle-thread":
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    if change != "neighbour":
        yield
        return
    environment = dict(os.environ)
    # It is not a part of what is traced.
    environment.pop("CUDA_INJECTION64_PATH", None)
    command = [sys.executable, "-c", NEIGHBOUR]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as neighbour:
        try:
            assert neighbour.stdout
            neighbour.stdout.readline()
            yield
        finally:
            neighbour.kill()


def run(program: Program, change: str) -> float:
    """Runs the steps and gives the wall time of a steady one in ms."""
    steps = {"more-steps": program.steps + 5, "fewer-steps": program.steps - 3}
    warm_ups = program.warm_ups * (2 if change == "warm-up-twice" else 1)
    for number in range(-warm_ups, 0):
        program.step(number)
    program.wait()
    count = steps.get(change, program.steps)
    with contextlib.ExitStack() as stack:
        log = None
        if change == "log-to-file":
            log = stack.enter_context(tempfile.TemporaryFile("w", encoding="utf-8"))
        start = time.perf_counter()
        for number in range(count):
            with named(change, number):
                program.step(number)
            if change == "print":
                print("step", number)
            if log:
                print("step", number, file=log, flush=True)
        program.wait()
    return (time.perf_counter() - start) * 1e3 / count


@contextlib.contextmanager
def named(change: str, number: int) -> Iterator[None]:
    """A step, with a range of NVTX around it where that is the change."""
    if change != "ranges":
        yield
        return
    import torch

    with torch.cuda.nvtx.range(f"step {number}"):
        yield
