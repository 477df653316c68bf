"""The inputs made on JAX's device, over the memory of those before.

Arrays of JAX's cannot be written into. A compiled function that is given the old ones to
consume writes the new ones where they lay, on backends that can; where one does not, the
samples' addresses change with their contents.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from regatta_worker.problem.attention import Problem
from regatta_worker.problem.inputs import GOLDEN, MIX, TENSORS

Held = dict[str, Any]
"""Inputs by name, in the order in memory that the caller holds."""


def refill(problem: Problem, held: Held, seed: int) -> Held:
    """The inputs of a seed for those of another, which are consumed."""
    transposed = problem.layout == "bhsd"
    with _wide_integers():
        made = {}
        for name, array in held.items():
            fill = _compiled(array.shape, array.dtype, transposed, array.sharding)
            made[name] = fill(array, np.uint64((TENSORS[name] << 40) + 1), np.uint64(seed))
        ready: Held = jax.block_until_ready(made)
        return ready


@functools.lru_cache(maxsize=32)
def _compiled(
    shape: tuple[int, ...], dtype: Any, transposed: bool, sharding: Any
) -> Callable[..., Any]:
    """Fills one array. Compiled once for all tensors, directions and seeds that it fits."""

    def filled(old: Any, first: Any, seed: Any) -> Any:
        return _input(shape, dtype, transposed, first, seed)

    # The old one is for its memory alone, and would be left out as unused.
    jitted = jax.jit(filled, donate_argnums=0, keep_unused=True)
    number = jax.ShapeDtypeStruct((), np.uint64)
    # Committed to its device like the array it is for: of another kind of array, forward
    # would be compiled anew.
    old = jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)
    compiled: Callable[..., Any] = jitted.lower(old, number, number).compile()
    return compiled


def _wide_integers() -> contextlib.AbstractContextManager[Any]:
    """64-bit integers and floats, which JAX has only where it is told so."""
    wide: contextlib.AbstractContextManager[Any]
    if hasattr(jax, "enable_x64"):
        wide = jax.enable_x64(True)
    else:
        # Where it was until 0.8.
        from jax.experimental import enable_x64

        wide = enable_x64(True)
    return wide


def _input(shape: tuple[int, ...], dtype: Any, transposed: bool, first: Any, seed: Any) -> Any:
    """As problem/inputs.py makes it, element by element in one pass; `first` is the counter of the
    tensor's first element."""
    logical = (shape[0], shape[2], shape[1], shape[3]) if transposed else shape
    index = jax.lax.iota(jnp.uint64, math.prod(shape))
    z = (index + first) * np.uint64(GOLDEN) + seed
    for shift, factor in MIX:
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    z = z ^ (z >> np.uint64(31))
    unit = (z >> np.uint64(11)).astype(jnp.float64) / np.float64(1 << 53)
    values = ((2.0 * unit - 1.0) * np.float64(math.sqrt(3.0))).astype(jnp.float32)
    # Rounded twice, as the other workers do: XLA may make one conversion of two.
    rounded = jax.lax.optimization_barrier(values).astype(dtype).reshape(logical)
    return jnp.swapaxes(rounded, 1, 2) if transposed else rounded
