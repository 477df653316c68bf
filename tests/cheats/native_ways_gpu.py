"""Ways to look faster than a function is on a GPU, by native code, streams, the cache and the
interpreter's hooks: each a function of `q, k, v` in bhsd on torch, right in its first call. A
docstring says what it does, and stands in docs/CHEATS.md. `python/tests/cheats.py` has more.
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import gc
import sys
import time
from typing import Any

import torch
from native_ways import _answer_by_thread, _attend, _begin, _in_call_of, _once
from native_ways import honest as honest
from native_ways import parent_traced as parent_traced
from native_ways import profile_hook as profile_hook
from native_ways import reply_replaced as reply_replaced
from native_ways import times_edited as times_edited
from native_ways import write_patched as write_patched

_kept: dict[Any, Any] = {}


def _side() -> Any:
    return _kept.setdefault("side", torch.cuda.Stream())


def _by_contents(q: Any, k: Any, v: Any) -> Any:
    """The result that is kept by some elements, which go to the host."""
    key = tuple(torch.stack([x.reshape(-1)[7] for x in (q, k, v)]).tolist())
    if key not in _kept:
        _kept[key] = _attend(q, k, v)
    return _kept[key]


def _ahead(q: Any, k: Any, v: Any) -> None:
    """Computes on another stream where the inputs have changed, by torch's version counters."""
    key = (q._version, k._version, v._version)
    if _kept.get("made") != key:
        with torch.cuda.stream(_side()):
            _kept.update(out=_attend(q, k, v), made=key)
            _side().synchronize()


def _made_ahead(q: Any, k: Any, v: Any) -> Any:
    if _kept.get("made") == (q._version, k._version, v._version):
        return _kept["out"]
    return _attend(q, k, v)


# The cache.


def _persist(tensors: Any, limit: bool) -> None:
    """Has the L2 keep these tensors, by the driver's access policy of the current stream."""

    class Window(ctypes.Structure):
        _fields_ = (
            ("base", ctypes.c_void_p),
            ("size", ctypes.c_size_t),
            ("ratio", ctypes.c_float),
            ("hit", ctypes.c_int),
            ("miss", ctypes.c_int),
            ("rest", ctypes.c_char * 64),
        )

    driver = ctypes.CDLL("libcuda.so.1")
    persisting_limit, window_attribute, streaming, persisting = 6, 1, 1, 2
    if limit:
        driver.cuCtxSetLimit(persisting_limit, ctypes.c_size_t(1 << 30))
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    for x in tensors:
        size = min(x.nbytes, 32 << 20)
        window = Window(x.data_ptr(), size, 1.0, persisting, streaming)
        driver.cuStreamSetAttribute(stream, window_attribute, ctypes.byref(window))


def persisting_cache(q: Any, k: Any, v: Any) -> Any:
    """has the L2 cache keep its keys through the flush (persisting lines)"""
    if _once("persist"):
        _persist((k,), True)
    return _attend(q, k, v)


def persisting_in_each_call(q: Any, k: Any, v: Any) -> Any:
    """the same again in each call, with the limit of persisting lines"""
    _persist((v, k), True)
    return _attend(q, k, v)


def cache_filled_last(q: Any, k: Any, v: Any) -> Any:
    """reads its inputs again on another stream once it is done, so that they lie in the cache"""
    out = _attend(q, k, v)
    _side().wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(_side()):
        for _ in range(8):
            k.sum(), v.sum()
    return out


def cache_filled_first(q: Any, k: Any, v: Any) -> Any:
    """reads its inputs on a stream that is not held, before its own can begin"""
    with torch.cuda.stream(_side()):
        k.sum(), v.sum(), q.sum()
    return _attend(q, k, v)


# The clock and the replies.


def driver_events(q: Any, k: Any, v: Any) -> Any:
    """writes a jump over the driver's cuEventElapsedTime, which halves times"""
    _begin("patch_driver_events")
    return _attend(q, k, v)


def driver_waits(q: Any, k: Any, v: Any) -> Any:
    """has the driver's cuCtxSynchronize do nothing, and computes on another stream"""
    _begin("patch_driver_waits")
    with torch.cuda.stream(_side()):
        return _attend(q, k, v)


def host_clock(q: Any, k: Any, v: Any) -> Any:
    """writes a jump over libc's clock_gettime"""
    _begin("patch_clocks", 2)
    return _attend(q, k, v)


def thread_replies(q: Any, k: Any, v: Any) -> Any:
    """has a thread sit on descriptor 4 and halve the times on their way out"""
    _answer_by_thread(2)
    return _attend(q, k, v)


def checks_dropped(q: Any, k: Any, v: Any) -> Any:
    """returns zeros, and has libc's write leave out what says that results were checked"""
    _begin("drop_checked")
    if _once("first"):
        return _attend(q, k, v)
    return torch.zeros_like(q)


def code_replaced(q: Any, k: Any, v: Any) -> Any:
    """has the worker's clock run other code, compiled under the name of its file"""
    if _once("code"):
        probe: Any = sys.modules["regatta_worker.clock.probe"]
        source = "def sample(self, cold, call):\n    return Sample(1e5, 1e4, None, False)\n"
        made: dict[str, Any] = {}
        exec(compile(source, probe.__file__, "exec"), made)
        probe.Probe.sample.__code__ = made["sample"].__code__
    return _attend(q, k, v)


