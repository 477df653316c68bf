"""regatta's GPU clock on XLA's stream, which JAX hides; and inputs that change.

A computation to be timed ends with a custom call, the marker, that depends on all its
results. When XLA has queued the computation's work, in whichever thread, it hands the
marker the stream; there the stop event is recorded (crates/probe/src/xla.rs).
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import traceback
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import mlir

try:
    from jax import enable_x64
except ImportError:
    # JAX before 0.8 has it there.
    from jax.experimental import enable_x64

from regatta_worker.clock import probe, timing
from regatta_worker.clock.probe import Probe, ProbeError
from regatta_worker.clock.timing import OPERATIONS, HostReference
from regatta_worker.device import NvidiaDevice
from regatta_worker.problem import Problem
from regatta_worker.problem.input_sets import Inputs
from regatta_worker.problem.inputs import random_bits, start, uniform
from regatta_worker.problem.planes import DRAW
from regatta_worker.protocol.channel import Unsupported

TARGET = "regatta_mark"
"""Name of the marker among XLA's custom calls."""

_mark = Primitive(TARGET)
"""Gives its operands. A primitive of its own, because an effect of JAX's (`ffi_call` with
`has_side_effect`) would send every call through a slow path in Python, which would then
be measured as the call's host time."""
_mark.multiple_results = True


def _as_given(*results: Any) -> Any:
    return results


_mark.def_abstract_eval(_as_given)


def _lower(context: mlir.LoweringRuleContext, *results: Any) -> Any:
    # XLA's own side effect keeps the call. It has no results: an operation that gave the
    # operands back would copy them.
    call = jax.ffi.ffi_lowering(TARGET, has_side_effect=True)
    call(context.replace(avals_out=()), *results)
    return results


mlir.register_lowering(_mark, _lower)


def register(path: str, platform: str = "CUDA") -> ctypes.CDLL:
    """Makes the marker of the shared library at `path` known to XLA."""
    library = ctypes.CDLL(path)
    library.regatta_probe_last_error.restype = ctypes.c_char_p
    handler = jax.ffi.pycapsule(library.regatta_probe_xla_mark)
    jax.ffi.register_ffi_target(TARGET, handler, platform=platform)
    return library


