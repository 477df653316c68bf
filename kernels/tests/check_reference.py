"""Checks the float64 reference, the comparison and the inputs on the GPU.

    python3 kernels/tests/check_reference.py [--cubins DIR]

The reference is held to PyTorch in float64 (relative L2 below 1e-12), the comparison to the
same figures from PyTorch, and the inputs, bit for bit, to the formula of
crates/worker/src/attention/inputs.rs, whose frozen values come first. Exits with 1 if anything
is off.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import tempfile
from typing import Any

import numpy
import torch

from driver import Difference, Driver, Fill, Problem, Reference, Tensor, build
from problems import CASES, CAUSAL, CAUSAL_BR, DTYPES, FULL, LOUD, Case, describe, relative

LIMIT = 1e-12
WIDE = [
    (1, 2, 1, 130, 100, 256, 192, CAUSAL_BR, "bhsd"),
    (2, 6, 2, 65, 129, 33, 7, (20, 9, 1), "bshd"),
    (1, 1, 1, 3, 2, 1, 1, FULL, "bshd"),
    (1, 3, 1, 90, 70, 160, 40, CAUSAL, "bshd"),
]


# ---------------------------------------------------------------- the reference


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
            print("WRONG", dtype, describe(case), errors, flush=True)
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


# ---------------------------------------------------------------- the comparison


def view(tensor: Any) -> Tensor:
    return Tensor(tensor.data_ptr(), *tensor.stride()[:3])


def difference(
    driver: Driver, result: Any, right: Any, dtype: str, blocks: int
) -> tuple[float, float, float, float]:
    partials = torch.full((blocks, 4), math.nan, device="cuda", dtype=torch.float64)
    arguments = Difference(view(result), right.data_ptr(), partials.data_ptr(), *result.shape)
    driver.launch("reference", "difference", dtype, (blocks, 1, 1), arguments)
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


# ---------------------------------------------------------------- the inputs


def elements(seed: int, tensor: int, count: int) -> Any:
    """crates/worker/src/attention/inputs.rs `element` of the indices below `count`."""
    u64 = numpy.uint64
    with numpy.errstate(over="ignore"):
        counter = u64(tensor << 40) + numpy.arange(count, dtype=u64) + u64(1)
        z = u64(seed) + counter * u64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> u64(30))) * u64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> u64(27))) * u64(0x94D049BB133111EB)
        z ^= z >> u64(31)
    unit = (z >> u64(11)).astype(numpy.float64) / float(1 << 53)
    return (2.0 * unit - 1.0) * math.sqrt(3.0)


def check_inputs(driver: Driver) -> int:
    bad = 0
    frozen = [*elements(42, 0, 3).tolist(), elements(42, 3, 1001)[1000].item()]
    if frozen != [0.836805286714029, -1.1781049573266253, -0.7669481822728474, -1.3725259712649156]:
        bad += 1
        print("WRONG frozen values", frozen)
    shape = (2, 301, 3, 79)
    for dtype, layout, (seed, tensor) in itertools.product(
        DTYPES, ("bshd", "bhsd"), ((42, 0), (7, 1), (2**64 - 1, 2), (0, 3))
    ):
        b, s, h, d = shape
        held = Case((b, h, h, s, s, d, d, FULL, layout), dtype)
        to = held.tensors["q"].fill_(math.nan)
        for blocks in (1, 1000):
            fill = Fill(view(to), seed, tensor, *shape)
            driver.launch("inputs", "inputs", dtype, (blocks, 1, 1), fill)
            driver.synchronize()
            single = torch.from_numpy(
                elements(seed, tensor, math.prod(shape)).astype(numpy.float32)
            )
            right = single.to(held.kind).view(shape)
            if not torch.equal(to.cpu(), right):
                bad += 1
                print("WRONG inputs", dtype, layout, seed, tensor, blocks)
    print("inputs:", "wrong" if bad else "the same bits")
    return bad


def main() -> int:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument(
        "--cubins", help="directory of NAME.cubin files; otherwise they are compiled"
    )
    cubins = arguments.parse_args().cubins
    if not cubins:
        cubins = tempfile.mkdtemp()
        build(cubins)
    torch.zeros(1, device="cuda")
    driver = Driver(cubins)
    bad = (
        check_inputs(driver)
        + check_difference(driver)
        + check_results(driver)
        + check_determinism(driver)
    )
    print(f"{bad} wrong")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