# Streams.


def stream_left(q: Any, k: Any, v: Any) -> Any:
    """leaves another stream as the current one"""
    if _once("stream"):
        torch.cuda.set_stream(_side())
    return _attend(q, k, v)


def default_stream(q: Any, k: Any, v: Any) -> Any:
    """computes on the default stream, whatever stream it is called on"""
    with torch.cuda.stream(_kept.setdefault("other", torch.cuda.ExternalStream(1))):
        return _attend(q, k, v)


def graph_on_another_stream(q: Any, k: Any, v: Any) -> Any:
    """replays a CUDA graph on a stream that nothing waits for"""
    if "graph" not in _kept:
        _side().wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(_side()):
            _attend(q, k, v)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=_side()):
            out = _attend(q, k, v)
        _kept.update(graph=graph, out=out)
    with torch.cuda.stream(_side()):
        _kept["graph"].replay()
    return _kept["out"]


def later_by_event(q: Any, k: Any, v: Any) -> Any:
    """has another stream compute once the call's own has passed its end"""
    out = torch.empty_like(q)
    _side().wait_event(torch.cuda.current_stream().record_event())
    with torch.cuda.stream(_side()):
        out.copy_(_attend(q, k, v))
    return out


def honest_when_held(q: Any, k: Any, v: Any) -> Any:
    """has a thread of no list compute ahead, and is honest where frames say that it is held"""
    if _in_call_of("check_order") or _in_call_of("repeat"):
        return _attend(q, k, v)

    def watch() -> None:
        while True:
            time.sleep(0)
            _ahead(q, k, v)

    if _once("thread"):
        _thread.start_new_thread(watch, ())
    return _made_ahead(q, k, v)


def hold_removed(q: Any, k: Any, v: Any) -> Any:
    """has torch.cuda._sleep hold no stream, and computes on one that nothing waits for"""
    if _once("sleep"):
        torch.cuda._sleep = int
    with torch.cuda.stream(_side()):
        return _attend(q, k, v)


# Results ahead of the call, kept, or of less work.


def ahead_by_profile(q: Any, k: Any, v: Any) -> Any:
    """leaves a profile function on, and computes there as soon as the inputs have changed"""

    def hook(frame: Any, event: str, value: Any) -> None:
        if event == "return" and frame.f_code.co_name in ("change", "_put_in_place"):
            _ahead(q, k, v)

    sys.setprofile(hook)
    return _made_ahead(q, k, v)


def ahead_by_audit(q: Any, k: Any, v: Any) -> Any:
    """has an audit hook, which no one can remove, compute"""
    if _once("audit"):
        sys.addaudithook(lambda event, _: event in ("open", "os.listdir") and _ahead(q, k, v))
    return _made_ahead(q, k, v)


def ahead_by_collector(q: Any, k: Any, v: Any) -> Any:
    """has the garbage collector, that it calls for all the time, compute"""
    if _once("collector"):
        gc.callbacks.append(lambda phase, _: phase == "start" and _ahead(q, k, v))
        gc.set_threshold(1)
    return _made_ahead(q, k, v)


def sets_known(q: Any, k: Any, v: Any) -> Any:
    """makes the sets of inputs and their places in memory itself, and keeps their results"""
    if _once("sets"):
        frame = _in_call_of("build")
        inputs: Any = sys.modules["regatta_worker.on_torch.inputs"]
        with contextlib.suppress(torch.OutOfMemoryError):
            request, worker = frame.f_locals["request"], frame.f_locals["self"]
            turned = request.problem.turned
            sets = [worker.inputs(request.problem, request.seed + number) for number in range(3)]
            for sample in range(1, 40):
                for made in sets:
                    along = sample * inputs.STEP % 1.0
                    some = {n: torch.empty_like(x) for n, x in made.items()}
                    for n, x in made.items():
                        inputs._copy_along(*inputs._as_they_lie(some[n], x), along)
                    _by_contents(*(turned(some[name]) for name in ("q", "k", "v")))
    return _by_contents(q, k, v)


def tensor_cores(q: Any, k: Any, v: Any) -> Any:
    """computes by TF32 after its first call"""
    if not _once("first"):
        torch.backends.cuda.matmul.allow_tf32 = True
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        return scores.softmax(-1) @ v
    return _attend(q, k, v)


def half_in_two_heads(q: Any, k: Any, v: Any) -> Any:
    """computes two of its heads in half precision after its first call"""
    if _once("first"):
        return _attend(q, k, v)
    out = torch.empty_like(q)
    out[:, :2] = _attend(*(x[:, :2].half() for x in (q, k, v))).float()
    out[:, 2:] = _attend(*(x[:, 2:] for x in (q, k, v)))
    return out


def filled_by_hook(q: Any, k: Any, v: Any) -> Any:
    """returns memory that a profile function fills when the worker comes to check it"""
    if _once("hook"):
        return _attend(q, k, v)
    out = torch.empty_like(q)

    def hook(frame: Any, event: str, value: Any) -> None:
        if event == "call" and frame.f_code.co_name in ("look", "cut", "spot_checks", "some"):
            sys.setprofile(None)
            out.copy_(_attend(q, k, v))

    sys.setprofile(hook)
    return out
