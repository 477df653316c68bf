"""Times of the functions of `python/tests/cheats.py` by timers that others use, for `table.py`."""

import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python/tests"))

import torch

import cheats

LIMIT_S = 40
CALLS = 50


def do_bench(call: Callable[[], Any]) -> float:
    """By triton."""
    import triton.testing

    return float(triton.testing.do_bench(call)) * 1e3


def events(call: Callable[[], Any]) -> float:
    """One pair of events around many calls, as many benchmarks do; on a CPU the host's clock."""
    for _ in range(3):
        call()
    if not torch.cuda.is_available():
        begin = time.perf_counter_ns()
        for _ in range(CALLS):
            call()
        return (time.perf_counter_ns() - begin) / CALLS / 1e3
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(CALLS):
        call()
    stop.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(stop)) * 1e3 / CALLS


TIMERS = (do_bench, events)


def send_times(name: str, shape: tuple[int, ...], device: str, pipe: Any) -> None:
    """Sends a time in µs by each timer, or the reason that there is not one."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    function = vars(cheats)[name]
    q, k, v = (torch.randn(shape, device=device) for _ in range(3))
    for timer in TIMERS:
        try:
            pipe.send(timer(lambda: function(q, k, v)))
        except Exception as error:
            pipe.send(f"{type(error).__name__}: {str(error).splitlines()[0][:60]}")
    # Threads of the cheat may never end.
    os._exit(0)


def times(name: str, shape: tuple[int, ...], device: str) -> dict[str, float | str]:
    """The times by each of `TIMERS`, from a process that is forked from this one, where CUDA is
    untouched; or the reason that there is not one."""
    forks = multiprocessing.get_context("fork")
    here, there = forks.Pipe(duplex=False)
    process = forks.Process(target=send_times, args=(name, shape, device, there))
    process.start()
    there.close()
    found: dict[str, float | str] = {}
    end = time.monotonic() + LIMIT_S
    for name in (timer.__name__ for timer in TIMERS):
        try:
            in_time = here.poll(max(0.0, end - time.monotonic()))
            found[name] = here.recv() if in_time else f"no answer in {LIMIT_S} s"
        except EOFError:
            process.join(1)
            found[name] = f"the process ended with {process.exitcode}"
    process.kill()
    process.join()
    return found
