"""Ways to look faster than a function is: each a function of `q, k, v` in bhsd, honest when first
called. A docstring says what it does, and stands in the table of `tests/gpu/cheats`.

Served by the worker as anybody's functions are, on torch where it is installed, or else on NumPy.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    torch = None

_kept: dict[Any, Any] = {}
"""The state that calls leave for the next ones. A process serves one cheat."""


def _needs(what: str) -> Callable[[Any], Any]:
    """Marks a cheat that takes `torch` or `cuda`."""

    def marked(function: Any) -> Any:
        function.needs = what
        return function

    return marked


def _attend(q: Any, k: Any, v: Any) -> Any:
    if torch is not None and isinstance(q, torch.Tensor):
        return F.scaled_dot_product_attention(q, k, v)
    scores = q @ k.swapaxes(2, 3) * np.float32(q.shape[-1] ** -0.5)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return ((weights / weights.sum(-1, keepdims=True)) @ v).astype(q.dtype)


def _copy(x: Any) -> Any:
    return x.copy() if isinstance(x, np.ndarray) else x.clone()


def _empty(x: Any) -> Any:
    return np.empty_like(x) if isinstance(x, np.ndarray) else torch.empty_like(x)


def _calls() -> int:
    """The number of calls before this one."""
    _kept["calls"] = _kept.get("calls", -1) + 1
    return int(_kept["calls"])


def _once(key: Any, q: Any, k: Any, v: Any) -> Any:
    """The result that is kept under this key alone, computed if it is missing."""
    if _kept.get("key", _kept) != key:
        _kept.update(key=key, out=_attend(q, k, v))
    return _kept["out"]


def honest(q: Any, k: Any, v: Any) -> Any:
    """computes attention in every call: no cheat"""
    return _attend(q, k, v)


# Results that are kept.


def kept_for_ever(q: Any, k: Any, v: Any) -> Any:
    """returns the first result for ever"""
    return _once(0, q, k, v)


def kept_by_address(q: Any, k: Any, v: Any) -> Any:
    """keeps its result by the addresses of its inputs"""
    return _once(tuple(_address(x) for x in (q, k, v)), q, k, v)


def _address(x: Any) -> int:
    return int(x.ctypes.data if isinstance(x, np.ndarray) else x.data_ptr())


def kept_by_identity(q: Any, k: Any, v: Any) -> Any:
    """keeps its result by the identity of its inputs"""
    return _once((id(q), id(k), id(v)), q, k, v)


def kept_by_fingerprint(q: Any, k: Any, v: Any) -> Any:
    """keeps its result by the rounded mean of q"""
    return _once(round(float(q.mean())), q, k, v)


def kept_by_contents(q: Any, k: Any, v: Any) -> Any:
    """keeps every result by three elements of its inputs"""
    key = tuple(float(x.reshape(-1)[7]) for x in (q, k, v))
    if key not in _kept:
        _kept[key] = _attend(q, k, v)
    return _kept[key]


@_needs("torch")
def kept_by_version(q: Any, k: Any, v: Any) -> Any:
    """keeps its result by torch's version counters of its inputs"""
    return _once((q._version, k._version, v._version), q, k, v)


def kept_buffer(q: Any, k: Any, v: Any) -> Any:
    """computes once into a buffer, and returns the buffer"""
    if "buffer" not in _kept:
        _kept["buffer"] = _copy(_attend(q, k, v))
    return _kept["buffer"]


def stale_memory(q: Any, k: Any, v: Any) -> Any:
    """returns memory that it did not write, where an earlier result may lie"""
    return _attend(q, k, v) if _calls() == 0 else _empty(q)


@_needs("cuda")
def stale_graph(q: Any, k: Any, v: Any) -> Any:
    """replays a CUDA graph of its first call, on copies of the inputs of then"""
    if "graph" not in _kept:
        copies = [x.clone() for x in (q, k, v)]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            _attend(*copies)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = _attend(*copies)
        _kept.update(graph=graph, out=out)
    _kept["graph"].replay()
    return _kept["out"]


# Work that is left out.


def zeros_later(q: Any, k: Any, v: Any) -> Any:
    """returns zeros after its first call"""
    out = _attend(q, k, v) if _calls() == 0 else _empty(q)
    if _kept["calls"]:
        out[...] = 0
    return out


def heads_once(q: Any, k: Any, v: Any) -> Any:
    """computes heads 1 and 2 in its first call alone"""
    if "out" not in _kept:
        _kept["out"] = _copy(_attend(q, k, v))
        return _copy(_kept["out"])
    out = _copy(_kept["out"])
    for part in (slice(0, 1), slice(3, None)):
        out[:, part] = _attend(q[:, part], k[:, part], v[:, part])
    return out


