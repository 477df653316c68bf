"""How fast flash_wgmma and split_kv are: beside PyTorch's backends, and beside a copy."""

from __future__ import annotations

import itertools
import random
import statistics
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import sdpa_kernel

from driver import Driver, Launch
from guarded import Guarded
from hopper import Config, automatic_splits, flash_launch, split_launches
from race import CUDNN, FLASH, FLUSH_BYTES


def race(calls: dict[Any, Callable[[], Any]], samples: int = 20) -> dict[Any, float]:
    """Median device time of each call in ms, cold: L2 is flushed before every sample.

    Rounds of one sample each in random order, since the clock sinks while the device is
    busy and a fixed order would give the first call the best of it.
    """
    flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
    times: dict[Any, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(samples):
        for name in random.sample(list(calls), len(calls)):
            flush.zero_()
            torch.cuda._sleep(200_000)  # about 0.1 ms, in which the host gets ahead
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            calls[name]()
            stop.record()
            torch.cuda.synchronize()
            times[name].append(start.elapsed_time(stop))
    return {name: statistics.median(t) for name, t in times.items()}


def sdpa(problem: Guarded, backend: Any) -> Callable[[], None]:
    q, k, v = (t.transpose(1, 2) for t in (problem.q, problem.k, problem.v))
    causal = problem.high == 0

    def call() -> None:
        with sdpa_kernel(backend):
            F.scaled_dot_product_attention(
                q, k, v, is_causal=causal, enable_gqa=problem.heads != problem.kv_heads
            )

    return call


def time_flash(driver: Driver, kernels: dict[str, Config]) -> None:
    shapes = [
        ("bf16", 1, 16, 16, 8192, 128),
        ("bf16", 4, 16, 16, 2048, 128),
        ("bf16", 1, 64, 8, 8192, 128),
        ("f16", 1, 16, 16, 8192, 128),
        ("bf16", 1, 16, 16, 8192, 64),
    ]
    for (dtype, b, h, hk, s, d), mask in itertools.product(shapes, ("full", "causal")):
        problem = Guarded(dtype, b, h, hk, s, s, d, "bhsd", mask)
        calls = {
            "cuDNN": sdpa(problem, CUDNN),
            "FlashAttention-2": sdpa(problem, FLASH),
        }
        for name, config in kernels.items():
            if (config[0], config[1].head_dim) == (dtype, d):
                for block_per_sm in (False, True):
                    title = name + (", a block per SM" if block_per_sm else ", a block a tile")
                    calls[title] = flash_launch(driver, name, config, problem, block_per_sm)
        found = race(calls)
        print(f"\n{dtype} B={b} H={h}/{hk} S={s} D={d} {mask}, bhsd: TFLOP/s, ratio to cuDNN")
        for name, ms in found.items():
            print(f"  {name:57} {problem.flops() / ms / 1e9:5.0f} {found['cuDNN'] / ms:5.2f}")


def time_split(driver: Driver) -> None:
    a, b = (torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda") for _ in range(2))
    copied = 2 * FLUSH_BYTES / race({"copy": lambda: b.copy_(a)})["copy"] / 1e9
    print(f"\ncopy of 256 MiB: {copied:.2f} TB/s; split_kv below in TB/s of keys and values")
    for dtype, b, h, hk, sq, sk, d in [
        ("bf16", 8, 32, 8, 1, 32768, 128),
        ("f16", 8, 32, 8, 1, 32768, 128),
        ("bf16", 1, 32, 8, 1, 32768, 128),
        ("bf16", 1, 8, 1, 1, 131072, 128),
        ("bf16", 8, 32, 8, 4, 32768, 128),
        ("bf16", 8, 32, 8, 1, 32768, 64),
        ("f32", 8, 32, 8, 1, 16384, 128),
        ("f32", 8, 32, 8, 4, 16384, 128),
        ("f32", 8, 32, 8, 1, 32768, 64),
        ("bf16", 64, 32, 8, 1, 4096, 128),
    ]:
        problem = Guarded(dtype, b, h, hk, sq, sk, d)
        size = 2 * problem.k.numel() * problem.k.element_size()
        automatic = automatic_splits(problem)
        calls: dict[int, Callable[[], Any]] = {}
        for splits in sorted({1, 2, 4, 8, 16, 32, 64, automatic}):
            part, join = split_launches(driver, problem, splits)

            def both(part: Launch = part, join: Launch = join) -> None:
                part()
                join()

            calls[splits] = both
        found = race(calls, 10)
        row = " ".join(f"{n}:{size / ms / 1e9:.2f}" for n, ms in found.items())
        ms = found[automatic]
        print(
            f"  {dtype:4} B={b} H={h}/{hk} Sq={sq} Sk={sk} D={d}: automatic {automatic}, "
            f"{ms * 1e3:.0f} us, {size / ms / 1e9:.2f} = {size / ms / 1e9 / copied:.0%} of the "
            f"copy, {min(found.values()) / ms:.2f} of the best | {row}"
        )
