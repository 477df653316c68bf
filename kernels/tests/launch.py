"""Launches the attention kernels through the CUDA driver, from Python's standard library.

The one place in Python that repeats the launch contracts at the heads of the kernel
files: shared memory, grids and workspaces as written there.
"""

from __future__ import annotations

import ctypes
import math
import os
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

Grid = tuple[int, int, int]
KERNELS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FILES = [
    "naive",
    "flash_simt",
    "split_key",
    "flash_mma",
    "flash_mma_backward",
    "flash_wgmma",
    "flash_wgmma_backward",
    "split_kv",
    "reference",
    "inputs",
]
ELEMENT = {"f32": 4, "f16": 2, "bf16": 2}


class Tensor(ctypes.Structure):
    data: int | None
    batch: int
    seq: int
    head: int
    _fields_ = [("data", ctypes.c_void_p)] + [
        (s, ctypes.c_longlong) for s in ("batch", "seq", "head")
    ]


class Problem(ctypes.Structure):
    """`Problem` of problem.cuh, field by field."""

    TENSORS = ("q", "k", "v", "out", "dout", "dq", "dk", "dv")
    SIZES = (
        "batch",
        "heads",
        "kv_heads",
        "seq_q",
        "seq_k",
        "head_dim",
        "head_dim_v",
        "mask_left",
        "mask_right",
        "mask_align",
        "num_splits",
    )
    q: Tensor
    k: Tensor
    v: Tensor
    out: Tensor
    dout: Tensor
    lse: int | None
    delta: int | None
    workspace: int | None
    batch: int
    heads: int
    kv_heads: int
    seq_q: int
    seq_k: int
    head_dim: int
    head_dim_v: int
    mask_left: int
    mask_right: int
    mask_align: int
    num_splits: int
    scale: float
    _fields_ = (
        [(name, Tensor) for name in TENSORS]
        + [(name, ctypes.c_void_p) for name in ("lse", "delta", "workspace")]
        + [(name, ctypes.c_int) for name in SIZES]
        + [("scale", ctypes.c_float)]
    )


class Reference(ctypes.Structure):
    """`Reference` of reference.cu: dense float64 results."""

    RESULTS = ("out", "lse", "delta", "dq", "dk", "dv")
    _fields_ = [(name, ctypes.c_void_p) for name in RESULTS]


class Difference(ctypes.Structure):
    """`Difference` of reference.cu."""

    _fields_ = [
        ("result", Tensor),
        ("reference", ctypes.c_void_p),
        ("partials", ctypes.c_void_p),
    ] + [(name, ctypes.c_int) for name in ("batch", "seq", "heads", "dim")]


class Fill(ctypes.Structure):
    """`Fill` of inputs.cu."""

    _fields_ = [("to", Tensor), ("seed", ctypes.c_ulonglong), ("tensor", ctypes.c_ulonglong)] + [
        (name, ctypes.c_int) for name in ("batch", "seq", "heads", "dim")
    ]


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def compiler(arch: str, name: str) -> list[str]:
    """The command that compiles kernel file NAME, but for where to."""
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    return [nvcc, "-std=c++17", f"-arch={arch}", "-cubin", "-lineinfo", f"{KERNELS}/{name}.cu"]


def build(directory: str, arch: str = "sm_90a") -> None:
    """Compiles every kernel file into DIRECTORY/NAME.cubin."""
    running = [
        subprocess.Popen([*compiler(arch, name), "-o", f"{directory}/{name}.cubin"])
        for name in FILES
    ]
    failed = [process for process in running if process.wait()]
    if failed:
        raise SystemExit("a kernel does not compile")


