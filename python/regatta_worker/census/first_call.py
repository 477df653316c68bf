"""What a first call is made of: tuning, tracing, compiling, loading, planning.

Functions that do such work are wrapped while the call is made, where their modules are loaded
already: what a call itself imports is not seen, and its time is in no part. Each part has the
time that is its own, less that of parts within it, so that they add up to no more than the call.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from regatta_worker.census.counters import NotCountable, wrapped
from regatta_worker.protocol.channel import Message

Done = TypeVar("Done")

WATCHED = (
    ("tuning", "triton.runtime.autotuner:Autotuner._bench"),
    ("compiling", "triton.runtime.jit:JITFunction._do_compile"),
    ("loading", "triton.compiler.compiler:CompiledKernel._init_handles"),
    ("tracing", "torch._dynamo.convert_frame:_compile"),
    ("compiling", "torch._dynamo.output_graph:OutputGraph.call_user_compiler"),
    ("compiling", "flashinfer.jit.core:JitSpec.build"),
    ("loading", "flashinfer.jit.core:JitSpec.load"),
    ("compiling", "cupy.cuda.compiler:compile_using_nvrtc"),
    ("planning", "regatta_worker.on_torch.cudnn_graphs:Graphs._planned"),
)
"""Parts, and the functions whose time they are."""


class Parts:
    """Nanoseconds and events of each part."""

    def __init__(self) -> None:
        self._taken: dict[str, list[int]] = {}
        self._lock = threading.Lock()
        self._within = threading.local()

    def as_reply(self) -> Message:
        """`first_call_parts` of `prepared`."""
        return {name: {"ns": float(ns), "count": of} for name, (ns, of) in self._taken.items()}

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, whose own time is of this part."""

        def watched(*args: Any, **kwargs: Any) -> Any:
            outer = getattr(self._within, "inner_ns", None)
            self._within.inner_ns = 0
            begin = time.perf_counter_ns()
            try:
                return function(*args, **kwargs)
            finally:
                spent = time.perf_counter_ns() - begin
                with self._lock:
                    taken = self._taken.setdefault(name, [0, 0])
                    taken[0] += spent - self._within.inner_ns
                    taken[1] += 1
                self._within.inner_ns = None if outer is None else outer + spent

        with contextlib.suppress(AttributeError, TypeError, ValueError):
            functools.update_wrapper(watched, function)
        return watched


def made(call: Callable[[], Done], wait: Callable[[], None]) -> tuple[Done, Message]:
    """Makes the call and waits for the device, which was idle before: the results, and the
    members of `prepared` that say how long it took."""
    parts = Parts()
    with contextlib.ExitStack() as replaced:
        for name, function in WATCHED:
            if function.partition(":")[0] in sys.modules:
                # Of another version: then it is in no part.
                with contextlib.suppress(NotCountable):
                    timed = functools.partial(parts.timed, name)
                    replaced.enter_context(wrapped(function, timed))
        begin = time.perf_counter_ns()
        results = call()
        wait()
        nanoseconds = float(time.perf_counter_ns() - begin)
    return results, {"first_call_ns": nanoseconds, "first_call_parts": parts.as_reply()}
