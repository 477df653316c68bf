#!/usr/bin/env python3
"""Checks and times the Hopper kernels on the GPU of this machine.

    python3 kernels/tests/check_hopper.py [--cubins DIR] [--study] [--only flash|split] [--smoke]

Builds both files with nvcc (or loads `flash_wgmma.cubin` and `split_kv.cubin` from DIR),
holds each kernel's results to a float64 reference over dtypes, masks, grouped heads, odd
lengths and both layouts, and then times them: the flash kernels beside PyTorch's own
backends in the same process, the split ones beside a copy. Outputs are poisoned with NaN
before each check and stand between guards that must come out untouched. Exit code 1 when
any check fails.

Needs torch and libcuda only. `--study` also takes the tile variants that are compiled
under -DFLASH_WGMMA_STUDY.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import tempfile
from collections.abc import Iterable

import torch

from driver import Driver, Launch, build
from guarded import Guarded
from hopper import FLASH, FLASH_STUDY, Config, automatic_splits, flash_launch, split_launches
from race_hopper import time_flash, time_split


def loaded(directory: str | None, file: str, defines: list[str]) -> Driver:
    """A cubin from `directory`, or built for the occasion."""
    if directory:
        return Driver(directory, [file])
    with tempfile.TemporaryDirectory() as built:
        build(built, files=[file], defines=defines)
        return Driver(built, [file])


# What is told of a call, its problem, and its launches.
Call = tuple[str, Guarded, Iterable[Launch]]


def heading() -> None:
    print(f"\n{'kernel':40} {'cases':>5} {'worst rel L2':>12} {'worst lse':>10}  verdict")


def check(name: str, calls: Iterable[Call]) -> int:
    """A line of the table; returns how many calls are wrong."""
    cases, worst, worst_lse = 0, 0.0, 0.0
    bad: list[str] = []
    for told, problem, launches in calls:
        for launch in launches:
            launch()
        torch.cuda.synchronize()
        error, off, wrong = problem.verdict()
        cases, worst, worst_lse = cases + 1, max(worst, error), max(worst_lse, off)
        if wrong or math.isnan(error):
            bad.append(f"    {told}: {error:.2e} {' '.join(wrong)}")
    print(
        f"{name:40} {cases:5} {worst:12.2e} {worst_lse:10.1e}  "
        f"{'FAIL ' + str(len(bad)) if bad else 'ok'}"
    )
    print("\n".join(bad[:8]), end="\n" if bad else "")
    return len(bad)


FLASH_SHAPES = [  # batch, heads, kv_heads, seq_q, seq_k, and bands (low, high)
    (1, 1, 1, 128, 128, "full"),
    (2, 4, 4, 512, 512, "full"),
    (2, 4, 2, 512, 512, "causal"),
    (1, 8, 2, 1, 1, "full"),
    (2, 3, 1, 333, 777, "full"),
    (2, 6, 2, 777, 333, "causal"),
    (1, 4, 4, 200, 1111, "causal-br"),
    (2, 4, 1, 1000, 1000, "causal"),
    (1, 2, 2, 65, 4097, "full"),
    (1, 2, 1, 1500, 1500, "window"),
    (1, 2, 2, 700, 300, "causal-br"),
    (3, 16, 4, 1025, 1025, "causal"),
]


def check_flash(driver: Driver, kernels: dict[str, Config]) -> int:
    def calls(name: str, config: Config) -> Iterable[Call]:
        cases = itertools.product(FLASH_SHAPES, ("bshd", "bhsd"), (False, True))
        for (b, h, hk, sq, sk, mask), layout, block_per_sm in cases:
            problem = Guarded(config[0], b, h, hk, sq, sk, config[1].head_dim, layout, mask)
            told = f"{b=} {h=} {hk=} {sq=} {sk=} {mask} {layout} {block_per_sm=}"
            yield told, problem, [flash_launch(driver, name, config, problem, block_per_sm)]

    heading()
    return sum(check(name, calls(name, config)) for name, config in kernels.items())


SPLIT = [(dtype, head_dim) for dtype in ("bf16", "f16", "f32") for head_dim in (64, 128)]
SPLIT_SHAPES = [  # batch, heads, kv_heads, seq_q, seq_k, band
    (2, 8, 2, 1, 4096, "full"),
    (1, 4, 4, 1, 1, "full"),
    (3, 8, 1, 1, 1000, "full"),
    (2, 8, 2, 4, 777, "causal-br"),
    (1, 16, 2, 3, 2049, "causal-br"),
    (1, 4, 1, 16, 5000, "full"),
    (2, 32, 1, 1, 333, "full"),
    (1, 6, 2, 7, 130, "causal"),
    (1, 2, 1, 5, 900, "window"),
]


def check_split(driver: Driver) -> int:
    def calls(dtype: str, head_dim: int) -> Iterable[Call]:
        cases = itertools.product(SPLIT_SHAPES, ("bshd", "bhsd"), (None, 1, 3, 40))
        for (b, h, hk, sq, sk, mask), layout, splits in cases:
            problem = Guarded(dtype, b, h, hk, sq, sk, head_dim, layout, mask)
            told = f"{b=} {h=} {hk=} {sq=} {sk=} {mask} {layout} {splits=}"
            launches = split_launches(driver, problem, splits or automatic_splits(problem))
            yield told, problem, launches

    heading()
    return sum(check(f"split_kv_{dtype}_d{d}", calls(dtype, d)) for dtype, d in SPLIT)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--cubins", metavar="DIR", help="load, do not build")
    parser.add_argument("--study", action="store_true", help="also the tile variants")
    parser.add_argument("--only", choices=("flash", "split"))
    parser.add_argument(
        "--smoke",
        action="store_true",
        help="a third of the shapes and no timing: for compute-sanitizer",
    )
    options = parser.parse_args()
    torch.manual_seed(torch.seed())
    torch.zeros(1, device="cuda")  # makes the device's context current in this thread
    torch.backends.cuda.matmul.allow_tf32 = False
    print(torch.cuda.get_device_name(0), "torch", torch.__version__)
    if options.smoke:
        del FLASH_SHAPES[::3], FLASH_SHAPES[::2], SPLIT_SHAPES[::3], SPLIT_SHAPES[::2]
    failures = 0
    if options.only != "split":
        defines = ["-DFLASH_WGMMA_STUDY"] if options.study else []
        driver = loaded(options.cubins, "flash_wgmma", defines)
        kernels = FLASH | FLASH_STUDY if options.study else FLASH
        failures += check_flash(driver, kernels)
        if not options.smoke:
            time_flash(driver, kernels)
    if options.only != "flash":
        driver = loaded(options.cubins, "split_kv", [])
        failures += check_split(driver)
        if not options.smoke:
            time_split(driver)
    print(f"\n{failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
