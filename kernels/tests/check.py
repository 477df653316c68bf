"""Checks every kernel against float64 on the GPU, then races it against PyTorch's.

    python3 kernels/tests/check.py                    compile, check, time
    python3 kernels/tests/check.py --cubins DIR       with cubins made elsewhere
    compute-sanitizer python3 kernels/tests/check.py --cubins DIR --memory

--memory launches tiny odd problems on allocations of their exact size, without PyTorch,
for a memory checker to watch. Exits with 1 if any result is outside the tolerance of
crates/worker/src/attention/tolerance.rs.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from launch import (
    CONTRACTS,
    ELEMENT,
    VARIANTS,
    Difference,
    Driver,
    Fill,
    Problem,
    Reference,
    auto_splits,
    build,
    ceil_div,
    reference,
    supports,
    workspace_bytes,
)

Shape = tuple[int, int, int, int, int, int, int, tuple[int, int, int], str]
LIMIT = {"f32": 5e-6, "f16": 2e-3, "bf16": 1e-2}  # forward; backward twice that
INPUTS = ("q", "k", "v", "dout")
# Raced in backward alone, after whose forward: split_key has none, and check_hopper.py
# races flash_wgmma's.
FORWARD_OF = {"split_key": "flash_simt", "flash_wgmma": "flash_wgmma"}
RESULTS = {"forward": ("out",), "backward": ("dq", "dk", "dv")}

# batch, heads, kv_heads, seq_q, seq_k, head_dim, head_dim_v, (left, right, align), layout
FULL, CAUSAL, CAUSAL_BR = (-1, -1, 0), (-1, 0, 0), (-1, 0, 1)
CASES: list[Shape] = [
    (1, 1, 1, 64, 64, 64, 64, FULL, "bshd"),
    (2, 3, 3, 128, 192, 32, 32, FULL, "bhsd"),
    (2, 4, 2, 257, 259, 128, 128, FULL, "bshd"),
    (1, 2, 1, 1, 333, 64, 64, FULL, "bshd"),
    (1, 8, 1, 200, 77, 128, 128, FULL, "bhsd"),
    (1, 2, 2, 300, 300, 128, 128, CAUSAL, "bshd"),
    (2, 4, 2, 513, 513, 64, 64, CAUSAL, "bhsd"),
    (1, 2, 1, 100, 400, 64, 64, CAUSAL, "bshd"),
    (1, 2, 1, 100, 400, 128, 128, CAUSAL_BR, "bshd"),
    (1, 2, 1, 400, 100, 128, 128, CAUSAL, "bhsd"),
    (1, 2, 1, 400, 100, 64, 64, CAUSAL_BR, "bshd"),  # rows that see no key
    (1, 2, 2, 700, 700, 64, 64, (128, 0, 0), "bshd"),
    (1, 4, 2, 500, 611, 128, 128, (37, 5, 1), "bhsd"),
    (1, 2, 2, 300, 40, 64, 64, (10, 3, 0), "bshd"),  # rows that see no key, below
    (1, 2, 1, 150, 150, 80, 80, CAUSAL, "bshd"),
    (1, 2, 2, 130, 190, 72, 104, FULL, "bhsd"),
    (1, 3, 3, 1025, 1023, 40, 40, CAUSAL, "bshd"),
    (1, 2, 2, 4096, 4096, 32, 32, FULL, "bshd"),
    (1, 2, 2, 4096, 4096, 128, 128, CAUSAL, "bshd"),
]
# The same with scores of up to about ±100 that grow along the keys, so that the running
# maximum of the softmax moves in every tile.
LOUD: list[Shape] = [
    (1, 2, 1, 300, 1100, 64, 64, FULL, "bshd"),
    (1, 2, 2, 1000, 1000, 128, 128, CAUSAL, "bhsd"),
]


def problem_of(case: Shape) -> Problem:
    b, h, hkv, sq, sk, d, dv, (left, right, align), _ = case
    return Problem(
        batch=b,
        heads=h,
        kv_heads=hkv,
        seq_q=sq,
        seq_k=sk,
        head_dim=d,
        head_dim_v=dv,
        mask_left=left,
        mask_right=right,
        mask_align=align,
        num_splits=0,
        scale=1 / math.sqrt(d),
    )


def shape_of(p: Problem, name: str) -> tuple[int, int, int, int]:
    """Logical order: batch, seq, heads, head_dim."""
    keys = name in ("k", "v", "dk", "dv")
    wide = name in ("v", "dv", "out", "dout")
    return (
        p.batch,
        p.seq_k if keys else p.seq_q,
        p.kv_heads if keys else p.heads,
        p.head_dim_v if wide else p.head_dim,
    )


class Case:
    """A problem with its tensors on the GPU."""

    def __init__(
        self, torch: Any, case: Shape, dtype: str, seed: int = 0, loud: bool = False
    ) -> None:
        self.torch, self.case, self.dtype, self.layout = torch, case, dtype, case[-1]
        self.problem = problem_of(case)
        self.kind = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[dtype]
        generator = torch.Generator("cuda").manual_seed(seed)
        self.tensors = {}
        for name in Problem.TENSORS:
            tensor = self.empty(shape_of(self.problem, name))
            if name in INPUTS:
                uniform = torch.rand(tensor.shape, device="cuda", generator=generator)
                values = (2 * uniform - 1) * math.sqrt(3)
                if loud and name == "k":
                    values *= torch.linspace(0.1, 20, values.shape[1], device="cuda")[:, None, None]
                tensor.copy_(values)
            self.tensors[name] = tensor
        rows = (self.problem.batch, self.problem.heads, self.problem.seq_q)
        self.lse, self.delta = (torch.empty(rows, device="cuda") for _ in range(2))
        self.workspace: Any = None
        self.fill()

    def empty(self, shape: tuple[int, ...]) -> Any:
        """In logical order whatever the layout."""
        b, s, h, d = shape
        if self.layout == "bshd":
            return self.torch.empty(b, s, h, d, device="cuda", dtype=self.kind)
        return self.torch.empty(b, h, s, d, device="cuda", dtype=self.kind).transpose(1, 2)

    def fill(self) -> None:
        for name, tensor in self.tensors.items():
            field = getattr(self.problem, name)
            field.data = tensor.data_ptr()
            field.batch, field.seq, field.head = tensor.stride()[:3]
        self.problem.lse, self.problem.delta = self.lse.data_ptr(), self.delta.data_ptr()

    def prepare(self, variant: str, direction: str, splits: int | None = None) -> None:
        """Poisons what the variant writes, and gives it its workspace."""
        for name in RESULTS[direction]:
            self.tensors[name].fill_(math.nan)
        self.delta.fill_(math.nan)
        if direction == "forward":
            self.lse.fill_(math.nan)
        self.problem.num_splits = splits or auto_splits(self.problem)
        size = workspace_bytes(VARIANTS[variant][0], self.problem, direction)
        self.workspace = (
            self.torch.full((ceil_div(size, 4),), math.nan, device="cuda") if size else None
        )
        self.problem.workspace = self.workspace.data_ptr() if size else None

    def reference(self) -> tuple[dict[str, Any], Any]:
        """All results and lse in float64, on the same rounded inputs."""
        torch, p = self.torch, self.problem
        q, k, v = (
            self.tensors[n].double().transpose(1, 2).detach().requires_grad_() for n in "qkv"
        )
        group = p.heads // p.kv_heads
        scores = q @ k.repeat_interleave(group, 1).transpose(2, 3) * (1 / math.sqrt(p.head_dim))
        i = torch.arange(p.seq_q, device="cuda")[:, None]
        own = torch.arange(p.seq_k, device="cuda") - (p.seq_k - p.seq_q if p.mask_align else 0) - i
        seen = torch.ones_like(own, dtype=torch.bool)
        if p.mask_left >= 0:
            seen &= own >= -p.mask_left
        if p.mask_right >= 0:
            seen &= own <= p.mask_right
        lse = torch.logsumexp(scores.masked_fill(~seen, -math.inf), -1)
        safe = torch.where(lse == -math.inf, 0.0, lse)[..., None]
        weights = torch.where(seen, torch.exp(torch.where(seen, scores, -1e300) - safe), 0.0)
        out = weights @ v.repeat_interleave(group, 1)
        grads = torch.autograd.grad(out, (q, k, v), self.tensors["dout"].double().transpose(1, 2))
        found = dict(zip(("out", "dq", "dk", "dv"), (out, *grads), strict=True))
        return {n: t.detach().transpose(1, 2) for n, t in found.items()}, lse.detach()


def relative(result: Any, reference: Any) -> float:
    norm = float(reference.norm().item())
    error = float((result.double() - reference).norm().item())
    return error / norm if norm else error


def describe(case: Shape) -> str:
    b, h, hkv, sq, sk, d, dv, (left, right, align), layout = case
    mask = f"mask{left},{right},{'br' if align else 'tl'}"
    return f"b{b} h{h}/{hkv} q{sq} k{sk} d{d}/{dv} {mask} {layout}"


def check(torch: Any, driver: Driver, only: list[str] | None) -> int:
    """Relative L2 errors of every variant on every case; returns how many are too large."""
    bad = 0
    worst: dict[tuple[str, str, str], float] = {}
    for case, dtype in itertools.product(CASES + LOUD, ("f32", "f16", "bf16")):
        held = Case(torch, case, dtype, loud=case in LOUD)
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


def flops(p: Problem, direction: str) -> int:
    offset = p.seq_k - p.seq_q if p.mask_align else 0
    pairs = 0
    for i in range(p.seq_q):
        low = 0 if p.mask_left < 0 else max(0, i + offset - p.mask_left)
        high = p.seq_k - 1 if p.mask_right < 0 else min(p.seq_k - 1, i + offset + p.mask_right)
        pairs += max(0, high - low + 1)
    d, dv = p.head_dim, p.head_dim_v
    return 2 * p.batch * p.heads * pairs * (d + dv if direction == "forward" else 3 * d + 2 * dv)


def median_ms(torch: Any, call: Callable[[], Any], flush: Any, samples: int) -> float:
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


def race(torch: Any, driver: Driver, only: list[str] | None, samples: int) -> None:
    """Medians of cold calls beside PyTorch's backends, in the same process."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    big = (1, 16, 16, 8192, 8192, 128, 128)
    races: list[tuple[str, str, Shape, int | None, Any]] = [
        ("flash_mma", "bf16", (*big, FULL, "bshd"), None, SDPBackend.FLASH_ATTENTION),
        ("flash_mma", "bf16", (*big, CAUSAL, "bshd"), None, SDPBackend.FLASH_ATTENTION),
        (
            "flash_mma",
            "f16",
            (1, 32, 32, 8192, 8192, 64, 64, FULL, "bshd"),
            None,
            SDPBackend.FLASH_ATTENTION,
        ),
        (
            "flash_mma",
            "bf16",
            (4, 16, 16, 1024, 1024, 64, 64, CAUSAL, "bshd"),
            None,
            SDPBackend.FLASH_ATTENTION,
        ),
        (
            "flash_mma",
            "bf16",
            (2, 32, 8, 4096, 4096, 128, 128, CAUSAL, "bshd"),
            None,
            SDPBackend.FLASH_ATTENTION,
        ),
        ("flash_wgmma", "bf16", (*big, FULL, "bshd"), None, SDPBackend.CUDNN_ATTENTION),
        ("flash_wgmma", "bf16", (*big, CAUSAL, "bshd"), None, SDPBackend.CUDNN_ATTENTION),
        (
            "flash_wgmma",
            "f16",
            (1, 32, 32, 8192, 8192, 64, 64, FULL, "bshd"),
            None,
            SDPBackend.CUDNN_ATTENTION,
        ),
        (
            "flash_wgmma",
            "f16",
            (4, 16, 16, 1024, 1024, 64, 64, CAUSAL, "bshd"),
            None,
            SDPBackend.CUDNN_ATTENTION,
        ),
        (
            "flash_wgmma",
            "bf16",
            (2, 32, 8, 4096, 4096, 128, 128, CAUSAL, "bshd"),
            None,
            SDPBackend.CUDNN_ATTENTION,
        ),
        (
            "flash_simt",
            "f32",
            (1, 16, 16, 4096, 4096, 64, 64, FULL, "bshd"),
            None,
            SDPBackend.EFFICIENT_ATTENTION,
        ),
        (
            "flash_simt",
            "f32",
            (1, 16, 16, 2048, 2048, 128, 128, FULL, "bshd"),
            None,
            SDPBackend.EFFICIENT_ATTENTION,
        ),
        (
            "flash_simt",
            "f32",
            (4, 16, 16, 2048, 2048, 32, 32, FULL, "bshd"),
            None,
            SDPBackend.EFFICIENT_ATTENTION,
        ),
        (
            "split_key",
            "f32",
            (1, 1, 1, 10000, 10000, 32, 32, FULL, "bshd"),
            None,
            SDPBackend.EFFICIENT_ATTENTION,
        ),
        ("split_key", "f32", (1, 1, 1, 10000, 10000, 32, 32, FULL, "bshd"), 16, None),
        ("split_key", "f32", (1, 1, 1, 10000, 10000, 32, 32, FULL, "bshd"), 1, None),
        (
            "split_key",
            "f32",
            (1, 1, 1, 20000, 20000, 64, 64, FULL, "bshd"),
            None,
            SDPBackend.EFFICIENT_ATTENTION,
        ),
        ("naive", "bf16", (1, 16, 16, 1024, 1024, 64, 64, FULL, "bshd"), None, SDPBackend.MATH),
    ]
    for variant, dtype, case, splits, backend in races:
        if only and variant not in only:
            continue
        held = Case(torch, case, dtype)
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
            ours = median_ms(torch, call, flush, 3 if splits == 1 else samples)
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
                    theirs = median_ms(torch, call, flush, samples)
                line += f" | {backend.name} {theirs:8.3f} ms {teraflop / theirs:6.1f}"
                line += f" | ratio {theirs / ours:.3f}"
            print(line, flush=True)


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


def main() -> int:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument(
        "--cubins", help="directory of NAME.cubin files; otherwise they are compiled"
    )
    arguments.add_argument(
        "--memory", action="store_true", help="tiny problems for a memory checker"
    )
    arguments.add_argument("--cases", type=int, help="of --memory, only the first so many")
    arguments.add_argument("--only", nargs="*", default=[], help="variants; --memory: or reference")
    arguments.add_argument("--no-check", action="store_true")
    arguments.add_argument("--no-race", action="store_true")
    arguments.add_argument("--samples", type=int, default=15)
    given = arguments.parse_args()
    cubins = given.cubins
    if not cubins:
        cubins = tempfile.mkdtemp()
        build(cubins)
    if given.memory:
        memory(Driver(cubins), given.only, given.cases)
        return 0
    import torch

    torch.zeros(1, device="cuda")
    driver = Driver(cubins)
    bad = 0 if given.no_check else check(torch, driver, given.only)
    if not given.no_race:
        race(torch, driver, given.only, given.samples)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
