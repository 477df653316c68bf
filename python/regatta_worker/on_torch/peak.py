"""What torch reaches on a device at the most."""

from __future__ import annotations

import functools

import torch

from regatta_worker.clock.peak import CPU_COPY, CPU_SIDE, GPU_COPY, GPU_SIDE, Called, flops, peak
from regatta_worker.on_torch.case import DTYPES
from regatta_worker.protocol.channel import Message


def torch_peak(device: torch.device, dtypes: tuple[str, ...]) -> Message:
    """What `torch.matmul` and a copy reach here; on a processor of float32 alone."""
    on_gpu = device.type == "cuda"
    side, size = (GPU_SIDE, GPU_COPY) if on_gpu else (CPU_SIDE, CPU_COPY)

    def product(dtype: torch.dtype) -> Called:
        a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
        out = torch.empty(side, side, dtype=dtype, device=device)
        return Called(lambda: torch.matmul(a, b, out=out), flops(side))

    def copy() -> Called:
        source = torch.ones(size, dtype=torch.uint8, device=device)
        target = torch.empty_like(source)
        return Called(lambda: target.copy_(source), 2.0 * size)

    def wait(_: object) -> None:
        if on_gpu:
            torch.cuda.synchronize()

    known = [dtype for dtype in dtypes if on_gpu or dtype == "f32"]
    products = {dtype: functools.partial(product, DTYPES[dtype]) for dtype in known}
    how = f"torch.matmul of {side} x {side}; a copy of {size >> 20} MiB"
    found = peak(products, copy, wait, how)
    if on_gpu:
        torch.cuda.empty_cache()
    return found
