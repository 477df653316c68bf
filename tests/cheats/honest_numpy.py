"""Functions of NumPy arrays that compute attention honestly, each in a way that public code has;
none may be refused. `table.py` tries them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import ctypes
import functools
import gc
import logging
import mmap
import multiprocessing
import os
import queue
import tempfile
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

try:
    import scipy.linalg.blas
    import scipy.special
except ImportError:
    scipy = None

_kept: dict[str, Any] = {}


def _softmax(scores: Any) -> Any:
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return weights


def _scale(q: Any) -> Any:
    return np.float32(q.shape[-1] ** -0.5)


def _attend(q: Any, k: Any, v: Any) -> Any:
    return _softmax(q @ k.swapaxes(-1, -2) * _scale(q)) @ v


def _made(name: str, make: Callable[[], Any]) -> Any:
    """Arrays that the first call makes, kept for the next ones."""
    if name not in _kept:
        _kept[name] = make()
    return _kept[name]


def matmul(q: Any, k: Any, v: Any) -> Any:
    """matrix products"""
    return _attend(q, k, v)


def einsum(q: Any, k: Any, v: Any) -> Any:
    """einsum with a plan that NumPy finds"""
    scores = np.einsum("bhid,bhjd->bhij", q, k, optimize=True) * _scale(q)
    return np.einsum("bhij,bhjd->bhid", _softmax(scores), v, optimize=True)


def one_head_after_another(q: Any, k: Any, v: Any) -> Any:
    """a loop over sequences and heads"""
    out = np.empty_like(q)
    for index in np.ndindex(q.shape[:2]):
        out[index] = _attend(q[index], k[index], v[index])
    return out


def blocks_of_queries(q: Any, k: Any, v: Any) -> Any:
    """blocks of queries"""
    rows = range(0, q.shape[2], 32)
    return np.concatenate([_attend(q[:, :, row : row + 32], k, v) for row in rows], axis=2)


def online_softmax(q: Any, k: Any, v: Any) -> Any:
    """blocks of keys with a running maximum, as FlashAttention has it"""
    out = np.zeros_like(q)
    largest = np.full((*q.shape[:3], 1), -np.inf, q.dtype)
    total = np.zeros_like(largest)
    for at in range(0, k.shape[2], 64):
        scores = q @ k[:, :, at : at + 64].swapaxes(2, 3) * _scale(q)
        now = np.maximum(largest, scores.max(-1, keepdims=True))
        weights, part = np.exp(scores - now), np.exp(largest - now)
        total = total * part + weights.sum(-1, keepdims=True)
        out = out * part + weights @ v[:, :, at : at + 64]
        largest = now
    return out / total


def float64_inside(q: Any, k: Any, v: Any) -> Any:
    """float64 inside"""
    return _attend(*(x.astype(np.float64) for x in (q, k, v))).astype(q.dtype)


def powers_of_two(q: Any, k: Any, v: Any) -> Any:
    """exp2 in place of exp"""
    scores = q @ k.swapaxes(2, 3) * np.float32(_scale(q) * np.log2(np.e))
    weights = np.exp2(scores - scores.max(-1, keepdims=True))
    return weights @ v / weights.sum(-1, keepdims=True)


def contiguous_copies(q: Any, k: Any, v: Any) -> Any:
    """copies of the inputs, as a wrapper makes them"""
    return _attend(*(np.ascontiguousarray(x.copy()) for x in (q, k, v)))


def own_buffers(q: Any, k: Any, v: Any) -> Any:
    """scores and result in buffers that are kept between calls"""
    scores = _made("scores", lambda: np.empty((*q.shape[:3], k.shape[2]), q.dtype))
    out = _made("out", lambda: np.empty_like(q))
    np.matmul(q, k.swapaxes(2, 3), out=scores)
    scores *= _scale(q)
    scores -= scores.max(-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(-1, keepdims=True)
    return np.matmul(scores, v, out=out)


def two_buffers_in_turn(q: Any, k: Any, v: Any) -> Any:
    """two buffers for results, which take turns"""
    buffers = _made("buffers", lambda: [np.empty_like(q), np.empty_like(q)])
    buffers.reverse()
    buffers[0][...] = _attend(q, k, v)
    return buffers[0]


def pool_of_threads(q: Any, k: Any, v: Any) -> Any:
    """a pool of threads, a head each"""
    pool = _made("pool", lambda: concurrent.futures.ThreadPoolExecutor(2))
    heads = pool.map(lambda head: _attend(q[:, head], k[:, head], v[:, head]), range(q.shape[1]))
    return np.stack(list(heads), axis=1)


def new_threads(q: Any, k: Any, v: Any) -> Any:
    """two threads that each call starts and joins"""
    out, half = np.empty_like(q), q.shape[1] // 2

    def part(heads: slice) -> None:
        out[:, heads] = _attend(q[:, heads], k[:, heads], v[:, heads])

    threads = [threading.Thread(target=part, args=(slice(at, at + half),)) for at in (0, half)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return out


def thread_by_queue(q: Any, k: Any, v: Any) -> Any:
    """one other thread, that gets its work from a queue and gives it back by another"""
    work, done = _made("queues", lambda: (queue.SimpleQueue(), queue.SimpleQueue()))
    if "server" not in _kept:

        def serve() -> None:
            while True:
                done.put(_attend(*work.get()))

        _kept["server"] = threading.Thread(target=serve, daemon=True)
        _kept["server"].start()
    work.put((q, k, v))
    return done.get()


def idle_thread(q: Any, k: Any, v: Any) -> Any:
    """a thread beside it that wakes up ten times a second, as a progress bar has"""

    def tick() -> None:
        while True:
            time.sleep(0.1)

    if "ticker" not in _kept:
        _kept["ticker"] = threading.Thread(target=tick, daemon=True)
        _kept["ticker"].start()
    return _attend(q, k, v)


def child_process(q: Any, k: Any, v: Any) -> Any:
    """a child process that computes half of the heads in shared memory"""
    half, shape, size = q.shape[1] // 2, q.shape, q.nbytes
    if "child" not in _kept:
        shared = mmap.mmap(-1, 4 * size)
        here, there = multiprocessing.Pipe()

        def arrays() -> list[Any]:
            return [
                np.frombuffer(shared, q.dtype, q.size, i * size).reshape(shape) for i in range(4)
            ]

        if os.fork() == 0:
            *inputs, out = arrays()
            while there.recv():
                out[:, half:] = _attend(*(x[:, half:] for x in inputs))
                there.send(True)
            os._exit(0)
        _kept["child"] = here, arrays()
    here, (*inputs, shared_out) = _kept["child"]
    for into, x in zip(inputs, (q, k, v), strict=True):
        into[...] = x
    here.send(True)
    out = np.empty_like(q)
    out[:, :half] = _attend(*(x[:, :half] for x in (q, k, v)))
    here.recv()
    out[:, half:] = shared_out[:, half:]
    return out


def event_loop(q: Any, k: Any, v: Any) -> Any:
    """an event loop of asyncio that awaits it"""

    async def attend() -> Any:
        await asyncio.sleep(0)
        return _attend(q, k, v)

    return _made("loop", asyncio.new_event_loop).run_until_complete(attend())


def decorated(q: Any, k: Any, v: Any) -> Any:
    """wrapped in decorators, and a log of how long it took by its own clock"""
    return _timed(q, k, v)


def _logged(function: Any) -> Any:
    @functools.wraps(function)
    def logged(*arguments: Any) -> Any:
        begin = time.perf_counter()
        result = function(*arguments)
        logging.getLogger("attention").debug("took %f s", time.perf_counter() - begin)
        return result

    return logged


_timed = _logged(_attend)


def kept_constants(q: Any, k: Any, v: Any) -> Any:
    """a kept result of what depends on shapes alone: the mask and the scale"""
    scale, mask = _constants(q.shape[2], k.shape[2], q.shape[3])
    return _softmax(q @ k.swapaxes(2, 3) * scale + mask) @ v


@functools.lru_cache
def _constants(rows: int, keys: int, width: int) -> tuple[Any, Any]:
    return np.float32(width**-0.5), np.zeros((rows, keys), np.float32)


def planned_first(q: Any, k: Any, v: Any) -> Any:
    """a first call that is slow, since it tries block sizes and keeps the best"""

    def blocked(rows: int) -> Any:
        places = range(0, q.shape[2], rows)
        return np.concatenate([_attend(q[:, :, at : at + rows], k, v) for at in places], axis=2)

    def best() -> int:
        def took(rows: int) -> float:
            begin = time.perf_counter()
            blocked(rows)
            return time.perf_counter() - begin

        return min((32, 64, 128), key=took)

    return blocked(_made("rows", best))


def collects_garbage(q: Any, k: Any, v: Any) -> Any:
    """a collection of garbage in each call"""
    gc.collect(0)
    return _attend(q, k, v)


def without_collector(q: Any, k: Any, v: Any) -> Any:
    """the collector of garbage switched off, as timeit does"""
    gc.disable()
    try:
        return _attend(q, k, v)
    finally:
        gc.enable()


def finalizers(q: Any, k: Any, v: Any) -> Any:
    """a workspace that is given back by a finalizer"""
    workspace = _Workspace(q.nbytes)
    weakref.finalize(workspace, int)
    return _attend(q, k, v)


class _Workspace:
    def __init__(self, size: int) -> None:
        self.bytes = bytearray(size)


def sums_of_squares(q: Any, k: Any, v: Any) -> Any:
    """scores by distances: 2 q k = q² + k² - (q - k)²"""
    squares = (q * q).sum(-1)[..., None] + (k * k).sum(-1)[..., None, :]
    scores = (squares - (squares - 2 * (q @ k.swapaxes(2, 3)))) / 2
    return _softmax(scores * _scale(q)) @ v


def in_native_code(q: Any, k: Any, v: Any) -> Any:
    """the exponentials' maximum by a function of libm, through ctypes"""
    libm = _made("libm", lambda: ctypes.CDLL("libm.so.6"))
    libm.sqrt.restype, libm.sqrt.argtypes = ctypes.c_double, [ctypes.c_double]
    scale = np.float32(1 / libm.sqrt(float(q.shape[3])))
    return _softmax(q @ k.swapaxes(2, 3) * scale) @ v


