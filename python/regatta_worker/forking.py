"""Workers forked from a process that has imported their library: a start costs no import.

The process that forks has done nothing but import: no device is open and no thread runs, which
a fork would break, and that is looked at and not assumed. What it forks is a worker as one that
was started by itself: it has descriptors, a log, a process group and a supervisor of its own.

    server ──fork── (ends at once) ──fork── the worker's supervisor ──fork── the worker

While files are watched, such a worker is a server too, of one answer (`beginnings.py`).

The supervisor, whose parent has ended, goes to the supervisor of the server, which reaps it;
it then becomes regatta's own (crates/measure/src/worker/supervisor.rs), whose child the worker
stays.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import json
import os
import random
import signal
import socket
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

from regatta_worker.beginnings import Imported, code_of_user
from regatta_worker.protocol.channel import REPLY_FD, REQUEST_FD

LONGEST_REQUEST = 1 << 16
DESCRIPTORS = 5
"""That come with each request: requests, replies, log, the supervisor's socket and its program."""
ABOVE = 20
"""Descriptors from here on are free until they are put in place."""

MADV_POPULATE_WRITE = 23
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
CUDA_ERROR_NOT_INITIALIZED = 3

ON_A_CPU = (
    "no GPU is seen; on a CPU, invocations differ by memory layout, which forked processes share"
)


def fork_workers(
    load: Iterable[Callable[[], Any]], always: bool = False, stays: tuple[str, ...] | None = None
) -> bool:
    """Serves until the harness is gone; returns in each process that is forked, and nowhere else:
    True in one that is to serve in turn, False in a worker.

    `load` imports the library, step by step. `always` forks workers on a CPU too. One that
    `stays`, for code in these folders, forks none once something that it has imported is another.
    """
    control, began_ns = socket.socket(fileno=REQUEST_FD), time.time_ns()
    control.set_inheritable(False)
    if reason := _unfit(load, always):
        _reply(control, {"ready": False, "reason": reason})
        sys.exit(0)
    # Imported modules stay: no collection needs to look at it again.
    gc.collect()
    gc.freeze()
    imported = None if stays is None else Imported(began_ns, stays)
    code = code_of_user() if imported else ""
    cannot_stay = f"{code}, code of yours, is imported at its start"
    _reply(control, {"ready": True, "cannot_stay": cannot_stay if code else None})
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, LONGEST_REQUEST, DESCRIPTORS)
        if len(descriptors) < DESCRIPTORS:
            # To take an interpreter with torch down takes longer than to start a worker.
            os._exit(0)
        asked = json.loads(data)
        reason, forked = imported.changed() if imported else "", False
        try:
            forked = not reason and _forked(asked, descriptors)
        except OSError as error:
            reason = f"it could not fork: {error}"
        if forked:
            control.detach()
            return bool(asked["serves"])
        _reply(control, {"forked": not reason, "reason": reason})
        for descriptor in descriptors:
            os.close(descriptor)


def _reply(control: socket.socket, message: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError):
        control.sendall(json.dumps(message).encode() + b"\n")


def _forked(asked: dict[str, Any], descriptors: list[int]) -> bool:
    """True in the worker alone."""
    between = os.fork()
    if between:
        _, status = os.waitpid(between, 0)
        if status:
            number = os.waitstatus_to_exitcode(status)
            reason = os.strerror(number) if number > 0 else f"it was ended by signal {-number}"
            raise OSError(number, f"the process that forks the supervisor: {reason}")
        return False
    try:
        if os.fork():
            os._exit(0)
    except OSError as error:
        # No processes, no memory: the only way to say so is its exit code.
        os._exit(error.errno or 1)
    try:
        return _supervised(asked, descriptors)
    except BaseException:
        os._exit(1)


def _supervised(asked: dict[str, Any], descriptors: list[int]) -> Literal[True]:
    """Forks the worker, where it returns, and becomes its supervisor."""
    *_, leash, executable = descriptors
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    os.setpgid(0, 0)
    supervisor = os.getpid()
    worker = os.fork()
    if worker == 0:
        _become_worker(supervisor, descriptors)
        if not asked["serves"]:
            _own_memory()
        return True
    os.set_inheritable(leash, True)
    words = [*asked["supervisor"], str(leash), str(worker)]
    raise SystemExit(os.execve(executable, words, os.environ))