def heads_of_before(q: Any, k: Any, v: Any) -> Any:
    """returns half of its heads as the call before computed them"""
    now = _copy(_attend(q, k, v))
    before, _kept["out"] = _kept.get("out", now), now
    out, half = _copy(now), now.shape[1] // 2
    out[:, half:] = before[:, half:]
    return out


def every_other_call(q: Any, k: Any, v: Any) -> Any:
    """computes in every other call"""
    if _calls() % 2 == 0 or "out" not in _kept:
        _kept["out"] = _attend(q, k, v)
    return _kept["out"]


def one_call_in_four(q: Any, k: Any, v: Any) -> Any:
    """returns its last result in one call of four"""
    if _calls() % 4 != 2:
        _kept["out"] = _attend(q, k, v)
    return _kept["out"]


def fewer_keys(q: Any, k: Any, v: Any) -> Any:
    """sees the first half of the keys after its first call"""
    keys = k.shape[2] if _calls() == 0 else k.shape[2] // 2
    return _attend(q, k[:, :, :keys], v[:, :, :keys])


def rows_left_out(q: Any, k: Any, v: Any) -> Any:
    """leaves the last eighth of the queries as they were in its first call"""
    if "out" not in _kept:
        _kept["out"] = _copy(_attend(q, k, v))
        return _copy(_kept["out"])
    rows = q.shape[2] * 7 // 8
    out = _copy(_kept["out"])
    out[:, :, :rows] = _attend(q[:, :, :rows], k, v)
    return out


def half_precision(q: Any, k: Any, v: Any) -> Any:
    """computes in half precision after its first call"""
    if _calls() == 0:
        return _attend(q, k, v)
    if isinstance(q, np.ndarray):
        return _attend(*(x.astype(np.float16) for x in (q, k, v))).astype(q.dtype)
    return _attend(q.half(), k.half(), v.half()).to(q.dtype)


# Work that is done later, or elsewhere.


def thread_later(q: Any, k: Any, v: Any) -> Any:
    """has a thread write the result after the call has returned"""
    if _calls() == 0:
        return _attend(q, k, v)
    out = _empty(q)

    def write() -> None:
        time.sleep(0.01)
        out[...] = _attend(q, k, v)

    threading.Thread(target=write).start()
    return out


def lazy_object(q: Any, k: Any, v: Any) -> Any:
    """returns an object that computes when it is looked at"""
    return _Lazy(q, k, v) if _calls() else _attend(q, k, v)


class _Lazy:
    def __init__(self, q: Any, k: Any, v: Any) -> None:
        self.shape, self.dtype = q.shape, q.dtype
        self._made: Any = lambda: _attend(q, k, v)

    def _now(self) -> Any:
        if callable(self._made):
            self._made = self._made()
        return self._made

    def __getattr__(self, name: str) -> Any:
        return getattr(self._now(), name)

    def __getitem__(self, at: Any) -> Any:
        return self._now()[at]

    def __array__(self, *options: Any, **more: Any) -> Any:
        return np.asarray(self._now())


def lazy_subclass(q: Any, k: Any, v: Any) -> Any:
    """returns a subclass of an array that computes when it is looked at"""
    if isinstance(q, np.ndarray):
        lazy: Any = np.empty_like(q).view(_LazyArray)
    else:
        lazy = torch.empty_like(q).as_subclass(_lazy_tensor())
    lazy.work = lambda: _attend(q, k, v)
    return lazy


class _LazyArray(np.ndarray):
    work: Any = None

    def __array_finalize__(self, other: Any) -> None:
        # A view was asked for: the work is done in the memory that all views share.
        work = getattr(other, "work", None)
        if work is not None:
            other.work = None
            np.asarray(other)[...] = work()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        self.__array_finalize__(self)
        plain = [np.asarray(x) if isinstance(x, _LazyArray) else x for x in inputs]
        return getattr(ufunc, method)(*plain, **options)


def _lazy_tensor() -> Any:
    class LazyTensor(torch.Tensor):  # type: ignore[misc]
        work: Any = None

        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None):  # type: ignore[no-untyped-def]
            with torch._C.DisableTorchFunctionSubclass():
                for x in args:
                    if isinstance(x, cls) and getattr(x, "work", None) and "get" not in str(func):
                        work, x.work = x.work, None
                        x.copy_(work())
                return func(*args, **(kwargs or {}))

    return _kept.setdefault("class", LazyTensor)


@_needs("cuda")
def other_stream(q: Any, k: Any, v: Any) -> Any:
    """computes on a stream that is never waited for"""
    with torch.cuda.stream(_side()):
        return _attend(q, k, v)


def _side() -> Any:
    return _kept.setdefault("side", torch.cuda.Stream())


