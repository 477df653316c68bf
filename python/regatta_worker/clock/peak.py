"""The most that a device reaches, in products of matrices and in copies.

A figure on a data sheet is one that nothing reaches; what a library's product of large matrices
does here and now is one that a kernel can be compared with.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

from regatta_worker.protocol.channel import Message

SAMPLES = 6
"""The best counts: what disturbs takes time, and gives none back."""

SAMPLE_S = 0.02
"""The least time of a sample, so that waiting for the device does not count."""

GPU_SIZES, CPU_SIZES = (8192, 1 << 30), (2048, 1 << 28)
"""Rows and columns of the matrices; bytes of a copy."""

Call = Callable[[], Any]


def _peak(
    product: Callable[[Any, int], Call],
    copy: Callable[[int], Call],
    wait: Callable[[Any], Any],
    dtypes: Mapping[str, Any],
    on_gpu: bool,
    how: str,
) -> Message:
    """Fields of `peak`: `tflops` by storage type, on a CPU of float32 alone, and `gbps`.

    A product is of two square matrices: a multiplication and an addition for each element of the
    result and of a row. A copy reads and writes so many bytes. Each is made, measured, let go.
    """

    def fastest(call: Call, amount: float) -> float:
        """The highest rate, in amounts a second."""

        def seconds(calls: int) -> float:
            begin, result = perf_counter(), None
            for _ in range(calls):
                result = call()
            wait(result)
            return (perf_counter() - begin) / calls

        wait(call())
        calls = max(1, min(50, round(SAMPLE_S / seconds(1))))
        return amount / min(seconds(calls) for _ in range(SAMPLES))

    side, size = GPU_SIZES if on_gpu else CPU_SIZES
    tflops = {
        name: fastest(product(dtype, side), 2.0 * side**3) / 1e12
        for name, dtype in dtypes.items()
        if on_gpu or name == "f32"
    }
    gbps = fastest(copy(size), 2.0 * size) / 1e9
    return {"tflops": tflops, "gbps": gbps, "how": how.format(side=side, mib=size >> 20)}


def torch_peak(device: Any, dtypes: Mapping[str, Any]) -> Message:
    """By `torch.matmul` and a copy."""
    import torch

    def product(dtype: Any, side: int) -> Call:
        a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
        return functools.partial(torch.matmul, a, b, out=torch.empty_like(a))

    def copy(size: int) -> Call:
        source = torch.ones(size, dtype=torch.uint8, device=device)
        return functools.partial(torch.empty_like(source).copy_, source)

    on_gpu = device.type == "cuda"
    wait = (lambda _: torch.cuda.synchronize()) if on_gpu else (lambda _: None)
    how = "torch.matmul of {side} x {side}; a copy of {mib} MiB"
    found = _peak(product, copy, wait, dtypes, on_gpu, how)
    if on_gpu:
        torch.cuda.empty_cache()
    return found


def jax_peak(dtypes: Mapping[str, Any], on_gpu: bool) -> Message:
    """By `jnp.matmul` and a sum, which reads and writes as a copy does."""
    import jax
    import jax.numpy as jnp

    def product(dtype: Any, side: int) -> Call:
        keys = jax.random.split(jax.random.key(1))
        a, b = (jax.random.normal(key, (side, side)).astype(dtype) for key in keys)
        # Named: by itself XLA takes TF32 for float32 on a GPU.
        multiply = jax.jit(functools.partial(jnp.matmul, precision="highest"))
        return functools.partial(multiply, a, b)

    def copy(size: int) -> Call:
        return functools.partial(jax.jit(lambda x: x + 1), jnp.ones(size // 4, jnp.float32))

    how = "jnp.matmul of {side} x {side}; adding 1 to {mib} MiB"
    return _peak(product, copy, jax.block_until_ready, dtypes, on_gpu, how)
