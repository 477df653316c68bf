"""A matrix product and a softmax in Triton, with the choices that their speed hangs on."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from faults.around import Program

SIZE = 4096
TILE = {"rows": 128, "columns": 128, "depth": 64}
GRID = (SIZE // TILE["rows"], SIZE // TILE["columns"])


@triton.jit
def product(
    a, b, c, size,  # type: ignore[no-untyped-def]  # a kernel's arguments are Triton's
    rows: tl.constexpr, columns: tl.constexpr, depth: tl.constexpr,
):  # fmt: skip
    """c = a b, of square matrices whose size the tile divides."""
    m = tl.program_id(0) * rows + tl.arange(0, rows)
    n = tl.program_id(1) * columns + tl.arange(0, columns)
    k = tl.arange(0, depth)
    left = a + m[:, None] * size + k[None, :]
    right = b + k[:, None] * size + n[None, :]
    total = tl.zeros((rows, columns), dtype=tl.float32)
    for _ in range(0, size, depth):
        total += tl.dot(tl.load(left), tl.load(right))
        left += depth
        right += depth * size
    tl.store(c + m[:, None] * size + n[None, :], total.to(tl.bfloat16))


@triton.jit
def softmax(x, out, size: tl.constexpr):  # type: ignore[no-untyped-def]
    """Of one row, whose length is a power of two."""
    at = tl.program_id(0) * size + tl.arange(0, size)
    row = tl.load(x + at).to(tl.float32)
    row = tl.exp(row - tl.max(row, 0))
    tl.store(out + at, (row / tl.sum(row, 0)).to(tl.bfloat16))


def timed(call: Any, quantiles: Any) -> list[float]:
    """As Triton's own benchmark, with always as many calls, so that each step is the same."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    call()
    start.record()
    for _ in range(5):
        call()
    end.record()
    end.synchronize()
    return [start.elapsed_time(end) / 5] * 3


def build(change: str) -> Program:
    """The program with a change."""
    torch.manual_seed(0)
    if change == "deterministic":
        torch.backends.cudnn.deterministic = True
    a, b = (torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    c, rows = torch.empty_like(a), torch.empty_like(a)
    options: dict[str, int] = {"num_warps": 8, "num_stages": 3}
    if change == "spills":
        options["num_warps"] = 2
    if change == "one-stage":
        options["num_stages"] = 1
    row_warps = 1 if change == "fewer-warps" else 8
    # The last of these is by far the slowest, so that the choice is always the same.
    choices = [triton.Config(TILE, **options), triton.Config(TILE, num_warps=8, num_stages=1)]
    tuned = triton.autotune(choices, key=["size"], do_bench=timed)(product)

    def step(_: int) -> None:
        # As a model has layers.
        for _ in range(4):
            if change == "retunes":
                tuned.cache.clear()
                tuned[GRID](a, b, c, SIZE)
            else:
                product[GRID](a, b, c, SIZE, **TILE, **options)
            for _ in range(4):
                softmax[(SIZE,)](c, rows, SIZE, num_warps=row_warps)
        rows.mean()

    return Program(step, torch.cuda.synchronize)