def through_a_file(q: Any, k: Any, v: Any) -> Any:
    """weights that go through a memory-mapped file"""
    weights = _softmax(q @ k.swapaxes(2, 3) * _scale(q))

    def mapped() -> Any:
        with tempfile.NamedTemporaryFile() as file:
            return np.memmap(file.name, weights.dtype, "w+", shape=weights.shape)

    stored = _made("mapped", mapped)
    stored[...] = weights
    return np.asarray(stored) @ v


def readable_views(q: Any, k: Any, v: Any) -> Any:
    """a view of a larger result"""
    out = np.empty((*q.shape[:3], q.shape[3] + 8), q.dtype)
    out[..., :-8] = _attend(q, k, v)
    return out[..., :-8]


if scipy is not None:

    def scipy_softmax(q: Any, k: Any, v: Any) -> Any:
        """softmax of SciPy"""
        return scipy.special.softmax(q @ k.swapaxes(2, 3) * _scale(q), axis=-1) @ v

    def scipy_logsumexp(q: Any, k: Any, v: Any) -> Any:
        """logsumexp of SciPy"""
        scores = q @ k.swapaxes(2, 3) * _scale(q)
        total = scipy.special.logsumexp(scores, axis=-1, keepdims=True)
        return np.exp(scores - total) @ v

    def scipy_blas(q: Any, k: Any, v: Any) -> Any:
        """sgemm of SciPy's BLAS, a head each"""
        out, gemm = np.empty_like(q), scipy.linalg.blas.sgemm
        for index in np.ndindex(q.shape[:2]):
            scores = gemm(_scale(q), q[index], k[index], trans_b=True)
            out[index] = gemm(1.0, _softmax(scores), v[index])
        return out
