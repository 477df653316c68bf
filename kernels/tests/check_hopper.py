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
import ctypes
import itertools
import math
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import launch as contracts

Grid = tuple[int, int, int]
Config = tuple[str, contracts.Tile]  # dtype, tile
KERNELS = pathlib.Path(__file__).resolve().parent.parent
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
LIMITS = {"bf16": 1e-2, "f16": 2e-3, "f32": 5e-6}  # relative L2, as the harness has them
UNBOUNDED = 1 << 30
GUARD = 4096  # elements on either side of an output

cuda = ctypes.CDLL("libcuda.so.1")


def driver(name: str, *arguments: Any) -> None:
    """Calls the driver; an error code becomes an exception that names the call."""
    code = getattr(cuda, name)(*arguments)
    if code != 0:
        text = ctypes.c_char_p()
        cuda.cuGetErrorName(code, ctypes.byref(text))
        raise RuntimeError(f"{name}: {(text.value or b'?').decode()}")


# ---------------------------------------------------------------- modules and launches


class Module:
    """A cubin from `directory`, or built for the occasion, and its functions by name."""

    def __init__(self, directory: pathlib.Path | None, source: str, defines: list[str]) -> None:
        self.handle = ctypes.c_void_p()
        with tempfile.TemporaryDirectory() as built:
            path = (directory or pathlib.Path(built)) / (source + ".cubin")
            if not directory:
                target = "-gencode=arch=compute_90a,code=sm_90a"
                subprocess.run(
                    [
                        "nvcc",
                        "-std=c++17",
                        "-cubin",
                        target,
                        *defines,
                        "-o",
                        str(path),
                        str(KERNELS / (source + ".cu")),
                    ],
                    check=True,
                )
            driver("cuModuleLoad", ctypes.byref(self.handle), str(path).encode())

    def function(self, name: str, shared: int) -> ctypes.c_void_p:
        function = ctypes.c_void_p()
        driver("cuModuleGetFunction", ctypes.byref(function), self.handle, name.encode())
        max_dynamic_shared = 8
        driver("cuFuncSetAttribute", function, max_dynamic_shared, ctypes.c_int(shared))
        return function


class Launch:
    """A launch with everything bound: calling it enqueues the kernel."""

    def __init__(
        self, function: ctypes.c_void_p, grid: Grid, block: int, shared: int, arguments: Any
    ) -> None:
        self.keep = arguments
        self.workspace: torch.Tensor | None = None
        pointers = [ctypes.cast(ctypes.pointer(a), ctypes.c_void_p) for a in arguments]
        self.parameters = (ctypes.c_void_p * len(pointers))(*pointers)
        self.function, self.grid, self.block, self.shared = function, grid, block, shared

    def __call__(self) -> None:
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        grid = [ctypes.c_uint(n) for n in self.grid]
        driver(
            "cuLaunchKernel",
            self.function,
            *grid,
            ctypes.c_uint(self.block),
            ctypes.c_uint(1),
            ctypes.c_uint(1),
            ctypes.c_uint(self.shared),
            stream,
            self.parameters,
            None,
        )