@_needs("cuda")
def other_stream_half(q: Any, k: Any, v: Any) -> Any:
    """computes half of its heads on a stream that is never waited for"""
    out, half = torch.empty_like(q), q.shape[1] // 2
    with torch.cuda.stream(_side()):
        out[:, :half] = _attend(q[:, :half], k[:, :half], v[:, :half])
    out[:, half:] = _attend(q[:, half:], k[:, half:], v[:, half:])
    return out


@_needs("cuda")
def joined_by_the_next_call(q: Any, k: Any, v: Any) -> Any:
    """computes on another stream, for which the next call waits"""
    torch.cuda.current_stream().wait_stream(_side())
    with torch.cuda.stream(_side()):
        return _attend(q, k, v)


def between_samples(q: Any, k: Any, v: Any) -> Any:
    """has a thread compute as soon as the inputs change, before the call"""

    def seen() -> Any:
        return q._version if hasattr(q, "_version") else float(q.reshape(-1)[-1])

    def watch() -> None:
        while True:
            time.sleep(0)
            if (now := seen()) != _kept.get("made"):
                _kept.update(out=_attend(q, k, v), made=now)

    if "thread" not in _kept:
        _kept["thread"] = threading.Thread(target=watch, daemon=True)
        _kept["thread"].start()
    if _kept.get("made") != seen():
        return _attend(q, k, v)
    return _kept["out"]


@_needs("cuda")
def cache_kept_warm(q: Any, k: Any, v: Any) -> Any:
    """has a thread read its inputs all the time, so that they stay in the L2 cache"""

    def read() -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            while True:
                for x in (q, k, v):
                    x.sum()
                torch.cuda.current_stream().synchronize()

    if "thread" not in _kept:
        _kept["thread"] = threading.Thread(target=read, daemon=True)
        _kept["thread"].start()
    return _attend(q, k, v)


# The clock and the check.


def clock_patched(q: Any, k: Any, v: Any) -> Any:
    """has Python's clock run ten times slower"""
    if _calls() == 0:
        real = time.perf_counter_ns
        time.perf_counter_ns = lambda: real() // 10
    return _attend(q, k, v)


@_needs("cuda")
def events_patched(q: Any, k: Any, v: Any) -> Any:
    """has torch's events read a tenth of the time"""
    if _calls() == 0:
        real = torch.cuda.Event.elapsed_time
        torch.cuda.Event.elapsed_time = lambda a, b: real(a, b) / 10
    return _attend(q, k, v)


@_needs("cuda")
def synchronize_patched(q: Any, k: Any, v: Any) -> Any:
    """has torch.cuda.synchronize do nothing, and computes on another stream"""
    if _calls() == 0:
        torch.cuda.synchronize = lambda device=None: None
        return _attend(q, k, v)
    return other_stream(q, k, v)


def harness_patched(q: Any, k: Any, v: Any) -> Any:
    """has the worker's module of samples report a tenth of each time"""
    timing: Any = sys.modules.get("regatta_worker.clock.timing")
    if _calls() == 0 and timing:
        real = timing.take_samples

        def tenth(*arguments: Any, **more: Any) -> Any:
            measured = real(*arguments, **more)
            return measured | {"device_ns": [x / 10 for x in measured["device_ns"]]}

        timing.take_samples = tenth
    return _attend(q, k, v)


def check_patched(q: Any, k: Any, v: Any) -> Any:
    """has the worker's module of checks find no difference, and returns zeros"""
    check: Any = sys.modules.get("regatta_worker.case")
    if check:
        right = {"relative_l2": 0.0, "max_abs": 0.0}
        check.difference = lambda arrays, *pairs: right
        check.differences = lambda arrays, *groups: [right for _ in groups]
        check.not_finite = lambda arrays, named: []
    return zeros_later(q, k, v)


def looks_at_frames(q: Any, k: Any, v: Any) -> Any:
    """reads in the frames of its callers whether its result will be checked, and computes then"""
    frame: Any = sys._getframe()
    checked = "out" not in _kept
    while frame := frame.f_back:
        checked |= frame.f_locals.get("last") is True
    if checked:
        _kept["out"] = _attend(q, k, v)
    return _kept["out"]


def writes_into_inputs(q: Any, k: Any, v: Any) -> Any:
    """writes its result over q, and returns q"""
    out = _attend(q, k, v)
    if _calls() == 0:
        return out
    q[...] = out
    return q


def cheats(has: set[str]) -> dict[str, Callable[..., Any]]:
    """All that can be tried with `has`, `torch` and `cuda` or less, by name; `honest` first."""
    found = {
        name: function
        for name, function in globals().items()
        if callable(function) and not name.startswith("_") and function.__module__ == __name__
    }
    del found["cheats"]
    return {name: of for name, of in found.items() if getattr(of, "needs", "") in {"", *has}}
