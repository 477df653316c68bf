"""What a first call is made of: tuning, tracing, compiling, loading, planning.

Functions that do such work are wrapped while the call is made, where their modules are loaded
already: what a call itself imports is not seen, and its time is in no part. Each part has the
time that is its own, less that of parts within it, so that they add up to no more than the call.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from regatta_worker.census.counters import NotCountable, Tally, wrapped
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
    ("planning", "regatta_worker.libraries.cudnn:Attention._planned"),
)
"""Parts, and the functions whose time they are."""


def first_call(call: Callable[[], Done], wait: Callable[[], Any]) -> tuple[Done, Message]:
    """Makes the call and waits for the device, which was idle before: the results, and the
    members of `prepared` that say how long it took."""
    within = threading.local()
    parts = {name: Tally(within=within) for name, _ in WATCHED}
    with contextlib.ExitStack() as replaced:
        for name, function in WATCHED:
            if function.partition(":")[0] in sys.modules:
                # Of another version: then it is in no part.
                with contextlib.suppress(NotCountable):
                    replaced.enter_context(wrapped(function, parts[name].wrapping))
        begin = time.perf_counter_ns()
        results = call()
        wait()
        nanoseconds = float(time.perf_counter_ns() - begin)
    found = {
        name: {"ns": float(part.nanoseconds), "count": part.events}
        for name, part in parts.items()
        if part.events
    }
    return results, {"first_call_ns": nanoseconds, "first_call_parts": found}
