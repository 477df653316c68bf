"""Launches the attention kernels through the CUDA driver, from Python's standard library.

Names, tiles, threads and shared memory are those of ../contracts.toml; grids and
workspaces are written here as at the heads of the kernel files. Needs Python 3.11.
"""

from __future__ import annotations

import ctypes
import dataclasses
import math
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

import tomllib

Grid = tuple[int, int, int]
KERNELS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ELEMENT = {"f32": 4, "f16": 2, "bf16": 2}


@dataclasses.dataclass(frozen=True)
class Tile:
    """One size that a kernel is compiled in."""

    threads: int
    shared_bytes: int = 0
    head_dim: int = 0
    """The largest that it takes; 0: any."""
    queries: int = 1
    keys: int = 1
    columns: int = 1


class Kernel:
    """The entry points that differ in dtype and tile alone."""

    def __init__(
        self, file: str, entry: str, tiles: list[dict[str, int]], dtypes: Sequence[str] = ()
    ) -> None:
        self.file, self.entry, self.dtypes = file, entry, dtypes
        self.tiles = [Tile(**tile) for tile in tiles]

    def tile_for(self, *head_dims: int) -> Tile:
        """The tile of the smallest compiled head_dim that holds these."""
        return next(t for t in self.tiles if t.head_dim == 0 or t.head_dim >= max(head_dims))

    def name(self, dtype: str, tile: Tile) -> str:
        """The entry point of a dtype and a tile."""
        return self.entry.format(dtype=dtype, **dataclasses.asdict(tile))


def contracts() -> dict[str, dict[str, Kernel]]:
    """File -> kernel -> its contract."""
    with open(f"{KERNELS}/contracts.toml", "rb") as file:
        read = tomllib.load(file)
    return {
        file: {name: Kernel(file, **kernel) for name, kernel in kernels.items()}
        for file, kernels in read.items()
    }


