"""Checks the float64 reference and the comparison of reference.cu on the GPU.

    python3 kernels/tests/check_reference.py

The reference is compared with PyTorch in float64 (relative L2 below 1e-12), the comparison with the
same figures from PyTorch. Exits with 1 if anything is off. The inputs, and results of every
kernel, are checked by each `regatta run native`.
"""

from __future__ import annotations

import itertools
import math
import sys
from typing import Any

import torch

from driver import Difference, Driver, Problem, Reference, Tensor
from problems import CASES, CAUSAL, CAUSAL_BR, DTYPES, FULL, LOUD, Case, relative

LIMIT = 1e-12
WIDE = [
    (1, 2, 1, 130, 100, 256, 192, CAUSAL_BR, "bhsd"),
    (2, 6, 2, 65, 129, 33, 7, (20, 9, 1), "bshd"),
    (1, 1, 1, 3, 2, 1, 1, FULL, "bshd"),
    (1, 3, 1, 90, 70, 160, 40, CAUSAL, "bshd"),
]


class Results:
    """Dense float64 results, full of NaN."""

    def __init__(self, p: Problem) -> None:
        rows = (p.batch, p.heads, p.seq_q)
        shapes = {
            "out": (p.batch, p.seq_q, p.heads, p.head_dim_v),
            "lse": rows,
            "delta": rows,
            "dq": (p.batch, p.seq_q, p.heads, p.head_dim),
            "dk": (p.batch, p.seq_k, p.kv_heads, p.head_dim),
            "dv": (p.batch, p.seq_k, p.kv_heads, p.head_dim_v),
        }
        self.tensors = {
            name: torch.full(shape, math.nan, device="cuda", dtype=torch.float64)
            for name, shape in shapes.items()
        }
        self.struct = Reference(**{name: t.data_ptr() for name, t in self.tensors.items()})


def launch_reference(driver: Driver, held: Case, direction: str, results: Results) -> None:
    held.problem.scale = math.nan  # not for it
    driver.reference(held.problem, held.dtype, direction, results.struct)


def check_results(driver: Driver) -> int:
    bad = 0
    worst: dict[str, float] = {}
    for case, dtype in itertools.product(CASES + LOUD + WIDE, DTYPES):
        held = Case(case, dtype, loud=case in LOUD)
        right, lse = held.reference()
        results = Results(held.problem)
        for direction in ("forward", "backward"):
            launch_reference(driver, held, direction, results)
        driver.synchronize()
        errors = {name: relative(results.tensors[name], right[name]) for name in right}
        found = results.tensors["lse"]
        off = (found - lse).abs().where(found != lse, torch.zeros_like(lse))
        errors["lse"] = off.max().item()
        for name, error in errors.items():
            worst[name] = max(worst.get(name, 0.0), error)
        # Loud scores reach ±100: exp turns their rounding into 1e-14 of itself.
        if not all(error <= LIMIT for error in errors.values()):
            bad += 1
            print("WRONG", dtype, case, errors, flush=True)
    print(
        "reference against PyTorch in float64, worst:",
        ", ".join(f"{name} {error:.1e}" for name, error in worst.items()),
    )
    return bad


def check_determinism(driver: Driver) -> bool:
    held = Case((2, 4, 2, 300, 513, 80, 80, CAUSAL, "bhsd"), "bf16")
    runs = []
    for _ in range(2):
        results = Results(held.problem)
        for direction in ("forward", "backward"):
            launch_reference(driver, held, direction, results)
        driver.synchronize()
        runs.append(results.tensors)
    same = all(torch.equal(runs[0][name], runs[1][name]) for name in runs[0])
    print("reference, twice:", "the same bits" if same else "DIFFERS")
    return not same


def view(tensor: Any) -> Tensor:
    return Tensor(tensor.data_ptr(), *tensor.stride()[:3])


def difference(
    driver: Driver, result: Any, right: Any, dtype: str, blocks: int
) -> tuple[float, float, float, float]:
    partials = torch.full((blocks, 4), math.nan, device="cuda", dtype=torch.float64)
    arguments = Difference(view(result), right.data_ptr(), partials.data_ptr(), *result.shape)
    driver.launch("difference", dtype, (blocks, 1, 1), arguments)
    driver.synchronize()
    squares, norm, _, infinite = partials.sum(0).tolist()
    return squares, norm, partials[:, 2].max().item(), infinite


def check_difference(driver: Driver) -> int:
    bad = 0
    for dtype, layout, blocks, broken in itertools.product(
        DTYPES, ("bshd", "bhsd"), (1, 7, 300), (0, 3)
    ):
        held = Case((2, 3, 3, 67, 67, 41, 41, FULL, layout), dtype)
        result = held.tensors["q"]
        right = (
            result.double().contiguous() + 1e-3 * torch.randn(result.shape, device="cuda").double()
        )
        off = result.double() - right
        for place, value in zip(
            ((0, 0, 0, 0), (1, 66, 2, 40), (1, 5, 1, 7)),
            (math.nan, math.inf, -math.inf)[:broken],
            strict=False,
        ):
            result[place], off[place] = value, 0.0
        found = difference(driver, result, right, dtype, blocks)
        expected = (
            off.square().sum().item(),
            right.square().sum().item(),
            off.abs().max().item(),
            float(broken),
        )
        close = all(math.isclose(a, b, rel_tol=1e-12) for a, b in zip(found, expected, strict=True))
        if not close:
            bad += 1
            print("WRONG difference", dtype, layout, blocks, broken, found, expected)
    print("difference:", "wrong" if bad else "as PyTorch's")
    return bad


def main() -> int:
    """All checks; the process's exit status."""
    torch.zeros(1, device="cuda")
    driver = Driver()
    bad = check_difference(driver) + check_results(driver) + check_determinism(driver)
    print(f"{bad} wrong")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