def pointer(tensor: torch.Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


def integers(*values: int) -> list[ctypes.c_int]:
    return [ctypes.c_int(v) for v in values]


# ---------------------------------------------------------------- problems and the reference


# left, right, align, as in `Problem` of problem.cuh
MASKS = {"full": (-1, -1, 0), "causal": (-1, 0, 0), "causal-br": (-1, 0, 1), "window": (200, 37, 0)}


def band(mask: str, seq_q: int, seq_k: int) -> tuple[int, int]:
    """Query i sees keys i + low to i + high."""
    left, right, align = MASKS[mask]
    offset = seq_k - seq_q if align else 0
    return (-UNBOUNDED if left < 0 else offset - left, UNBOUNDED if right < 0 else offset + right)


class Problem:
    """Random inputs of one attention problem, and poisoned, guarded outputs.

    Tensors are seen as [batch, seq, heads, head_dim] whatever lies in memory.
    """

    def __init__(
        self,
        dtype: str,
        batch: int,
        heads: int,
        kv_heads: int,
        seq_q: int,
        seq_k: int,
        head_dim: int,
        layout: str = "bshd",
        mask: str = "full",
    ) -> None:
        self.dtype, self.head_dim, self.layout = dtype, head_dim, layout
        self.mask, (self.low, self.high) = MASKS[mask], band(mask, seq_q, seq_k)
        self.batch, self.heads, self.kv_heads = batch, heads, kv_heads
        self.seq_q, self.seq_k = seq_q, seq_k
        self.q, self.k, self.v = (
            self.logical(torch.randn(self.physical(s, h), device="cuda", dtype=DTYPES[dtype]))
            for s, h in ((seq_q, heads), (seq_k, kv_heads), (seq_k, kv_heads))
        )
        self.out, self.out_guards = guarded(self.physical(seq_q, heads), DTYPES[dtype])
        self.out = self.logical(self.out)
        self.lse, self.lse_guards = guarded((batch, heads, seq_q), torch.float32)
        self.scale = 1 / math.sqrt(head_dim)

    def contract(self) -> contracts.Problem:
        """`Problem` of problem.cuh; forward's part."""
        left, right, align = self.mask
        given = contracts.Problem(
            batch=self.batch,
            heads=self.heads,
            kv_heads=self.kv_heads,
            seq_q=self.seq_q,
            seq_k=self.seq_k,
            head_dim=self.head_dim,
            head_dim_v=self.head_dim,
            mask_left=left,
            mask_right=right,
            mask_align=align,
            scale=self.scale,
            lse=self.lse.data_ptr(),
        )
        for name in ("q", "k", "v", "out"):
            tensor = getattr(self, name)
            setattr(given, name, contracts.Tensor(tensor.data_ptr(), *tensor.stride()[:3]))
        return given

    def physical(self, seq: int, heads: int) -> tuple[int, ...]:
        if self.layout == "bshd":
            return (self.batch, seq, heads, self.head_dim)
        return (self.batch, heads, seq, self.head_dim)

    def logical(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if self.layout == "bshd" else tensor.transpose(1, 2)

    def visible(self) -> torch.Tensor:
        i = torch.arange(self.seq_q, device="cuda")[:, None]
        j = torch.arange(self.seq_k, device="cuda")[None, :]
        return (j >= i + self.low) & (j <= i + self.high)

    def pairs(self) -> int:
        """Query-key pairs that one head looks at."""
        i = torch.arange(self.seq_q, dtype=torch.int64)
        first = (i + self.low).clamp(0, self.seq_k)
        end = (i + self.high + 1).clamp(0, self.seq_k)
        return int((end - first).clamp(min=0).sum())

    def flops(self) -> int:
        return 4 * self.batch * self.heads * self.pairs() * self.head_dim

    def reference(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Output and log-sum-exp in float64; 0 and -inf for a query that sees no key."""
        group = self.heads // self.kv_heads
        q, k, v = (t.double().transpose(1, 2) for t in (self.q, self.k, self.v))
        k, v = (t.repeat_interleave(group, 1) for t in (k, v))
        scores = (q @ k.transpose(2, 3) * self.scale).masked_fill(~self.visible(), -math.inf)
        lse = torch.logsumexp(scores, 3)
        weights = torch.exp(scores - lse.nan_to_num(neginf=0.0)[..., None])
        return (weights @ v).transpose(1, 2), lse

    def verdict(self) -> tuple[float, float, list[str]]:
        """Relative L2 error of the output, and what is wrong with it, if anything."""
        out, lse = self.reference()
        error = ((self.out.double() - out).norm() / out.norm()).item()
        some = torch.isfinite(lse)
        off = (self.lse.double() - lse)[some].abs().max().item() if some.any() else 0.0
        wrong = []
        if not error <= LIMITS[self.dtype]:
            wrong.append("out")
        if not off <= 2e-3 or not torch.equal(torch.isfinite(self.lse), some):
            wrong.append(f"lse({off:.1e})")
        if not all((g == 7).all() for g in (*self.out_guards, *self.lse_guards)):
            wrong.append("guards")
        return error, off, wrong


def guarded(
    shape: tuple[int, ...], dtype: torch.dtype
) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
    count = math.prod(shape)
    room = torch.full((count + 2 * GUARD,), 7.0, device="cuda", dtype=dtype)
    middle = room[GUARD : GUARD + count]
    middle.fill_(math.nan)
    return middle.view(shape), (room[:GUARD], room[GUARD + count :])


# ---------------------------------------------------------------- flash_wgmma

WGMMA = contracts.CONTRACTS["flash_wgmma"]["forward"]
FLASH: dict[str, Config] = {  # kernel: dtype, tile
    WGMMA.name(dtype, tile): (dtype, tile) for dtype in WGMMA.dtypes for tile in WGMMA.tiles
}
STUDIED = next(tile for tile in WGMMA.tiles if (tile.head_dim, tile.keys) == (128, 128))
FLASH_STUDY: dict[str, Config] = {  # the same without one of the kernel's choices
    "flash_wgmma_bf16_d128_m128_n128_unheld": ("bf16", STUDIED),
    "flash_wgmma_bf16_d128_m128_n128_unturned": ("bf16", STUDIED),
    "flash_wgmma_bf16_d128_m128_n128_eager": ("bf16", STUDIED),
    "flash_wgmma_bf16_d64_m128_n128": (
        "bf16",
        contracts.Tile(head_dim=64, queries=128, keys=128, threads=384, shared_bytes=83_200),
    ),
}


def tensor_map(tensor: torch.Tensor, rows: int) -> contracts.TensorMap:
    where = contracts.Tensor(tensor.data_ptr(), *tensor.stride()[:3])
    dtype = {torch.float16: "f16", torch.bfloat16: "bf16"}[tensor.dtype]
    batch, seq, heads, head_dim = tensor.shape
    return contracts.tensor_map(driver, where, dtype, batch, seq, heads, head_dim, rows)


def flash_launch(
    module: Module, name: str, config: Config, problem: Problem, block_per_sm: bool
) -> Launch:
    _, tile = config
    tiles = -(-problem.seq_q // tile.queries) * problem.batch * problem.heads
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    grid = min(tiles, sms) if block_per_sm else tiles
    maps = [
        tensor_map(problem.q, 64),
        tensor_map(problem.k, tile.keys),
        tensor_map(problem.v, tile.keys),
        tensor_map(problem.out, 64),
    ]
    arguments = [
        *maps,
        pointer(problem.lse),
        *integers(
            problem.batch,
            problem.heads,
            problem.kv_heads,
            problem.seq_q,
            problem.seq_k,
            problem.low,
            problem.high,
            flash_section(problem, block_per_sm),
        ),
        ctypes.c_float(problem.scale * math.log2(math.e)),
    ]
    return Launch(
        module.function(name, tile.shared_bytes),
        (grid, 1, 1),
        tile.threads,
        tile.shared_bytes,
        arguments,
    )


def flash_section(problem: Problem, block_per_sm: bool) -> int:
    """Heads whose tiles are taken before others are begun: see the kernel's contract."""
    if problem.high >= problem.seq_k:
        return 1
    all_heads = problem.batch * problem.heads
    if block_per_sm:
        return all_heads
    bytes_of_kv_head = 2 * problem.seq_k * problem.head_dim * 2
    kv_heads = max(1, (32 << 20) // bytes_of_kv_head)  # half of L2
    return min(kv_heads * (problem.heads // problem.kv_heads), all_heads)


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


def check_flash(module: Module, kernels: dict[str, Config]) -> int:
    failures = 0
    print(f"\n{'kernel':40} {'cases':>5} {'worst rel L2':>12} {'worst lse':>10}  verdict")
    for name, config in kernels.items():
        worst, worst_lse, bad = 0.0, 0.0, []
        cases = list(itertools.product(FLASH_SHAPES, ("bshd", "bhsd"), (False, True)))
        for (b, h, hk, sq, sk, mask), layout, block_per_sm in cases:
            problem = Problem(config[0], b, h, hk, sq, sk, config[1].head_dim, layout, mask)
            flash_launch(module, name, config, problem, block_per_sm)()
            torch.cuda.synchronize()
            error, off, wrong = problem.verdict()
            worst, worst_lse = max(worst, error), max(worst_lse, off)
            if wrong or math.isnan(error):
                bad.append(
                    f"    {b=} {h=} {hk=} {sq=} {sk=} {mask} {layout} {block_per_sm=}: "
                    f"{error:.2e} {' '.join(wrong)}"
                )
        print(
            f"{name:40} {len(cases):5} {worst:12.2e} {worst_lse:10.1e}  "
            f"{'FAIL ' + str(len(bad)) if bad else 'ok'}"
        )
        print("\n".join(bad[:8]), end="\n" if bad else "")
        failures += len(bad)
    return failures


# ---------------------------------------------------------------- split_kv

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


def split_slots(dtype: str, head_dim: int) -> int:
    blocks = 1 if (dtype, head_dim) == ("f32", 128) else 2
    sms: int = torch.cuda.get_device_properties(0).multi_processor_count
    return blocks * sms


def automatic_splits(problem: Problem) -> int:
    """The kernel's rule: the fewest splits whose last wave is nearly as full as the best."""
    rows = problem.heads // problem.kv_heads * problem.seq_q
    part = contracts.split_kv_part(problem.dtype).tile_for(problem.head_dim)
    tiles = -(-rows // part.queries) * problem.batch * problem.kv_heads
    slots = split_slots(problem.dtype, problem.head_dim)
    most = max(1, min(128, -(-problem.seq_k // 256)))
    waves = [n * tiles / slots for n in range(1, most + 1)]
    fullness = [w / math.ceil(w) for w in waves]
    return 1 + next(i for i, f in enumerate(fullness) if f >= 0.85 * max(fullness))


def split_launches(module: Module, problem: Problem, num_splits: int) -> tuple[Launch, Launch]:
    """The two kernels of one call, bound to a poisoned workspace."""
    rows = problem.heads // problem.kv_heads * problem.seq_q
    all_rows = problem.batch * problem.heads * problem.seq_q
    kernels = contracts.split_kv_part(problem.dtype), contracts.CONTRACTS["split_kv"]["join"]
    tiles = [kernel.tile_for(problem.head_dim) for kernel in kernels]
    workspace, _ = guarded((num_splits * all_rows * (problem.head_dim + 1),), torch.float32)
    given = problem.contract()
    given.workspace, given.num_splits = workspace.data_ptr(), num_splits
    grids = (
        (num_splits, -(-rows // tiles[0].queries), problem.batch * problem.kv_heads),
        (all_rows, 1, 1),
    )
    part, join = (
        Launch(
            module.function(kernel.name(problem.dtype, tile), tile.shared_bytes),
            grid,
            tile.threads,
            tile.shared_bytes,
            [given],
        )
        for kernel, tile, grid in zip(kernels, tiles, grids, strict=True)
    )
    part.workspace = workspace  # lives as long as the launch
    return part, join


def check_split(module: Module) -> int:
    failures = 0
    print(f"\n{'kernel':40} {'cases':>5} {'worst rel L2':>12} {'worst lse':>10}  verdict")
    for dtype, head_dim in SPLIT:
        worst, worst_lse, bad = 0.0, 0.0, []
        cases = list(itertools.product(SPLIT_SHAPES, ("bshd", "bhsd"), (None, 1, 3, 40)))
        for (b, h, hk, sq, sk, mask), layout, splits in cases:
            problem = Problem(dtype, b, h, hk, sq, sk, head_dim, layout, mask)
            for launch in split_launches(module, problem, splits or automatic_splits(problem)):
                launch()
            torch.cuda.synchronize()
            error, off, wrong = problem.verdict()
            worst, worst_lse = max(worst, error), max(worst_lse, off)
            if wrong or math.isnan(error):
                bad.append(
                    f"    {b=} {h=} {hk=} {sq=} {sk=} {mask} {layout} {splits=}: "
                    f"{error:.2e} {' '.join(wrong)}"
                )
        print(
            f"{f'split_kv_{dtype}_d{head_dim}':40} {len(cases):5} {worst:12.2e} "
            f"{worst_lse:10.1e}  {'FAIL ' + str(len(bad)) if bad else 'ok'}"
        )
        print("\n".join(bad[:8]), end="\n" if bad else "")
        failures += len(bad)
    return failures


# ---------------------------------------------------------------- timing


FLUSH_BYTES = 256 << 20


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


def sdpa(problem: Problem, backend: Any) -> Callable[[], None]:
    q, k, v = (t.transpose(1, 2) for t in (problem.q, problem.k, problem.v))
    causal = problem.high == 0

    def call() -> None:
        with sdpa_kernel(backend):
            F.scaled_dot_product_attention(
                q, k, v, is_causal=causal, enable_gqa=problem.heads != problem.kv_heads
            )

    return call


def time_flash(module: Module, kernels: dict[str, Config]) -> None:
    shapes = [
        ("bf16", 1, 16, 16, 8192, 128),
        ("bf16", 4, 16, 16, 2048, 128),
        ("bf16", 1, 64, 8, 8192, 128),
        ("f16", 1, 16, 16, 8192, 128),
        ("bf16", 1, 16, 16, 8192, 64),
    ]
    for (dtype, b, h, hk, s, d), mask in itertools.product(shapes, ("full", "causal")):
        problem = Problem(dtype, b, h, hk, s, s, d, "bhsd", mask)
        calls = {
            "cuDNN": sdpa(problem, SDPBackend.CUDNN_ATTENTION),
            "FlashAttention-2": sdpa(problem, SDPBackend.FLASH_ATTENTION),
        }
        for name, config in kernels.items():
            if (config[0], config[1].head_dim) == (dtype, d):
                for block_per_sm in (False, True):
                    title = name + (", a block per SM" if block_per_sm else ", a block a tile")
                    calls[title] = flash_launch(module, name, config, problem, block_per_sm)
        found = race(calls)
        print(f"\n{dtype} B={b} H={h}/{hk} S={s} D={d} {mask}, bhsd: TFLOP/s, ratio to cuDNN")
        for name, ms in found.items():
            print(f"  {name:57} {problem.flops() / ms / 1e9:5.0f} {found['cuDNN'] / ms:5.2f}")


def time_split(module: Module) -> None:
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
        problem = Problem(dtype, b, h, hk, sq, sk, d)
        size = 2 * problem.k.numel() * problem.k.element_size()
        automatic = automatic_splits(problem)
        calls: dict[int, Callable[[], Any]] = {}
        for splits in sorted({1, 2, 4, 8, 16, 32, 64, automatic}):
            part, join = split_launches(module, problem, splits)

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


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--cubins", type=pathlib.Path, metavar="DIR", help="load, do not build")
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
        module = Module(options.cubins, "flash_wgmma", defines)
        kernels = FLASH | FLASH_STUDY if options.study else FLASH
        failures += check_flash(module, kernels)
        if not options.smoke:
            time_flash(module, kernels)
    if options.only != "flash":
        module = Module(options.cubins, "split_kv", [])
        failures += check_split(module)
        if not options.smoke:
            time_split(module)
    print(f"\n{failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
