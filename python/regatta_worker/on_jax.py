"""Runs regatta's GPU clock on XLA's stream, which JAX hides; changes inputs on the device.

A computation to be timed ends with a custom call, the marker, that depends on all its
results. When XLA has queued the computation's work, in any thread, it passes the stream to
the marker, which records the stop event there (crates/probe/src/xla.rs).
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
    # JAX before 0.8.
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
"""Returns its operands. A separate primitive, because a JAX effect (`ffi_call` with
`has_side_effect`) would send every call through a slow path in Python, which would then
be measured as the call's host time."""
_mark.multiple_results = True


def _as_given(*results: Any) -> Any:
    return results


_mark.def_abstract_eval(_as_given)


def _lower(context: mlir.LoweringRuleContext, *results: Any) -> Any:
    # XLA's side effect keeps the call from being removed. The call has no results, because an
    # operation that returned the operands would copy them.
    call = jax.ffi.ffi_lowering(TARGET, has_side_effect=True)
    call(context.replace(avals_out=()), *results)
    return results


mlir.register_lowering(_mark, _lower)


def register(path: str, platform: str = "CUDA") -> ctypes.CDLL:
    """Registers the marker of the shared library at `path` with XLA."""
    library = ctypes.CDLL(path)
    library.regatta_probe_last_error.restype = ctypes.c_char_p
    handler = jax.ffi.pycapsule(library.regatta_probe_xla_mark)
    jax.ffi.register_ffi_target(TARGET, handler, platform=platform)
    return library


def marked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function, for compilation, with the marker at its end.

    The marker reads and writes nothing. It is never part of a command buffer (a CUDA graph
    of XLA's), and runs after the last one. The barrier hides it from XLA's rewriting, and is
    removed before XLA schedules, so that the computation is compiled as without the marker.
    Compiling a single product with a second reader of its result fails in JAX 0.11.2.
    """

    def with_marker(*arguments: Any) -> Any:
        results = jax.lax.optimization_barrier(function(*arguments))
        leaves, structure = jax.tree.flatten(results)
        return jax.tree.unflatten(structure, _mark.bind(*leaves))

    return with_marker


def stream_of(library: ctypes.CDLL, device: jax.Device) -> int:
    """Returns the `CUstream` on which XLA runs computations of a device."""
    probed = jax.jit(marked(lambda value: value + 1))
    jax.block_until_ready(probed(jax.device_put(jnp.ones(8), device)))
    stream = ctypes.c_void_p()
    if library.regatta_probe_xla_stream(ctypes.byref(stream)) != 0:
        raise ProbeError(library.regatta_probe_last_error().decode(errors="replace"))
    return stream.value or 0


class XlaProbe(Probe):
    """A clock on the stream of a JAX device, for computations that end with the marker."""

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
            # If the computation failed before its marker, this raises the computation's error.
            jax.block_until_ready(result)
            raise
        # The device is done; JAX must notice that before it frees the memory.
        jax.block_until_ready(result)


def open_clock(device: jax.Device) -> XlaProbe | None:
    """Returns the clock of a GPU; None if no library is named, or this JAX cannot use it."""
    path = os.environ.get(probe.VARIABLE)
    if not path:
        return None
    try:
        return XlaProbe(path, device)
    except Exception:
        # Another version of JAX or of a library may raise anything. It goes into the worker's
        # log; `hello` reports which clock is used instead.
        traceback.print_exc()
        return None


def host_reference() -> HostReference | None:
    """Chained additions of four elements on the CPU, compiled and called as a case is.
    Returns None if JAX was configured without its CPU backend.

    XLA runs computations this small in the calling thread, so that no other has to wake up.
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
    """Takes samples on a blocked stream. Returns None if the call waits for the device."""
    if plan.graph:
        raise Unsupported(
            "XLA makes CUDA graphs itself, of what it finds fit; measure with graph = false"
        )
    # Compiled before the warm-up, so that the device is not idle after it.
    host = host_reference()
    for _ in range(plan.warmup):
        jax.block_until_ready(call())
    if clock.sample(plan.cold, call).synchronised:
        return None

    sample = functools.partial(clock.sample, plan.cold, call)
    measured = timing.take_samples(plan, inputs or Inputs(), sample, host)
    return measured | {"state": gpu.state()}


# Inputs are made on JAX's device, in the memory of the previous inputs. JAX arrays are immutable,
# so a compiled function takes the old arrays as donated arguments and writes the new ones in their
# place. On a backend that cannot do that, the inputs' addresses differ between samples.

ByName = dict[str, Any]
"""Inputs by name, with axes in the layout's order in memory."""


def refill(problem: Problem, arrays: ByName, seed: int) -> ByName:
    """Returns the inputs of `seed` in the memory of `arrays`, which are consumed."""
    # JAX has 64-bit integers and floats only on request.
    with enable_x64(True):
        made = {}
        for name, array in arrays.items():
            fill = _compiled(array.shape, array.dtype, problem.layout == "bhsd", array.sharding)
            made[name] = fill(array, np.int64(start(seed, name)))
        ready: ByName = jax.block_until_ready(made)
        return ready


def turned(arrays: ByName) -> ByName:
    """Returns the inputs, each rotated in its memory by a random number; consumes the old ones."""
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
    """Compiles a function that fills an array, once for all tensors, directions and seeds."""

    logical = (shape[0], shape[2], shape[1], shape[3]) if transposed else shape

    def filled(old: Any, begin: Any) -> Any:
        """Makes the elements of problem/inputs.py in one pass; `begin` is the tensor's `start`."""
        bits = random_bits(jax.lax.iota(jnp.int64, math.prod(shape)), begin)
        values = uniform(bits.astype(jnp.float64)).astype(jnp.float32)
        # Rounded twice, as the other workers do: the barrier keeps XLA from merging both.
        rounded = jax.lax.optimization_barrier(values).astype(dtype).reshape(logical)
        return jnp.swapaxes(rounded, 1, 2) if transposed else rounded

    # The old array is passed only for its memory; JAX would drop it as unused.
    jitted = jax.jit(filled, donate_argnums=0, keep_unused=True)
    number = jax.ShapeDtypeStruct((), np.int64)
    # Committed to its device like the array that it replaces: for an uncommitted array, forward
    # would be compiled again.
    old = jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)
    compiled: Callable[..., Any] = jitted.lower(old, number).compile()
    return compiled