def _become_worker(supervisor: int, descriptors: list[int]) -> None:
    """Takes the place that a started worker finds itself in."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:
        os._exit(1)
    os.setpgid(0, 0)
    # Above all targets first, or one would be closed before it is put in its place.
    high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, ABOVE) for descriptor in descriptors[:3]]
    for descriptor in descriptors:
        os.close(descriptor)
    requests, replies, log = high
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    if nothing:
        os.close(nothing)
    for source, target in (
        (log, 1),
        (log, 2),
        (requests, REQUEST_FD),
        (replies, REPLY_FD),
    ):
        os.dup2(source, target)
    for descriptor in high:
        os.close(descriptor)
    _draw_again()


def _draw_again() -> None:
    """Draws what a process draws when it starts: else a function that draws its data measures the
    same draw in each invocation. Generators that a module has made itself stay as they were, and
    so does the seed by which Python hashes strings: it is in each hash that was kept."""
    random.seed()
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        numpy.seed()


def _own_memory() -> None:
    """Copies the pages that are shared with the server until one of the two writes to them: else
    they would be copied inside of the calls that first do, if only by counting a reference."""
    libc, region = ctypes.CDLL(None), (0, 0)
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, _, rest = line.partition(" ")
        if first.endswith(":"):
            if first == "Anonymous:" and region[1]:
                begin, end = region
                kib = int(rest.split()[0])
                # Memory that was reserved and hardly used stays as it is.
                if 2 * kib << 10 >= end - begin:
                    size = ctypes.c_size_t(end - begin)
                    # Fails on Linux before 5.14, where pages are copied one by one as ever.
                    libc.madvise(ctypes.c_void_p(begin), size, MADV_POPULATE_WRITE)
        elif rest.startswith("rw-p"):
            begin, end = (int(number, 16) for number in first.split("-"))
            region = (begin, end)
        else:
            region = (0, 0)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def _unfit(load: Iterable[Callable[[], Any]], always: bool) -> str:
    """Why workers of this library are not forked; empty where they are."""
    if not always and not _sees_gpu():
        return ON_A_CPU
    try:
        for step in load:
            step()
    except Exception as error:
        # A worker that is started says it in its own words.
        return f"{type(error).__name__} while it was imported: {error}"
    if _cuda_began():
        return "importing it opens a CUDA device, which no fork can use"
    return _threads_left()


def _sees_gpu() -> bool:
    """Asks whether a GPU is visible, in a process of its own: NVML leaves a thread."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "all").strip() in ("", "-1"):
        return False
    looking = os.fork()
    if looking == 0:
        try:
            nvml, count = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_uint(0)
            nvml.nvmlInit_v2()
            nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
            os._exit(0 if count.value else 1)
        finally:
            os._exit(1)
    return os.waitpid(looking, 0)[1] == 0


def _cuda_began() -> bool:
    """True if this process has initialised CUDA, by torch's word and by the driver's."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return True
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return False
    count = ctypes.c_int()
    return bool(driver.cuDeviceGetCount(ctypes.byref(count)) != CUDA_ERROR_NOT_INITIALIZED)


def _threads_left() -> str:
    """Which threads a fork would lose, after one on trial: some libraries, such as OpenBLAS,
    end theirs before a fork and start them again when they are wanted."""
    with warnings.catch_warnings():
        # Python's, of threads that there are: they are looked at below.
        warnings.simplefilter("ignore", DeprecationWarning)
        trial = os.fork()
    if trial == 0:
        os._exit(0)
    os.waitpid(trial, 0)
    tasks = Path("/proc/self/task")
    others = [task for task in tasks.iterdir() if task.name != str(os.getpid())]
    if not others:
        return ""
    names = sorted({(task / "comm").read_text().strip() for task in others})
    return f"importing it starts {len(others)} threads ({', '.join(names)}), which a fork loses"
