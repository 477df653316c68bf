"""Every variant's results against float64."""

from __future__ import annotations

import itertools
import math

from driver import Driver
from launch import VARIANTS, supports
from shapes import CASES, DTYPES, LIMIT, LOUD, RESULTS, describe
from tensors import Case, relative


def check(driver: Driver, only: list[str] | None) -> int:
    """Relative L2 errors of every variant on every case; returns how many are too large."""
    bad = 0
    worst: dict[tuple[str, str, str], float] = {}
    for case, dtype in itertools.product(CASES + LOUD, DTYPES):
        held = Case(case, dtype, loud=case in LOUD)
        reference, lse = held.reference()
        for variant, (launch, _, directions) in VARIANTS.items():
            if not supports(variant, held.problem, dtype) or (only and variant not in only):
                continue
            for direction in directions:
                splits = (None, 1, 3) if variant.startswith("split") else (None,)
                for count in splits:
                    held.prepare(variant, direction, count)
                    if direction == "backward":  # forward's results, exact up to rounding
                        held.tensors["out"].copy_(reference["out"])
                        held.lse.copy_(lse)
                    launch(driver, held.problem, dtype, direction)
                    driver.synchronize()
                    errors = {
                        n: relative(held.tensors[n], reference[n]) for n in RESULTS[direction]
                    }
                    limit = LIMIT[dtype] * (1 if direction == "forward" else 2)
                    if direction == "forward":
                        same = (held.lse == lse) | ((held.lse - lse).abs() < 1e-3)
                        errors["lse"] = 0.0 if bool(same.all()) else math.inf
                    key = (variant, dtype, direction)
                    worst[key] = max(worst.get(key, 0), *errors.values())
                    if not all(e <= limit for e in errors.values()):
                        bad += 1
                        print(
                            "WRONG",
                            variant,
                            dtype,
                            direction,
                            count,
                            describe(case),
                            {n: f"{e:.1e}" for n, e in errors.items()},
                            flush=True,
                        )
    for key, error in worst.items():
        print(f"{' '.join(key):32} worst relative L2 {error:.2e}")
    print(f"{bad} wrong")
    return bad
