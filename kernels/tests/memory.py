"""Every variant on tiny odd problems, for a memory checker to watch. Without PyTorch."""

from __future__ import annotations

import itertools
import math

from contracts import CONTRACTS
from driver import Difference, Driver, Fill, Problem, Reference
from launch import VARIANTS, reference, supports, workspace_bytes
from shapes import CAUSAL, CAUSAL_BR, ELEMENT, FULL, INPUTS, Shape, problem_of, shape_of

MEMORY_CASES: list[Shape] = [
    (1, 2, 1, 67, 131, 64, 64, FULL, "bshd"),
    (2, 4, 2, 130, 65, 128, 128, CAUSAL_BR, "bshd"),
    (1, 2, 2, 1, 3, 40, 24, CAUSAL, "bshd"),
    (1, 2, 1, 70, 150, 32, 32, (20, 9, 1), "bshd"),
    (1, 2, 2, 3, 300, 128, 128, (50, 0, 1), "bshd"),
]


def memory(driver: Driver, only: list[str] | None, cases: int) -> None:
    """Tiny odd problems, each tensor in an allocation of exactly its size, and nothing
    written to it but what kernels write: for a checker of addresses, races and origins."""
    for case, dtype in itertools.product(MEMORY_CASES[:cases], ("f32", "bf16")):
        p = problem_of(case)
        for name in Problem.TENSORS:
            b, s, h, d = shape_of(p, name)
            field = getattr(p, name)
            field.data = driver.allocate(b * s * h * d * ELEMENT[dtype])
            field.batch, field.seq, field.head = s * h * d, h * d, d
            if name in INPUTS:
                driver.launch(
                    CONTRACTS["inputs"]["inputs"],
                    dtype,
                    (3, 1, 1),
                    Fill(field, 42, INPUTS.index(name), b, s, h, d),
                )
        rows = p.batch * p.heads * p.seq_q * 4
        p.lse, p.delta = driver.allocate(rows), driver.allocate(rows)
        for variant, (launch, _, directions) in VARIANTS.items():
            if not supports(variant, p, dtype) or (only and variant not in only):
                continue
            for direction in directions:
                # split_key has no forward, and the checker does not see what TMA writes.
                forward = {"split_key": "flash_simt", "flash_wgmma": "flash_mma"}.get(variant)
                if direction == "backward" and forward:
                    VARIANTS[forward][0](driver, p, dtype, "forward")
                p.num_splits = 2 if p.seq_k > 64 else 1
                p.workspace = driver.allocate(workspace_bytes(launch, p, direction))
                launch(driver, p, dtype, direction)
                driver.synchronize()
        if not only or "reference" in only:
            memory_of_reference(driver, p, dtype)
    print("launched")


def memory_of_reference(driver: Driver, p: Problem, dtype: str) -> None:
    sizes = {name: math.prod(shape_of(p, name)) for name in ("out", "dq", "dk", "dv")}
    sizes |= dict.fromkeys(("lse", "delta"), p.batch * p.heads * p.seq_q)
    results = Reference(**{name: driver.allocate(8 * size) for name, size in sizes.items()})
    for direction in ("forward", "backward"):
        reference(driver, p, dtype, direction, results)
    partials = driver.allocate(3 * 4 * 8)
    driver.launch(
        CONTRACTS["reference"]["difference"],
        dtype,
        (3, 1, 1),
        Difference(p.k, results.dk, partials, *shape_of(p, "k")),
    )
    driver.synchronize()