CONTRACTS = contracts()
FILES = list(CONTRACTS)


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
        self, kernel: Kernel, dtype: str, grid: Grid, *structs: Any, tile: Tile | None = None
    ) -> None:
        """A kernel with its only tile, unless one is given."""
        tile = tile or kernel.tiles[0]
        function = self.function(kernel.file, kernel.name(dtype, tile), tile.shared_bytes)
        arguments = (ctypes.c_void_p * len(structs))(*map(ctypes.addressof, structs))
        self.call(
            "cuLaunchKernel",
            function,
            *grid,
            tile.threads,
            1,
            1,
            tile.shared_bytes,
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


def naive(driver: Driver, p: Problem, dtype: str, direction: str) -> None:
    planes = p.batch * p.heads
    kernels = CONTRACTS["naive"]

    def run(name: str, *grid: int) -> None:
        x, y, z = grid
        driver.launch(kernels[name], dtype, (x, y, z), p)

    def keys(name: str) -> int:
        return ceil_div(p.seq_k, kernels[name].tiles[0].keys)

    def columns(name: str, n: int) -> int:
        return ceil_div(n, kernels[name].tiles[0].columns)

    if direction == "forward":
        run("scores", keys("scores"), p.seq_q, planes)
        run("softmax", p.seq_q, 1, planes)
        run("out", columns("out", p.head_dim_v), p.seq_q, planes)
    else:
        widest = max(p.head_dim, p.head_dim_v)
        run("delta", p.seq_q, 1, planes)
        run("score_grads", keys("score_grads"), p.seq_q, planes)
        run("query_grads", columns("query_grads", p.head_dim), p.seq_q, planes)
        run("key_grads", columns("key_grads", widest), p.seq_k, p.batch * p.kv_heads)


def by_queries(p: Problem, tile: Tile) -> Grid:
    """The grid of a kernel whose blocks own queries."""
    return ceil_div(p.seq_q, tile.queries), p.heads, p.batch


def by_keys(p: Problem, tile: Tile) -> Grid:
    """The grid of a kernel whose blocks own keys."""
    return ceil_div(p.seq_k, tile.keys), p.kv_heads, p.batch


def flash_simt(driver: Driver, p: Problem, dtype: str, direction: str) -> None:
    kernels = CONTRACTS["flash_simt"]
    tile = kernels[direction].tile_for(p.head_dim, p.head_dim_v)
    if direction == "forward":
        driver.launch(kernels["forward"], dtype, by_queries(p, tile), p, tile=tile)
    else:
        prepare = kernels["prepare"]
        driver.launch(prepare, dtype, by_queries(p, prepare.tiles[0]), p)
        driver.launch(kernels["backward"], dtype, by_keys(p, tile), p, tile=tile)


def split_key(driver: Driver, p: Problem, dtype: str, direction: str) -> None:
    prepare, backward = CONTRACTS["split_key"]["prepare"], CONTRACTS["split_key"]["backward"]
    tile = backward.tile_for(p.head_dim, p.head_dim_v)
    driver.launch(prepare, dtype, by_queries(p, prepare.tiles[0]), p)
    driver.launch(backward, dtype, (p.num_splits, p.kv_heads, p.batch), p, tile=tile)


def flash_mma(driver: Driver, p: Problem, dtype: str, direction: str) -> None:
    if direction == "forward":
        kernel = CONTRACTS["flash_mma"]["forward"]
        tile = kernel.tile_for(p.head_dim, p.head_dim_v)
        driver.launch(kernel, dtype, by_queries(p, tile), p, tile=tile)
    else:
        backward_in_three(driver, "flash_mma_backward", p, dtype)


def backward_in_three(
    driver: Driver, file: str, p: Problem, dtype: str, maps: Sequence[TensorMap] = ()
) -> None:
    """Prepare, the products, finish."""
    kernels = CONTRACTS[file]
    tiles = {name: kernel.tile_for(p.head_dim, p.head_dim_v) for name, kernel in kernels.items()}

    def run(name: str, grid: Callable[[Problem, Tile], Grid], *arguments: TensorMap) -> None:
        tile = tiles[name]
        driver.launch(kernels[name], dtype, grid(p, tile), *arguments, p, tile=tile)

    run("prepare", by_queries)
    run("backward", by_keys, *maps)
    run("finish", by_queries)


def split_kv_part(dtype: str) -> Kernel:
    """The kernel that attends to a part of the keys."""
    return CONTRACTS["split_kv"]["part_f32" if dtype == "f32" else "part"]


def split_kv(driver: Driver, p: Problem, dtype: str, direction: str) -> None:
    part, join = split_kv_part(dtype), CONTRACTS["split_kv"]["join"]
    tile = part.tile_for(p.head_dim)
    rows = p.heads // p.kv_heads * p.seq_q
    driver.launch(
        part,
        dtype,
        (p.num_splits, ceil_div(rows, tile.queries), p.batch * p.kv_heads),
        p,
        tile=tile,
    )
    driver.launch(
        join, dtype, (p.batch * p.heads * p.seq_q, 1, 1), p, tile=join.tile_for(p.head_dim)
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


def flash_wgmma(driver: Driver, p: Problem, dtype: str, direction: str) -> None:
    """Forward: every tile for the head_dim, one after another, a block a tile."""
    if direction == "backward":
        flash_wgmma_backward(driver, p, dtype)
        return
    kernel = CONTRACTS["flash_wgmma"]["forward"]
    for tile in kernel.tiles:
        if tile.head_dim != p.head_dim:
            continue
        planes = p.batch * p.heads
        offset = p.seq_k - p.seq_q if p.mask_align else 0
        low = -(1 << 30) if p.mask_left < 0 else offset - p.mask_left
        high = 1 << 30 if p.mask_right < 0 else offset + p.mask_right
        maps = [
            tensor_map(driver.call, tensor, dtype, p.batch, seq, heads, p.head_dim, rows)
            for tensor, seq, heads, rows in (
                (p.q, p.seq_q, p.heads, 64),
                (p.k, p.seq_k, p.kv_heads, tile.keys),
                (p.v, p.seq_k, p.kv_heads, tile.keys),
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
            kernel,
            dtype,
            (ceil_div(p.seq_q, tile.queries) * planes, 1, 1),
            *maps,
            ctypes.c_void_p(p.lse),
            *map(ctypes.c_int, sizes),
            ctypes.c_float(p.scale * math.log2(math.e)),
            tile=tile,
        )


def flash_wgmma_backward(driver: Driver, p: Problem, dtype: str) -> None:
    d = p.head_dim
    tile = CONTRACTS["flash_wgmma_backward"]["backward"].tile_for(d)
    maps = [
        tensor_map(driver.call, tensor, dtype, p.batch, seq, heads, d, rows)
        for tensor, seq, heads, rows in (
            (p.q, p.seq_q, p.heads, tile.queries),
            (p.k, p.seq_k, p.kv_heads, tile.keys),
            (p.v, p.seq_k, p.kv_heads, tile.keys),
            (p.dout, p.seq_q, p.heads, tile.queries),
        )
    ]
    backward_in_three(driver, "flash_wgmma_backward", p, dtype, maps)


def reference(driver: Driver, p: Problem, dtype: str, direction: str, results: Reference) -> None:
    """The float64 results of one direction; backward reads forward's."""
    kernels = CONTRACTS["reference"]
    planes, kv_planes = p.batch * p.heads, p.batch * p.kv_heads

    def run(name: str, seq: int, axis: str, planes: int, columns: int = 1) -> None:
        tile = kernels[name].tiles[0]
        grid = (ceil_div(seq, getattr(tile, axis)), planes, ceil_div(columns, tile.columns))
        driver.launch(kernels[name], dtype, grid, p, results)

    if direction == "forward":
        run("lse", p.seq_q, "queries", planes)
        run("out", p.seq_q, "queries", planes, p.head_dim_v)
    else:
        run("delta", p.seq_q, "queries", planes)
        run("dq", p.seq_q, "queries", planes, p.head_dim)
        run("dk", p.seq_k, "keys", kv_planes, p.head_dim)
        run("dv", p.seq_k, "keys", kv_planes, p.head_dim_v)


def workspace_bytes(variant: Launcher, p: Problem, direction: str) -> int:
    if variant is naive:
        return (4 if direction == "forward" else 8) * p.batch * p.heads * p.seq_q * p.seq_k
    if variant is split_kv:
        return 4 * p.num_splits * p.batch * p.heads * p.seq_q * (p.head_dim + 1)
    if variant in (flash_mma, flash_wgmma) and direction == "backward":
        kernel = CONTRACTS[f"{variant.__name__}_backward"]["backward"]
        tile = kernel.tile_for(p.head_dim, p.head_dim_v)
        figures = 8 if variant is flash_wgmma else 0  # lse and delta of a query
        return math.prod(by_queries(p, tile)) * tile.queries * (4 * tile.head_dim + figures)
    return 0


def auto_splits(p: Problem) -> int:
    """PyTorch's rule for float32, _efficient_attention_backward in attention_backward.cu."""
    few = p.kv_heads * p.batch >= 256 and p.seq_k <= 128
    tile = CONTRACTS["split_key"]["backward"].tiles[0]
    return 1 if few else ceil_div(p.seq_k, tile.keys)


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
