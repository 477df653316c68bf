"""Measures the highest rates of a device, in matrix products and in copies.

No program reaches the figures of a data sheet. The rate that a library's product of large matrices
reaches on this device now is one that a kernel can be compared with.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

from regatta_worker.protocol.channel import Message

SAMPLES = 6
"""Samples of each rate. The best one counts: a disturbance can only make a sample slower."""

SAMPLE_S = 0.02
"""Target time of a sample in seconds: long enough that waiting for the device is negligible."""

GPU_SIZES, CPU_SIZES = (8192, 1 << 30), (2048, 1 << 28)
"""On each kind of device, the side length of the square matrices and the bytes of a copy."""

Call = Callable[[], Any]


def _peak(
    product: Callable[[Any, int], Call],
    copy: Callable[[int], Call],
    wait: Callable[[Any], Any],
    dtypes: Mapping[str, Any],
    on_gpu: bool,
    how: str,
) -> Message:
    """Returns the fields of `peak`: `tflops` by storage type (on a CPU only float32) and `gbps`.

    A product of two square matrices takes `2 * side**3` operations. A copy of `size` bytes reads
    and writes `size` bytes each. Each call's memory is freed before the next call is created.
    """

    def fastest(call: Call, amount: float) -> float:
        """Returns the highest rate of `call` per second, if one call processes `amount`."""

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
    """Measures the peak with `torch.matmul` and a copy."""
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
    """Measures the peak with `jnp.matmul` and an addition, which moves as many bytes as a copy."""
    import jax
    import jax.numpy as jnp

    def product(dtype: Any, side: int) -> Call:
        keys = jax.random.split(jax.random.key(1))
        a, b = (jax.random.normal(key, (side, side)).astype(dtype) for key in keys)
        # The precision is given because XLA's default for float32 on a GPU is TF32.
        multiply = jax.jit(functools.partial(jnp.matmul, precision="highest"))
        return functools.partial(multiply, a, b)

    def copy(size: int) -> Call:
        return functools.partial(jax.jit(lambda x: x + 1), jnp.ones(size // 4, jnp.float32))

    how = "jnp.matmul of {side} x {side}; adding 1 to {mib} MiB"
    return _peak(product, copy, jax.block_until_ready, dtypes, on_gpu, how)
