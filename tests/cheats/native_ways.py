"""Ways to look faster than a function is on a processor, by native code, other processes and the
interpreter's own hooks: each a function of `q, k, v` in bhsd, right in its first call. A docstring
says what it does, and stands in docs/CHEATS.md. `python/tests/cheats.py` has those of plain Python.

`REGATTA_NATIVE_WAYS` names the library that `table.py` compiles of native.c.
"""

from __future__ import annotations

import _thread
import ctypes
import gc
import json
import mmap
import os
import random
import signal
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np

_kept: dict[Any, Any] = {}
"""Results that calls leave for the next ones. A process serves one way."""


def _attend(q: Any, k: Any, v: Any) -> Any:
    if not isinstance(q, np.ndarray):
        return sys.modules["torch"].nn.functional.scaled_dot_product_attention(q, k, v)
    scores = q @ k.swapaxes(2, 3) * np.float32(q.shape[-1] ** -0.5)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return weights @ v


def honest(q: Any, k: Any, v: Any) -> Any:
    """computes attention in every call: no cheat"""
    return _attend(q, k, v)


def _native() -> Any:
    if "native" not in _kept:
        _kept["native"] = ctypes.CDLL(os.environ["REGATTA_NATIVE_WAYS"])
    return _kept["native"]


def _once(what: str) -> bool:
    """True the first time in this process."""
    key = (what, os.getpid())
    return _kept.setdefault(key, True) and not _kept.update({key: False})


def _begin(name: str, *arguments: int) -> None:
    """Calls a function of native.c once. Raises where it could not do what it is for."""
    if _once(name) and (status := getattr(_native(), name)(*arguments)) != 0:
        raise RuntimeError(f"{name}: {status}")


