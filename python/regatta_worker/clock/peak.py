"""What a device reaches at the most, in products of matrices and in copies.

A figure on a data sheet is one that nothing reaches; what a library's product of large matrices
does here and now is one that a kernel can be held beside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Called:
    """Something that is called over and over."""

    call: Callable[[], Any]
    amount: float
    """Operations, or bytes read and written, of a call."""


def peak(
    products: Mapping[str, Callable[[], Called]],
    copy: Callable[[], Called],
    wait: Callable[[Any], None],
    how: str,
) -> Message:
    """Fields of `peak`: `tflops` by storage type, and `gbps`; each made, measured, let go."""
    tflops = {dtype: _fastest(made(), wait) / 1e12 for dtype, made in products.items()}
    return {"tflops": tflops, "gbps": _fastest(copy(), wait) / 1e9, "how": how}


def flops(side: int) -> float:
    """Of a product of two square matrices: a multiplication and an addition for each element
    of the result and of a row."""
    return 2.0 * side**3


def _fastest(called: Called, wait: Callable[[Any], None]) -> float:
    """The highest rate, in amounts a second."""
    wait(called.call())
    once = _took(called, wait, 1)
    calls = max(1, min(50, round(SAMPLE_S / once)))
    return called.amount / min(_took(called, wait, calls) for _ in range(SAMPLES))


def _took(called: Called, wait: Callable[[Any], None], calls: int) -> float:
    """Seconds of a call, of so many in a row."""
    begin = perf_counter()
    result = None
    for _ in range(calls):
        result = called.call()
    wait(result)
    return (perf_counter() - begin) / calls
