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
"""What a sample takes at the least, so that waiting for the device is none of it."""

GPU_SIDE, CPU_SIDE = 8192, 2048
"""Rows and columns of the matrices."""

GPU_COPY, CPU_COPY = 1 << 30, 1 << 28
"""Bytes of a copy."""

Call = Callable[[], Any]


def peak(
    products: Mapping[str, Callable[[], Call]],
    copy: Callable[[], Call],
    wait: Callable[[Any], None],
    side: int,
    size: int,
) -> Message:
    """Fields of `peak`: `tflops` by storage type, and `gbps`; each made, measured, let go.

    A product is of two square matrices of `side`: a multiplication and an addition for each
    element of the result and of a row. A copy reads and writes `size` bytes.
    """
    flops = 2.0 * side**3
    tflops = {dtype: _fastest(made(), flops, wait) / 1e12 for dtype, made in products.items()}
    return {"tflops": tflops, "gbps": _fastest(copy(), 2.0 * size, wait) / 1e9}


def _fastest(call: Call, amount: float, wait: Callable[[Any], None]) -> float:
    """The highest rate, in amounts a second."""
    wait(call())
    calls = max(1, min(50, round(SAMPLE_S / _seconds(call, wait, 1))))
    return amount / min(_seconds(call, wait, calls) for _ in range(SAMPLES))


def _seconds(call: Call, wait: Callable[[Any], None], calls: int) -> float:
    """Seconds of a call, of so many in a row."""
    begin = perf_counter()
    result = None
    for _ in range(calls):
        result = call()
    wait(result)
    return (perf_counter() - begin) / calls


def torch_peak(device: Any, dtypes: Mapping[str, Any]) -> Message:
    """What `torch.matmul` and a copy reach; on a processor of float32 alone."""
    import torch

    on_gpu = device.type == "cuda"
    side, size = (GPU_SIDE, GPU_COPY) if on_gpu else (CPU_SIDE, CPU_COPY)

    def product(dtype: Any) -> Call:
        a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
        return functools.partial(torch.matmul, a, b, out=torch.empty_like(a))

    def copy() -> Call:
        source = torch.ones(size, dtype=torch.uint8, device=device)
        return functools.partial(torch.empty_like(source).copy_, source)

    def wait(_: object) -> None:
        if on_gpu:
            torch.cuda.synchronize()

    known = {name: dtype for name, dtype in dtypes.items() if on_gpu or name == "f32"}
    products = {name: functools.partial(product, dtype) for name, dtype in known.items()}
    found = peak(products, copy, wait, side, size)
    if on_gpu:
        torch.cuda.empty_cache()
    return found | {"how": f"torch.matmul of {side} x {side}; a copy of {size >> 20} MiB"}


def jax_peak(dtypes: Mapping[str, Any], on_gpu: bool) -> Message:
    """What `jnp.matmul` and a sum reach; on a processor of float32 alone."""
    import jax
    import jax.numpy as jnp

    side, size = (GPU_SIDE, GPU_COPY) if on_gpu else (CPU_SIDE, CPU_COPY)

    def product(dtype: Any) -> Call:
        keys = jax.random.split(jax.random.key(1))
        a, b = (jax.random.normal(key, (side, side)).astype(dtype) for key in keys)
        # Named: by itself XLA takes TF32 for float32 on a GPU.
        multiply = jax.jit(functools.partial(jnp.matmul, precision="highest"))
        return functools.partial(multiply, a, b)

    def copy() -> Call:
        return functools.partial(jax.jit(lambda x: x + 1), jnp.ones(size // 4, jnp.float32))

    known = {name: dtype for name, dtype in dtypes.items() if on_gpu or name == "f32"}
    products = {name: functools.partial(product, dtype) for name, dtype in known.items()}
    found = peak(products, copy, jax.block_until_ready, side, size)
    return found | {"how": f"jnp.matmul of {side} x {side}; adding 1 to {size >> 20} MiB"}
