"""The CUDA driver from Python's standard library: the structs that kernels take, the
compiler, and launches.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

from contracts import FILES, KERNELS, Kernel, Tile

Grid = tuple[int, int, int]
UNBOUNDED = 1 << 30


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

    def band(self) -> tuple[int, int]:
        """Query i sees keys i + low to i + high."""
        offset = self.seq_k - self.seq_q if self.mask_align else 0
        return (
            -UNBOUNDED if self.mask_left < 0 else offset - self.mask_left,
            UNBOUNDED if self.mask_right < 0 else offset + self.mask_right,
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


def compiler(arch: str, name: str) -> list[str]:
    """The command that compiles kernel file NAME, but for where to."""
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    return [nvcc, "-std=c++17", f"-arch={arch}", "-cubin", "-lineinfo", f"{KERNELS}/{name}.cu"]


def build(
    directory: str, arch: str = "sm_90a", files: Sequence[str] = FILES, defines: Sequence[str] = ()
) -> None:
    """Compiles kernel files into DIRECTORY/NAME.cubin."""
    running = [
        subprocess.Popen([*compiler(arch, name), *defines, "-o", f"{directory}/{name}.cubin"])
        for name in files
    ]
    failed = [process for process in running if process.wait()]
    if failed:
        raise SystemExit("a kernel does not compile")


class Driver:
    """The loaded cubins, in the primary context of device 0."""

    def __init__(self, cubins: str, files: Sequence[str] = FILES) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        context, device = ctypes.c_void_p(), ctypes.c_int()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        self.modules: dict[str, ctypes.c_void_p] = {}
        self.functions: dict[str, ctypes.c_void_p] = {}
        for name in files:
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
        Launch(self, kernel.file, kernel.name(dtype, tile), tile, grid, *structs)()

    def allocate(self, size: int) -> int:
        pointer = ctypes.c_ulonglong()
        self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(max(size, 1)))
        return pointer.value

    def synchronize(self) -> None:
        self.call("cuCtxSynchronize")


class Launch:
    """A launch with everything bound: calling it enqueues the kernel."""

    def __init__(
        self, driver: Driver, file: str, name: str, tile: Tile, grid: Grid, *structs: Any
    ) -> None:
        self.driver, self.tile, self.grid, self.structs = driver, tile, grid, structs
        self.function = driver.function(file, name, tile.shared_bytes)
        self.arguments = (ctypes.c_void_p * len(structs))(*map(ctypes.addressof, structs))
        self.workspace: Any = None
        """Lives as long as the launch."""

    def __call__(self) -> None:
        self.driver.call(
            "cuLaunchKernel",
            self.function,
            *self.grid,
            self.tile.threads,
            1,
            1,
            self.tile.shared_bytes,
            None,
            self.arguments,
            None,
        )