class Driver:
    """The loaded cubins, in the primary context of device 0."""

    def __init__(self, cubins: str) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        context, device = ctypes.c_void_p(), ctypes.c_int()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        self.modules: dict[str, ctypes.c_void_p] = {}
        self.functions: dict[str, ctypes.c_void_p] = {}
        for name in FILES:
            with open(f"{cubins}/{name}.cubin", "rb") as file:
                image = file.read()
            module = ctypes.c_void_p()
            self.call("cuModuleLoadData", ctypes.byref(module), image)
            self.modules[name] = module

    def call(self, name: str, *arguments: Any) -> None:
        code = getattr(self.cuda, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self.cuda.cuGetErrorString(code, ctypes.byref(text))
            raise RuntimeError(f"{name}: {code} {(text.value or b'').decode()}")

    def function(self, file: str, name: str, shared: int) -> ctypes.c_void_p:
        if name not in self.functions:
            function = ctypes.c_void_p()
            self.call(
                "cuModuleGetFunction", ctypes.byref(function), self.modules[file], name.encode()
            )
            # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self.call("cuFuncSetAttribute", function, 8, shared)
            self.functions[name] = function
        return self.functions[name]

    def launch(
        self, file: str, name: str, grid: Grid, block: int, shared: int, *structs: Any
    ) -> None:
        arguments = (ctypes.c_void_p * len(structs))(*map(ctypes.addressof, structs))
        self.call(
            "cuLaunchKernel",
            self.function(file, name, shared),
            *grid,
            block,
            1,
            1,
            shared,
            None,
            arguments,
            None,
        )

    def allocate(self, size: int) -> int:
        pointer = ctypes.c_ulonglong()
        self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(max(size, 1)))
        return pointer.value

    def synchronize(self) -> None:
        self.call("cuCtxSynchronize")


def bucket(problem: Problem, sizes: tuple[int, ...]) -> int:
    """The smallest compiled head_dim that holds the problem's."""
    return next(d for d in sizes if d >= max(problem.head_dim, problem.head_dim_v))


def naive(driver: Driver, p: Problem, dtype: str, direction: str) -> None:
    planes = p.batch * p.heads

    def run(name: str, grid: Grid, block: int) -> None:
        driver.launch("naive", f"naive_{name}_{dtype}", grid, block, 0, p)

    def blocks(n: int) -> int:
        return ceil_div(n, 128)

    if direction == "forward":
        run("scores", (blocks(p.seq_k), p.seq_q, planes), 128)
        run("softmax", (p.seq_q, 1, planes), 128)
        run("out", (blocks(p.head_dim_v), p.seq_q, planes), 128)
    else:
        run("delta", (p.seq_q, 1, planes), 32)
        run("score_grads", (blocks(p.seq_k), p.seq_q, planes), 128)
        run("query_grads", (blocks(p.head_dim), p.seq_q, planes), 128)
        run(
            "key_grads", (blocks(max(p.head_dim, p.head_dim_v)), p.seq_k, p.batch * p.kv_heads), 128
        )


def simt_backward_shape(d: int) -> tuple[int, int]:
    return 128 if d == 32 else 256, 4 * (4 * 64 * (d + 4) + 2 * 64 * 72 + 128)


def flash_simt(driver: Driver, p: Problem, dtype: str, direction: str) -> None:
    d = bucket(p, (32, 64, 128))
    if direction == "forward":
        driver.launch(
            "flash_simt",
            f"flash_simt_forward_f32_d{d}",
            (ceil_div(p.seq_q, 128), p.heads, p.batch),
            256,
            4 * (256 * (d + 4) + 128 * 72),
            p,
        )
    else:
        block, shared = simt_backward_shape(d)
        driver.launch(
            "flash_simt", "flash_simt_prepare", (ceil_div(p.seq_q, 8), p.heads, p.batch), 256, 0, p
        )
        driver.launch(
            "flash_simt",
            f"flash_simt_backward_f32_d{d}",
            (ceil_div(p.seq_k, 64), p.kv_heads, p.batch),
            block,
            shared,
            p,
        )


def split_key(driver: Driver, p: Problem, dtype: str, direction: str) -> None:
    d = bucket(p, (32, 64, 128))
    block, shared = simt_backward_shape(d)
    driver.launch(
        "split_key", "split_key_prepare", (ceil_div(p.seq_q, 8), p.heads, p.batch), 256, 0, p
    )
    driver.launch(
        "split_key", f"split_key_f32_d{d}", (p.num_splits, p.kv_heads, p.batch), block, shared, p
    )


def flash_mma(driver: Driver, p: Problem, dtype: str, direction: str) -> None:
    d = bucket(p, (64, 128))
    if direction == "forward":
        driver.launch(
            "flash_mma",
            f"flash_mma_forward_{dtype}_d{d}",
            (ceil_div(p.seq_q, 128), p.heads, p.batch),
            128,
            (128 * d + 2 * 8192) * 2,
            p,
        )
    else:

        def run(name: str, grid: Grid, shared: int) -> None:
            entry = f"flash_mma_{name}_{dtype}_d{d}"
            driver.launch("flash_mma_backward", entry, grid, 256, shared, p)

        tile = 8192 // d
        queries = (ceil_div(p.seq_q, tile), p.heads, p.batch)
        run("prepare", queries, 0)
        run(
            "backward",
            (ceil_div(p.seq_k, 128), p.kv_heads, p.batch),
            512 * d + 8 * tile * d + 272 * tile,
        )
        run("finish", queries, 0)