def marked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, to be compiled, ending with the marker.

    The marker reads nothing and writes nothing, and is never part of a command buffer
    (a CUDA graph of XLA's): it stands behind the last one. The barrier hides it from
    XLA's rewriting, and is gone before XLA schedules: the computation is compiled as
    without the marker, and where it is one product, compiling it with a second reader of
    the result fails in JAX 0.11.2.
    """

    def with_marker(*arguments: Any) -> Any:
        results = jax.lax.optimization_barrier(function(*arguments))
        leaves, structure = jax.tree.flatten(results)
        return jax.tree.unflatten(structure, _mark.bind(*leaves))

    return with_marker


def stream_of(library: ctypes.CDLL, device: jax.Device) -> int:
    """The `CUstream` on which XLA runs computations of a device."""
    probed = jax.jit(marked(lambda value: value + 1))
    jax.block_until_ready(probed(jax.device_put(jnp.ones(8), device)))
    stream = ctypes.c_void_p()
    if library.regatta_probe_xla_stream(ctypes.byref(stream)) != 0:
        raise ProbeError(library.regatta_probe_last_error().decode(errors="replace"))
    return stream.value or 0


class XlaProbe(Probe):
    """A clock on the stream of a device of JAX's, for computations that end with the marker."""

    def __init__(self, path: str, device: jax.Device) -> None:
        stream = stream_of(register(path), device)
        super().__init__(path, device.local_hardware_id or 0, stream)

    def _begin_sample(self, cold: bool) -> None:
        self.ask("xla_begin", self._handle, ctypes.c_int(cold), ctypes.c_uint32(1))

    def _end_sample(self, result: Any) -> None:
        try:
            figures = map(self._byref, ("device_ns", "late_ns", "clock_mhz", "flags"))
            self.ask("xla_end", self._handle, *figures)
        except ProbeError:
            # A computation that failed before its marker says itself why.
            jax.block_until_ready(result)
            raise
        # The device is done, and JAX takes note: only then is the memory free again.
        jax.block_until_ready(result)


def open_clock(device: jax.Device) -> XlaProbe | None:
    """The clock of a GPU, or None: not named, or not usable with this JAX."""
    path = os.environ.get(probe.VARIABLE)
    if not path:
        return None
    try:
        return XlaProbe(path, device)
    except Exception:
        # Whatever a library or a JAX of another age answers. Into the worker's log;
        # `hello` tells which clock is used instead.
        traceback.print_exc()
        return None


def host_reference() -> HostReference | None:
    """Additions of four elements on the CPU, compiled and called as a case is, each of the
    result of the one before; None if JAX was configured without its CPU backend.

    XLA runs what is so small in the thread that calls it, so that no other has to wake.
    """
    try:
        cpu = jax.devices("cpu")[0]
    except RuntimeError:
        return None
    ones = jax.device_put(np.ones(4, np.float32), cpu)
    add = jax.jit(jnp.add).lower(ones, ones).compile()

    def operations() -> None:
        total = ones
        for _ in range(OPERATIONS):
            total = add(total, ones)
        total.block_until_ready()

    return HostReference(operations)


def measure(
    call: Callable[[], Any],
    plan: timing.Plan,
    clock: XlaProbe,
    gpu: NvidiaDevice,
    inputs: Inputs | None = None,
) -> dict[str, Any] | None:
    """Samples on a blocked stream; None if the call waits for the device."""
    if plan.graph:
        raise Unsupported(
            "XLA makes CUDA graphs itself, of what it finds fit; measure with graph = false"
        )
    # Compiled before the warm-up, so that the device is not left idle after it.
    host = host_reference()
    for _ in range(plan.warmup):
        jax.block_until_ready(call())
    if clock.sample(plan.cold, call).synchronised:
        return None

    sample = functools.partial(clock.sample, plan.cold, call)
    measured = timing.take_samples(plan, inputs or Inputs(), sample, host)
    return measured | {"state": gpu.state()}


# The inputs made on JAX's device, over the memory of those before. Arrays of JAX's cannot be
# written into: a compiled function that is given the old ones to consume writes the new ones where
# they lay, on backends that can; where one does not, the samples' addresses change with them.

ByName = dict[str, Any]
"""Inputs by name, in the order in memory of the layout."""


def refill(problem: Problem, arrays: ByName, seed: int) -> ByName:
    """The inputs of a seed for those of another, which are consumed."""
    # JAX has integers and floats of 64 bits only on request.
    with enable_x64(True):
        made = {}
        for name, array in arrays.items():
            fill = _compiled(array.shape, array.dtype, problem.layout == "bhsd", array.sharding)
            made[name] = fill(array, np.int64(start(seed, name)))
        ready: ByName = jax.block_until_ready(made)
        return ready


def turned(arrays: ByName) -> ByName:
    """The inputs, each turned in its memory by a number that is drawn; the old are consumed."""
    made = {name: _rolled(array, DRAW.randrange(array.size)) for name, array in arrays.items()}
    ready: ByName = jax.block_until_ready(made)
    return ready


@functools.partial(jax.jit, donate_argnums=0)
def _rolled(array: Any, by: Any) -> Any:
    twice = jnp.tile(array.reshape(-1), 2)
    return jax.lax.dynamic_slice_in_dim(twice, by, array.size).reshape(array.shape)


@functools.lru_cache(maxsize=32)
def _compiled(
    shape: tuple[int, ...], dtype: Any, transposed: bool, sharding: Any
) -> Callable[..., Any]:
    """Fills one array. Compiled once for all tensors, directions and seeds that it fits."""

    logical = (shape[0], shape[2], shape[1], shape[3]) if transposed else shape

    def filled(old: Any, begin: Any) -> Any:
        """As problem/inputs.py makes it, element by element in one pass; `begin` is the tensor's
        `start`."""
        bits = random_bits(jax.lax.iota(jnp.int64, math.prod(shape)), begin)
        values = uniform(bits.astype(jnp.float64)).astype(jnp.float32)
        # Rounded twice, as the other workers do: XLA may make one conversion of two.
        rounded = jax.lax.optimization_barrier(values).astype(dtype).reshape(logical)
        return jnp.swapaxes(rounded, 1, 2) if transposed else rounded

    # The old one is for its memory alone, and would be left out as unused.
    jitted = jax.jit(filled, donate_argnums=0, keep_unused=True)
    number = jax.ShapeDtypeStruct((), np.int64)
    # Committed to its device like the array it is for: of another kind of array, forward
    # would be compiled again.
    old = jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)
    compiled: Callable[..., Any] = jitted.lower(old, number).compile()
    return compiled
