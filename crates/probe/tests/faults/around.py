"""What is around a program's steps: its turn on the device, and changes that any one can have."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import os
import subprocess
import sys
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
input()
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
    """Issues one step, told its number; those before the first steady one are negative."""
    wait: Callable[[], None]
    """Returns when the device has done all of it."""
    steps: int = STEPS
    warm_ups: int = WARM_UPS
    compiles: bool = False
    """The first step compiles for seconds, and has the device for little of that."""


@contextlib.contextmanager
def turn(needed: bool = True) -> Iterator[None]:
    """Holds the device against the others of these programs, which start or end meanwhile."""
    path = os.environ.get(TURN)
    if not path or not needed:
        yield
        return
    with open(path, "a", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


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
def neighbour(change: str) -> Iterator[subprocess.Popen[str] | None]:
    """Another process, where that is the change, which computes once it is told to."""
    if change != "neighbour":
        yield None
        return
    environment = dict(os.environ)
    # It is not a part of what is traced.
    environment.pop("CUDA_INJECTION64_PATH", None)
    command = [sys.executable, "-c", NEIGHBOUR]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as other:
        try:
            yield other
        finally:
            other.kill()


def run(program: Program, change: str) -> float:
    """Runs the steps and gives the wall time of a steady one in ms."""
    warm_ups = program.warm_ups * (2 if change == "warm-up-twice" else 1)
    with turn(not program.compiles):
        program.step(-warm_ups)
        program.wait()
    with neighbour(change) as other, turn():
        if other and other.stdin and other.stdout:
            print(file=other.stdin, flush=True)
            other.stdout.readline()
        for number in range(1 - warm_ups, 0):
            program.step(number)
        program.wait()
        milliseconds = timed(program, change)
        if other:
            # Before anybody else's turn.
            other.kill()
            other.wait()
    return milliseconds


def timed(program: Program, change: str) -> float:
    """Runs the steady steps and gives the wall time of one in ms."""
    steps = {"more-steps": program.steps + 5, "fewer-steps": program.steps - 3}
    count = steps.get(change, program.steps)
    start = time.perf_counter()
    for number in range(count):
        with named(change, number):
            program.step(number)
        if change == "print":
            print("step", number)
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