def split_kv_shared(dtype: str, d: int) -> int:
    rings = 98304 if dtype != "f32" or d == 64 else 196608
    return rings + (64 * d + 4096 if dtype == "f32" else 0)


def split_kv(driver: Driver, p: Problem, dtype: str, direction: str) -> None:
    d = p.head_dim
    rows = p.heads // p.kv_heads * p.seq_q
    driver.launch(
        "split_kv",
        f"split_kv_part_{dtype}_d{d}",
        (p.num_splits, ceil_div(rows, 16), p.batch * p.kv_heads),
        128,
        split_kv_shared(dtype, d),
        p,
    )
    driver.launch(
        "split_kv", f"split_kv_join_{dtype}_d{d}", (p.batch * p.heads * p.seq_q, 1, 1), 128, 0, p
    )


class TensorMap(ctypes.Structure):
    _fields_ = [("opaque", ctypes.c_uint64 * 16)]


def tensor_map(
    call: Callable[..., None],
    tensor: Any,
    dtype: str,
    batch: int,
    seq: int,
    heads: int,
    head_dim: int,
    rows: int,
) -> TensorMap:
    """The five-axis view of a 16-bit [batch, seq, heads, head_dim] tensor, `rows` rows a box."""
    dims = (ctypes.c_uint64 * 5)(64, seq, head_dim // 64, heads, batch)
    strides = (ctypes.c_uint64 * 4)(2 * tensor.seq, 128, 2 * tensor.head, 2 * tensor.batch)
    box = (ctypes.c_uint32 * 5)(64, rows, head_dim // 64, 1, 1)
    steps = (ctypes.c_uint32 * 5)(1, 1, 1, 1, 1)
    room = ctypes.create_string_buffer(128 + 64)
    result = TensorMap.from_buffer(room, -ctypes.addressof(room) % 64)
    no_interleave, swizzle_128, promote_256, zero_fill = 0, 3, 3, 0
    call(
        "cuTensorMapEncodeTiled",
        ctypes.byref(result),
        {"f16": 6, "bf16": 9}[dtype],
        5,
        ctypes.c_void_p(tensor.data),
        dims,
        strides,
        box,
        steps,
        no_interleave,
        swizzle_128,
        promote_256,
        zero_fill,
    )
    return result


WGMMA_TILES = ((128, 128, 128), (128, 128, 176), (64, 192, 128))  # head_dim, queries, keys


def flash_wgmma(driver: Driver, p: Problem, dtype: str, direction: str) -> None:
    """Forward: every tile variant for the head_dim, one after another, a block a tile."""
    if direction == "backward":
        flash_wgmma_backward(driver, p, dtype)
        return
    for d, queries, keys in WGMMA_TILES:
        if d != p.head_dim:
            continue
        planes = p.batch * p.heads
        offset = p.seq_k - p.seq_q if p.mask_align else 0
        low = -(1 << 30) if p.mask_left < 0 else offset - p.mask_left
        high = 1 << 30 if p.mask_right < 0 else offset + p.mask_right
        maps = [
            tensor_map(driver.call, tensor, dtype, p.batch, seq, heads, d, rows)
            for tensor, seq, heads, rows in (
                (p.q, p.seq_q, p.heads, 64),
                (p.k, p.seq_k, p.kv_heads, keys),
                (p.v, p.seq_k, p.kv_heads, keys),
                (p.out, p.seq_q, p.heads, 64),
            )
        ]
        sizes = (
            p.batch,
            p.heads,
            p.kv_heads,
            p.seq_q,
            p.seq_k,
            low,
            high,
            1 if p.mask_right < 0 else planes,
        )
        driver.launch(
            "flash_wgmma",
            f"flash_wgmma_{dtype}_d{d}_m{queries}_n{keys}",
            (ceil_div(p.seq_q, queries) * planes, 1, 1),
            128 * (1 + queries // 64),
            1280 + 2 * d * (queries + 4 * keys),
            *maps,
            ctypes.c_void_p(p.lse),
            *map(ctypes.c_int, sizes),
            ctypes.c_float(p.scale * math.log2(math.e)),
        )


def flash_wgmma_backward(driver: Driver, p: Problem, dtype: str) -> None:
    d = p.head_dim
    tile = 8192 // d

    def run(name: str, grid: Grid, block: int, shared: int, *arguments: Any) -> None:
        entry = f"flash_wgmma_{name}_{dtype}_d{d}"
        driver.launch("flash_wgmma_backward", entry, grid, block, shared, *arguments)

    queries = (ceil_div(p.seq_q, tile), p.heads, p.batch)
    maps = [
        tensor_map(driver.call, tensor, dtype, p.batch, seq, heads, d, rows)
        for tensor, seq, heads, rows in (
            (p.q, p.seq_q, p.heads, tile),
            (p.k, p.seq_k, p.kv_heads, 128),
            (p.v, p.seq_k, p.kv_heads, 128),
            (p.dout, p.seq_q, p.heads, tile),
        )
    ]
    run("prepare", queries, 256, 0, p)
    run(
        "backward",
        (ceil_div(p.seq_k, 128), p.kv_heads, p.batch),
        384,
        66624 + 512 * d + 528 * tile,
        *maps,
        p,
    )
    run("finish", queries, 256, 0, p)


def reference(driver: Driver, p: Problem, dtype: str, direction: str, results: Reference) -> None:
    """The float64 results of one direction; backward reads forward's."""
    shared, planes, kv_planes = 66048, p.batch * p.heads, p.batch * p.kv_heads
    queries, keys = ceil_div(p.seq_q, 64), ceil_div(p.seq_k, 64)
    columns, columns_v = ceil_div(p.head_dim, 128), ceil_div(p.head_dim_v, 128)

    def run(name: str, grid: Grid, shared: int = shared) -> None:
        driver.launch("reference", f"reference_{name}_{dtype}", grid, 256, shared, p, results)

    if direction == "forward":
        run("lse", (queries, planes, 1))
        run("out", (queries, planes, columns_v))
    else:
        run("delta", (ceil_div(p.seq_q, 8), planes, 1), 0)
        run("dq", (queries, planes, columns))
        run("dk", (keys, kv_planes, columns))
        run("dv", (keys, kv_planes, columns_v))


def workspace_bytes(variant: Launcher, p: Problem, direction: str) -> int:
    if variant is naive:
        return (4 if direction == "forward" else 8) * p.batch * p.heads * p.seq_q * p.seq_k
    if variant is split_kv:
        return 4 * p.num_splits * p.batch * p.heads * p.seq_q * (p.head_dim + 1)
    if variant is flash_mma and direction == "backward":
        return 32768 * p.batch * p.heads * ceil_div(p.seq_q, 8192 // bucket(p, (64, 128)))
    if variant is flash_wgmma and direction == "backward":
        tile = 8192 // p.head_dim
        return (32768 + 8 * tile) * p.batch * p.heads * ceil_div(p.seq_q, tile)
    return 0


def auto_splits(p: Problem) -> int:
    """PyTorch's rule for float32, _efficient_attention_backward in attention_backward.cu."""
    few = p.kv_heads * p.batch >= 256 and p.seq_k <= 128
    return 1 if few else ceil_div(p.seq_k, 64)


Launcher = Callable[[Driver, Problem, str, str], None]
# name -> (launcher, dtypes, directions)
VARIANTS: dict[str, tuple[Launcher, tuple[str, ...], tuple[str, ...]]] = {
    "naive": (naive, ("f32", "f16", "bf16"), ("forward", "backward")),
    "flash_simt": (flash_simt, ("f32",), ("forward", "backward")),
    "split_key": (split_key, ("f32",), ("backward",)),
    "flash_mma": (flash_mma, ("f16", "bf16"), ("forward", "backward")),
    "flash_wgmma": (flash_wgmma, ("f16", "bf16"), ("forward", "backward")),
    "split_kv": (split_kv, ("f32", "f16", "bf16"), ("forward",)),
}


def supports(variant: str, p: Problem, dtype: str) -> bool:
    """Whether a variant's contract admits a problem that any of the others takes."""
    exact = p.head_dim == p.head_dim_v and p.head_dim in (64, 128)
    return dtype in VARIANTS[variant][1] and (exact or variant not in ("flash_wgmma", "split_kv"))
