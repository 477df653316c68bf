"""How fast the variants are, beside PyTorch's backends in the same process."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from driver import Driver, Problem
from launch import VARIANTS
from shapes import CAUSAL, FULL, Shape, describe
from tensors import Case

FLUSH_BYTES = 256 << 20  # several times what L2 holds
FLASH, CUDNN = SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION
EFFICIENT = SDPBackend.EFFICIENT_ATTENTION
# Raced in backward alone, after whose forward: split_key has none, and check_hopper.py
# races flash_wgmma's.
FORWARD_OF = {"split_key": "flash_simt", "flash_wgmma": "flash_wgmma"}


def flops(p: Problem, direction: str) -> int:
    low, high = p.band()
    pairs = 0
    for i in range(p.seq_q):
        pairs += max(0, min(p.seq_k - 1, i + high) - max(0, i + low) + 1)
    d, dv = p.head_dim, p.head_dim_v
    return 2 * p.batch * p.heads * pairs * (d + dv if direction == "forward" else 3 * d + 2 * dv)


def median_ms(call: Callable[[], Any], flush: Any, samples: int) -> float:
    for _ in range(2):
        call()
    times: list[float] = []
    for _ in range(samples):
        flush.zero_()
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        # The flush takes longer than the host needs to enqueue what follows it.
        start.record()
        call()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop))
    return sorted(times)[len(times) // 2]


def race(driver: Driver, only: list[str] | None, samples: int) -> None:
    """Medians of cold calls beside PyTorch's backends, in the same process."""
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    big = (1, 16, 16, 8192, 8192, 128, 128)
    wide: Shape = (1, 32, 32, 8192, 8192, 64, 64, FULL, "bshd")
    short: Shape = (4, 16, 16, 1024, 1024, 64, 64, CAUSAL, "bshd")
    grouped: Shape = (2, 32, 8, 4096, 4096, 128, 128, CAUSAL, "bshd")
    long: Shape = (1, 1, 1, 10000, 10000, 32, 32, FULL, "bshd")
    races: list[tuple[str, str, Any, int | None, Shape]] = [
        ("flash_mma", "bf16", FLASH, None, (*big, FULL, "bshd")),
        ("flash_mma", "bf16", FLASH, None, (*big, CAUSAL, "bshd")),
        ("flash_mma", "f16", FLASH, None, wide),
        ("flash_mma", "bf16", FLASH, None, short),
        ("flash_mma", "bf16", FLASH, None, grouped),
        ("flash_wgmma", "bf16", CUDNN, None, (*big, FULL, "bshd")),
        ("flash_wgmma", "bf16", CUDNN, None, (*big, CAUSAL, "bshd")),
        ("flash_wgmma", "f16", CUDNN, None, wide),
        ("flash_wgmma", "f16", CUDNN, None, short),
        ("flash_wgmma", "bf16", CUDNN, None, grouped),
        ("flash_simt", "f32", EFFICIENT, None, (1, 16, 16, 4096, 4096, 64, 64, FULL, "bshd")),
        ("flash_simt", "f32", EFFICIENT, None, (1, 16, 16, 2048, 2048, 128, 128, FULL, "bshd")),
        ("flash_simt", "f32", EFFICIENT, None, (4, 16, 16, 2048, 2048, 32, 32, FULL, "bshd")),
        ("split_key", "f32", EFFICIENT, None, long),
        ("split_key", "f32", None, 16, long),
        ("split_key", "f32", None, 1, long),
        ("split_key", "f32", EFFICIENT, None, (1, 1, 1, 20000, 20000, 64, 64, FULL, "bshd")),
        ("naive", "bf16", SDPBackend.MATH, None, (1, 16, 16, 1024, 1024, 64, 64, FULL, "bshd")),
    ]
    for variant, dtype, backend, splits, case in races:
        if only and variant not in only:
            continue
        held = Case(case, dtype)
        p = held.problem
        launch, _, directions = VARIANTS[variant]
        if variant in FORWARD_OF:
            directions = ("backward",)
            held.prepare(FORWARD_OF[variant], "forward")
            VARIANTS[FORWARD_OF[variant]][0](driver, p, dtype, "forward")
        views = [held.tensors[n].transpose(1, 2).detach().requires_grad_() for n in "qkv"]
        dout = held.tensors["dout"].transpose(1, 2)
        sdpa = functools.partial(
            torch.nn.functional.scaled_dot_product_attention,
            *views,
            is_causal=p.mask_right == 0,
            enable_gqa=p.heads != p.kv_heads,
        )
        for direction in directions:
            held.prepare(variant, direction, splits)
            call = functools.partial(launch, driver, p, dtype, direction)
            ours = median_ms(call, flush, 3 if splits == 1 else samples)
            teraflop = flops(p, direction) / 1e9
            line = (
                f"{variant:10} {dtype:4} {direction:8} splits {splits or '-':>2} "
                f"{describe(case):48} {ours:9.3f} ms {teraflop / ours:6.1f} TFLOP/s"
            )
            if backend is not None:
                with sdpa_kernel(backend):
                    result = sdpa()
                    backward = functools.partial(
                        torch.autograd.grad, result, views, dout, retain_graph=True
                    )
                    call = sdpa if direction == "forward" else backward
                    theirs = median_ms(call, flush, samples)
                line += f" | {backend.name} {theirs:8.3f} ms {teraflop / theirs:6.1f}"
                line += f" | ratio {theirs / ours:.3f}"
            print(line, flush=True)