def _key(*inputs: Any) -> bytes:
    """Some elements of each, by which sets of inputs differ."""
    flat = [x.reshape(-1) for x in inputs]
    return b"".join(x[place].tobytes() for x in flat for place in (0, x.size // 2, -1))


def _in_call_of(name: str) -> Any:
    """The frame of a caller of this name; None without one."""
    frame: Any = sys._getframe(1)
    while frame and frame.f_code.co_name != name:
        frame = frame.f_back
    return frame


def _divide_times(measured: Any, divisor: int = 2) -> None:
    for name in ("device_ns", "cpu_ns"):
        if isinstance(measured, dict) and name in measured:
            measured[name] = [type(time)(time / divisor) for time in measured[name]]


# The clocks.


def clock_patched(q: Any, k: Any, v: Any) -> Any:
    """writes a jump over libc's clock_gettime: all clocks run at half speed"""
    _begin("patch_clocks", 2)
    return _attend(q, k, v)


def clock_patched_much(q: Any, k: Any, v: Any) -> Any:
    """the same at a tenth"""
    _begin("patch_clocks", 10)
    return _attend(q, k, v)


def wall_patched(q: Any, k: Any, v: Any) -> Any:
    """the same for the monotonic clock alone"""
    _begin("patch_monotonic")
    return _attend(q, k, v)


def vdso_patched(q: Any, k: Any, v: Any) -> Any:
    """writes the jump into the kernel's page of clocks (vDSO)"""
    _begin("patch_vdso")
    return _attend(q, k, v)


def counter_trapped(q: Any, k: Any, v: Any) -> Any:
    """has each reading of the time-stamp counter fault, and answers with one at half speed"""
    _begin("trap_counter")
    return _attend(q, k, v)


def calls_trapped(q: Any, k: Any, v: Any) -> Any:
    """traps the system call clock_gettime by seccomp, and answers with half of the time"""
    _begin("trap_calls")
    return _attend(q, k, v)


def clock_replaced(q: Any, k: Any, v: Any) -> Any:
    """puts an object in the place of time.perf_counter_ns, which its file does not define"""
    if _once("clock"):
        time.perf_counter_ns = _HalfSpeed(time.perf_counter_ns)
    return _attend(q, k, v)


class _HalfSpeed:
    def __init__(self, real: Any) -> None:
        self.real, self.first = real, real()

    def __call__(self) -> int:
        return int(self.first + (self.real() - self.first) // 2)


def clock_in_call(q: Any, k: Any, v: Any) -> Any:
    """changes the variable of the timing function that holds when the call began"""
    out = _attend(q, k, v)
    frame = _in_call_of("sample")
    if frame and "begin" in frame.f_locals:
        begin = frame.f_locals["begin"]
        now = time.perf_counter_ns()
        # The integer itself, where it lies.
        later, size = begin + (now - begin) // 2, (begin.bit_length() + 29) // 30
        place = (ctypes.c_uint32 * size).from_address(id(begin) + int.__basicsize__)
        for digit in range(size):
            place[digit] = later >> 30 * digit & (1 << 30) - 1
    return out


def clock_of_harness(q: Any, k: Any, v: Any) -> Any:
    """writes over clock_gettime in the memory of regatta itself, and slows its own"""
    if _once("harness"):
        slowed = [_native().slow_process(process) for process in _ancestors()]
        if 0 not in slowed:
            raise RuntimeError(f"no process could be slowed: {slowed}")
        _begin("patch_clocks", 2)
    return _attend(q, k, v)


def _ancestors() -> list[int]:
    found, process = [], os.getppid()
    while process > 1:
        if "regatta" in Path(f"/proc/{process}/comm").read_text():
            found.append(process)
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    return found


def waits_forged(q: Any, k: Any, v: Any) -> Any:
    """has a child compute, and its own thread seem to wait for a core (libc's pread)"""
    _begin("forge_waits")
    return _in_child(q, k, v)


def _in_child(q: Any, k: Any, v: Any) -> Any:
    size = q.nbytes
    if _once("child"):
        shared = mmap.mmap(-1, 4 * size)
        (asked, ask), (done, tell) = os.pipe(), os.pipe()
        if os.fork() == 0:
            arrays = [
                np.frombuffer(shared, q.dtype, q.size, i * size).reshape(q.shape) for i in range(4)
            ]
            while os.read(asked, 1):
                arrays[3][...] = _attend(*arrays[:3])
                os.write(tell, b"x")
            os._exit(0)
        _kept["child"] = shared, ask, done
    shared, ask, done = _kept["child"]
    for i, x in enumerate((q, k, v)):
        np.frombuffer(shared, q.dtype, q.size, i * size).reshape(q.shape)[...] = x
    os.write(ask, b"x")
    os.read(done, 1)
    return np.frombuffer(shared, q.dtype, q.size, 3 * size).reshape(q.shape).copy()


def waits_made(q: Any, k: Any, v: Any) -> Any:
    """slows its clocks, and has threads spin on its core as the harness looks for waits"""
    _begin("patch_clocks", 2)
    if _in_call_of("repeat"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        if _once("spin"):
            _native().start_spinning(6)
        # Longer than a time slice.
        for _ in range(3):
            _attend(q, k, v)
    return _attend(q, k, v)


# The replies.


def child_replies(q: Any, k: Any, v: Any) -> Any:
    """has a child sit on descriptor 4 and halve the times on their way out"""
    if _once("reply"):
        real, (read, write) = os.dup(4), os.pipe()
        if os.fork() == 0:
            os.close(write)
            _pass_on(read, real)
            os._exit(0)
        os.dup2(write, 4)
    return _attend(q, k, v)


def _pass_on(read: int, real: int, divisor: int = 2, delay_s: float = 0) -> None:
    with os.fdopen(read, "rb") as lines:
        for line in lines:
            if delay_s and not _kept.pop("called", False):
                time.sleep(delay_s)
            message = json.loads(line or b"{}")
            _divide_times(message, divisor)
            os.write(real, json.dumps(message).encode() + b"\n")


def thread_replies(q: Any, k: Any, v: Any) -> Any:
    """has a thread do so, which is of the same process"""
    _answer_by_thread(2)
    return _attend(q, k, v)


def thread_replies_much(q: Any, k: Any, v: Any) -> Any:
    """the same, a tenth of the times"""
    _answer_by_thread(10)
    return _attend(q, k, v)


def replies_delayed(q: Any, k: Any, v: Any) -> Any:
    """the same, half of the times, and sends late what replies to requests that make no calls"""
    _answer_by_thread(2, 0.006)
    _kept["called"] = True
    return _attend(q, k, v)


def _answer_by_thread(divisor: int, delay_s: float = 0) -> None:
    if _once("reply"):
        real, (read, write) = os.dup(4), os.pipe()
        os.dup2(write, 4)
        _thread.start_new_thread(_pass_on, (read, real, divisor, delay_s))


def write_patched(q: Any, k: Any, v: Any) -> Any:
    """writes a jump over libc's write, which halves the times in what is written"""
    _begin("patch_write")
    return _attend(q, k, v)


def parent_traced(q: Any, k: Any, v: Any) -> Any:
    """has a child trace it (ptrace) and halve the times in what it writes"""
    _begin("trace_writes")
    return _attend(q, k, v)


def reply_replaced(q: Any, k: Any, v: Any) -> Any:
    """puts an object in the place of json.dumps that halves the times"""
    if _once("reply"):
        json.dumps = _Halving(json.dumps)
    return _attend(q, k, v)


class _Halving:
    def __init__(self, real: Any) -> None:
        self.real = real

    def __call__(self, message: Any, **options: Any) -> Any:
        _divide_times(message)
        return self.real(message, **options)


def checks_dropped(q: Any, k: Any, v: Any) -> Any:
    """computes once, and has libc's write leave out what says that results were checked"""
    _begin("drop_checked")
    if "out" not in _kept:
        _kept["out"] = _attend(q, k, v)
    return _kept["out"].copy()


# The worker's own code and values.


def code_replaced(q: Any, k: Any, v: Any) -> Any:
    """has the worker's function of samples run other code, compiled under the name of its file"""
    if _once("code"):
        timing: Any = sys.modules["regatta_worker.clock.timing"]
        real = timing.usage_lists
        source = (
            "def usage_lists(usages):\n"
            "    import sys\n"
            "    times = sys._getframe(1).f_locals['measured']\n"
            "    times['device_ns'] = [ns / 2 for ns in times['device_ns']]\n"
            "    return {'threads': [u.threads for u in usages],\n"
            "            'waited_ns': [u.waited_ns for u in usages]}\n"
        )
        made: dict[str, Any] = {}
        exec(compile(source, timing.__file__, "exec"), made)
        real.__code__ = made["usage_lists"].__code__
    return _attend(q, k, v)


def times_edited(q: Any, k: Any, v: Any) -> Any:
    """halves the earlier samples, in the list that a frame of its callers holds"""
    frame = _in_call_of("take_samples")
    if frame and (samples := frame.f_locals.get("samples")):
        last = samples[-1]
        if _kept.get("edited") is not last:
            _kept["edited"] = _halved(last)
    return _attend(q, k, v)


def _halved(sample: Any) -> Any:
    object.__setattr__(sample, "device_ns", sample.device_ns / 2)
    return sample


def times_found(q: Any, k: Any, v: Any) -> Any:
    """finds the samples by the garbage collector, and halves them"""
    timing: Any = sys.modules["regatta_worker.clock.timing"]
    done = _kept.setdefault("done", [])
    for sample in gc.get_objects():
        if type(sample) is timing.Sample and not any(sample is each for each in done):
            done.append(_halved(sample))
    return _attend(q, k, v)


def profile_hook(q: Any, k: Any, v: Any) -> Any:
    """leaves a profile function on, which halves what the function of samples returns"""

    def hook(frame: Any, event: str, value: Any) -> None:
        if event == "return" and frame.f_code.co_name == "take_samples":
            _divide_times(value)

    sys.setprofile(hook)
    return _attend(q, k, v)


def trace_hook(q: Any, k: Any, v: Any) -> Any:
    """leaves a trace function on, which does so"""

    def hook(frame: Any, event: str, value: Any) -> Any:
        if frame.f_code.co_name != "take_samples":
            return None
        if event == "return":
            _divide_times(value)
        return hook

    sys.settrace(hook)
    return _attend(q, k, v)


def draws_known(q: Any, k: Any, v: Any) -> Any:
    """puts its own generator in the place of that which draws the calls to check, and computes
    in those"""
    drawn: Any = sys.modules["regatta_worker.problem.input_sets"]
    if _once("draw"):
        drawn.DRAW = random.Random(7)
        _kept.update(copy=random.Random(7), calls=0, out=_attend(q, k, v))
        return _kept["out"]
    if not (frame := _in_call_of("take_samples")):
        return _kept["out"].copy()
    _kept["calls"] += 1
    number = _kept["calls"]
    place = _kept["copy"].randrange(number) if number > 3 else 0
    return _attend(q, k, v) if place < 3 or frame.f_locals.get("last") else _kept["out"].copy()


def repeats_replaced(q: Any, k: Any, v: Any) -> Any:
    """slows its clocks, and has the worker make half of the calls that the harness times"""
    _begin("patch_clocks", 2)
    if _once("repeat"):
        case: Any = sys.modules["regatta_worker.case"]
        real = case.CaseWorker.repeat
        case.CaseWorker.repeat = _Fewer(real)
    return _attend(q, k, v)


class _Fewer:
    def __init__(self, real: Any) -> None:
        self.real = real

    def __get__(self, worker: Any, kind: Any) -> Any:
        return lambda calls, *more: self.real(worker, max(1, calls // 2), *more)


def repeats_skipped(q: Any, k: Any, v: Any) -> Any:
    """slows its clocks, and computes in one in four of the calls that the harness times"""
    _begin("patch_clocks", 2)
    if _in_call_of("repeat"):
        _kept["repeat"] = _kept.get("repeat", 0) + 1
        if _kept["repeat"] % 4:
            return _kept["out"].copy()
    _kept["out"] = _attend(q, k, v)
    return _kept["out"].copy()


def repeats_by_contents(q: Any, k: Any, v: Any) -> Any:
    """slows its clocks, and keeps its result by the contents of its inputs"""
    _begin("patch_clocks", 2)
    return _by_contents(q, k, v).copy()


def _by_contents(q: Any, k: Any, v: Any) -> Any:
    key = _key(q, k, v)
    if key not in _kept:
        _kept[key] = _attend(q, k, v)
    return _kept[key]


# Results that are computed ahead of the call, or when they are looked at.


def ahead_by_profile(q: Any, k: Any, v: Any) -> Any:
    """leaves a profile function on, and computes there as soon as the inputs have changed"""

    def hook(frame: Any, event: str, value: Any) -> None:
        if event == "return" and frame.f_code.co_name in ("put", "change"):
            _by_contents(q, k, v)

    sys.setprofile(hook)
    return _by_contents(q, k, v).copy()


def ahead_by_audit(q: Any, k: Any, v: Any) -> Any:
    """has an audit hook, which no one can remove, compute when the worker opens a file"""

    def hook(event: str, _: Any) -> None:
        if event in ("open", "os.listdir"):
            _by_contents(q, k, v)

    if _once("audit"):
        sys.addaudithook(hook)
    return _by_contents(q, k, v).copy()


def ahead_by_collector(q: Any, k: Any, v: Any) -> Any:
    """has the garbage collector, that it calls for all the time, compute"""
    if _once("collector"):
        gc.callbacks.append(lambda phase, _: phase == "start" and _by_contents(q, k, v))
        gc.set_threshold(1)
    return _by_contents(q, k, v).copy()


def ahead_by_alarm(q: Any, k: Any, v: Any) -> Any:
    """has a timer's signal compute"""

    def handler(*_: Any) -> None:
        _by_contents(q, k, v)
        signal.setitimer(signal.ITIMER_REAL, 2e-4)

    if _once("alarm"):
        signal.signal(signal.SIGALRM, handler)
        handler()
    return _by_contents(q, k, v).copy()


def ahead_by_thread(q: Any, k: Any, v: Any) -> Any:
    """has a thread compute that no list of threads has"""

    def watch() -> None:
        while True:
            time.sleep(0)
            _by_contents(q, k, v)

    if _once("thread"):
        _thread.start_new_thread(watch, ())
    return _by_contents(q, k, v).copy()


def ahead_by_child(q: Any, k: Any, v: Any) -> Any:
    """has a child read its inputs in its memory, and compute as soon as they change"""
    size, parent = q.nbytes, os.getpid()
    if _once("child"):
        _kept["shared"] = shared = mmap.mmap(-1, size + 4096)
        if os.fork() == 0:
            memory = os.open(f"/proc/{parent}/mem", os.O_RDONLY)
            out = np.frombuffer(shared, q.dtype, q.size).reshape(q.shape)
            made = b""
            while True:
                # The child's own arrays, as the parent's are now.
                for x in (q, k, v):
                    whole = x if x.base is None else x.base
                    whole.setflags(write=True)
                    os.preadv(memory, [whole.data.cast("B")], x.ctypes.data)
                key = _key(q, k, v)
                if key != made:
                    shared[size : size + len(key)] = bytes(len(key))
                    out[...] = _attend(q, k, v)
                    shared[size : size + len(key)] = made = key
        return _attend(q, k, v)
    key = _key(q, k, v)
    if _kept["shared"][size : size + len(key)] == key:
        return np.frombuffer(_kept["shared"], q.dtype, q.size).reshape(q.shape).copy()
    return _attend(q, k, v)


def seeds_known(q: Any, k: Any, v: Any) -> Any:
    """makes the sets of inputs itself in its first call, and keeps their results"""
    if _once("seeds"):
        frame = _in_call_of("build")
        request, worker = frame.f_locals["request"], frame.f_locals["self"]
        turned = request.problem.turned
        for number in range(1, 200):
            made = worker.inputs(request.problem, request.seed + number)
            _by_contents(*(turned(made[name]) for name in ("q", "k", "v")))
    return _by_contents(q, k, v).copy()


def touched_later(q: Any, k: Any, v: Any) -> Any:
    """returns memory whose first touch computes (mprotect and a handler of SIGSEGV)"""
    fill = ctypes.CFUNCTYPE(None)
    if _once("memory"):
        _kept["memory"] = [
            np.frombuffer(mmap.mmap(-1, (q.nbytes + 4095) & ~4095), q.dtype, q.size).reshape(
                q.shape
            )
            for _ in range(2)
        ]
        _kept["fill"] = fill(lambda: None)
        return _attend(q, k, v)
    _native().show()
    out = _kept["memory"][0]
    _kept["memory"].reverse()
    _kept["fill"] = fill(lambda: out.__setitem__(..., _attend(q, k, v)))
    _native().hide(
        ctypes.c_void_p(out.ctypes.data), ctypes.c_size_t((q.nbytes + 4095) & ~4095), _kept["fill"]
    )
    return out


def filled_by_hook(q: Any, k: Any, v: Any) -> Any:
    """returns memory that a profile function fills when the worker comes to check it"""
    if _once("hook"):
        return _attend(q, k, v)
    out = np.empty_like(q)
    inputs = (q, k, v)

    def hook(frame: Any, event: str, value: Any) -> None:
        if event == "call" and frame.f_code.co_name in ("look", "cut", "spot_checks"):
            sys.setprofile(None)
            out[...] = _attend(*inputs)

    sys.setprofile(hook)
    return out


def filled_by_thread(q: Any, k: Any, v: Any) -> Any:
    """returns memory that a thread of no list fills after the call"""
    if _once("thread"):
        return _attend(q, k, v)
    out = np.empty_like(q)
    _thread.start_new_thread(lambda: out.__setitem__(..., _attend(q, k, v)), ())
    return out


def expected_copied(q: Any, k: Any, v: Any) -> Any:
    """has a profile function copy what the check expects over the result"""
    if _once("hook"):
        return _attend(q, k, v)
    out = np.empty_like(q)

    def hook(frame: Any, event: str, value: Any) -> None:
        if event == "call" and frame.f_code.co_name == "difference":
            for pair in frame.f_locals.get("pairs", ()):
                if all(isinstance(x, np.ndarray) for x in pair):
                    pair[0][...] = pair[1]

    sys.setprofile(hook)
    return out


def planes_alone(q: Any, k: Any, v: Any) -> Any:
    """keeps all heads but one as they were, and reads in frames which plane will be checked"""
    if _once("planes"):
        _kept["out"] = _attend(q, k, v)
        return _kept["out"].copy()
    out = _kept["out"].copy()
    out[:, :1] = _attend(q[:, :1], k[:, :1], v[:, :1])
    return out


# Files.


def run_file_edited(q: Any, k: Any, v: Any) -> Any:
    """halves its times in the file of the run, where an earlier invocation's stand"""
    if _once("file"):
        _edit(Path(os.environ["REGATTA_NATIVE_WAYS"]).parent / "run/run.jsonl")
    return _attend(q, k, v)


def _edit(path: Path) -> None:
    lines = path.read_text().splitlines()
    for number, line in enumerate(lines):
        if "/run_file_edited " in line and '"device_ns":[' in line:
            message = json.loads(line)
            samples = message["outcome"]["measured"]["samples"]
            samples["device_ns"] = [time / 2 for time in samples["device_ns"]]
            del message["sum"]
            text = json.dumps(message, separators=(",", ":"))
            # With a checksum that is right.
            lines[number] = f'{text[:-1]},"sum":"{zlib.crc32(text.encode()):08x}"}}'
    with path.open("r+") as file:
        file.write("\n".join(lines) + "\n")
        file.truncate()
