"""Forks workers from a server that has imported their library, so that a start needs no import.

The server does nothing but import. A fork would break open devices and running threads, so the
server checks that it has neither. A forked worker is like a worker that was started separately:
it has its own descriptors, log, process group and supervisor.

    server ──fork── (ends at once) ──fork── the worker's supervisor ──fork── the worker

While files are watched, such a worker is itself a server, for one answer (`beginnings.py`).

The parent of the worker's supervisor ends, so the supervisor of the server adopts and reaps the
worker's supervisor. That one executes regatta's supervisor program
(crates/measure/src/worker/supervisor.rs) and stays the worker's parent.
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
"""Number sent with each request: requests, replies, log, the supervisor's socket and program."""
ABOVE = 20
"""Received descriptors are duplicated to this number or above, clear of their final numbers."""

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
    """Serves until the harness has gone. Returns only in forked processes: True in one that will
    itself be a server, False in a worker.

    The steps of `load` import the library. `always` forks workers on a CPU too. `stays` names the
    folders of the code, for a server that outlives changes of it: such a server stops forking once
    something that it has imported has changed.
    """
    control, began_ns = socket.socket(fileno=REQUEST_FD), time.time_ns()
    control.set_inheritable(False)
    if reason := _unfit(load, always):
        _reply(control, {"ready": False, "reason": reason})
        sys.exit(0)
    # Imported modules stay, so that no later garbage collection needs to examine them.
    gc.collect()
    gc.freeze()
    imported = None if stays is None else Imported(began_ns, stays)
    code = code_of_user() if imported else ""
    cannot_stay = f"{code}, code of yours, is imported at its start"
    _reply(control, {"ready": True, "cannot_stay": cannot_stay if code else None})
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, LONGEST_REQUEST, DESCRIPTORS)
        if len(descriptors) < DESCRIPTORS:
            # Shutting down an interpreter with torch takes longer than starting a worker.
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
    """Forks a worker. Returns True in the worker and False in the server."""
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
        # No more processes or memory: only the exit code can report that.
        os._exit(error.errno or 1)
    try:
        return _supervised(asked, descriptors)
    except BaseException:
        os._exit(1)


def _supervised(asked: dict[str, Any], descriptors: list[int]) -> Literal[True]:
    """Forks the worker and becomes its supervisor. Returns only in the worker."""
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
    """Sets up this process as one that was started as a worker: descriptors, group, signals."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:
        os._exit(1)
    os.setpgid(0, 0)
    # First moved above all targets, or one could be overwritten before it is duplicated.
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
    """Reseeds the global generators, as a new process does. Otherwise a function that draws its
    data would use the same data in each invocation. Generators that a module has created are not
    reseeded, nor is Python's seed for hashes of strings, on which stored hashes depend."""
    random.seed()
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        numpy.seed()


def _own_memory() -> None:
    """Copies the pages that this process shares copy-on-write with the server. Otherwise the first
    call that writes to a page, if only to count a reference, would include the time of the copy."""
    libc, region = ctypes.CDLL(None), (0, 0)
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, _, rest = line.partition(" ")
        if first.endswith(":"):
            if first == "Anonymous:" and region[1]:
                begin, end = region
                kib = int(rest.split()[0])
                # Regions that are less than half used are skipped.
                if 2 * kib << 10 >= end - begin:
                    size = ctypes.c_size_t(end - begin)
                    # Fails on Linux before 5.14, where pages are copied when first written.
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
    """Returns the reason why workers of this library cannot be forked; empty if they can be."""
    if not always and not _sees_gpu():
        return ON_A_CPU
    try:
        for step in load:
            step()
    except Exception as error:
        # A worker that is started instead reports the error in full.
        return f"{type(error).__name__} while it was imported: {error}"
    if _cuda_began():
        return "importing it opens a CUDA device, which no fork can use"
    return _threads_left()


def _sees_gpu() -> bool:
    """True if a GPU is visible. Asks in a separate process, because NVML leaves a thread."""
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
    """True if this process has initialised CUDA, according to torch or to the driver."""
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
    """Names the threads that a fork would lose; empty if there aren't any. Tries a fork first: some
    libraries, such as OpenBLAS, end their threads before a fork and restart them when needed."""
    with warnings.catch_warnings():
        # Python warns of a fork with threads, which are checked below.
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
