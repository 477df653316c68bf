"""Launches reference.cu: its contracts, the structs that it takes, the CUDA driver."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import tomllib

Grid = tuple[int, int, int]
UNBOUNDED = 1 << 30
KERNELS = Path(__file__).resolve().parent.parent


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p)] + [
        (stride, ctypes.c_longlong) for stride in ("batch", "seq", "head")
    ]


class Problem(ctypes.Structure):
    """`Problem` of problem.cuh, field by field."""

    TENSORS = ("q", "k", "v", "out", "dout", "dq", "dk", "dv")
    SIZES = ("batch", "heads", "kv_heads", "seq_q", "seq_k", "head_dim", "head_dim_v")
    MASK = ("mask_left", "mask_right", "mask_align", "num_splits")
    _fields_ = (
        [(name, Tensor) for name in TENSORS]
        + [(name, ctypes.c_void_p) for name in ("lse", "delta", "workspace")]
        + [(name, ctypes.c_int) for name in (*SIZES, *MASK)]
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


def compiled() -> bytes:
    """The cubin of reference.cu."""
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "reference.cubin"
        options = ["-std=c++17", "-arch=sm_90a", "-cubin", "-o", str(path)]
        subprocess.run([nvcc, *options, f"{KERNELS}/reference.cu"], check=True)
        return path.read_bytes()


class Driver:
    """The kernels of reference.cu, in the primary context of device 0."""

    def __init__(self) -> None:
        self.contracts = tomllib.loads((KERNELS / "contracts.toml").read_text())["reference"]
        self.cuda = ctypes.CDLL("libcuda.so.1")
        context, device = ctypes.c_void_p(), ctypes.c_int()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        self.module = ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(self.module), compiled())

    def call(self, name: str, *arguments: Any) -> None:
        code = getattr(self.cuda, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self.cuda.cuGetErrorString(code, ctypes.byref(text))
            raise RuntimeError(f"{name}: {code} {(text.value or b'').decode()}")

    def launch(self, kernel: str, dtype: str, grid: Grid, *structs: Any) -> None:
        """Launches a kernel, in whose contract there is one tile."""
        contract = self.contracts[kernel]
        (tile,) = contract["tiles"]
        shared, function = tile.get("shared_bytes", 0), ctypes.c_void_p()
        entry = contract["entry"].format(dtype=dtype).encode()
        self.call("cuModuleGetFunction", ctypes.byref(function), self.module, entry)
        # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        self.call("cuFuncSetAttribute", function, 8, shared)
        arguments = (ctypes.c_void_p * len(structs))(*map(ctypes.addressof, structs))
        shape = (*grid, tile["threads"], 1, 1, shared)
        self.call("cuLaunchKernel", function, *shape, None, arguments, None)

    def synchronize(self) -> None:
        self.call("cuCtxSynchronize")

    def reference(self, p: Problem, dtype: str, direction: str, results: Reference) -> None:
        """Computes the float64 results of one direction; backward reads forward's."""
        planes, kv_planes = p.batch * p.heads, p.batch * p.kv_heads

        def run(name: str, seq: int, axis: str, planes: int, columns: int = 1) -> None:
            (tile,) = self.contracts[name]["tiles"]
            grid = (-(-seq // tile[axis]), planes, -(-columns // tile.get("columns", 1)))
            self.launch(name, dtype, grid, p, results)

        if direction == "forward":
            run("lse", p.seq_q, "queries", planes)
            run("out", p.seq_q, "queries", planes, p.head_dim_v)
        else:
            run("delta", p.seq_q, "queries", planes)
            run("dq", p.seq_q, "queries", planes, p.head_dim)
            run("dk", p.seq_k, "keys", kv_planes, p.head_dim)
            run("dv", p.seq_k, "keys", kv_planes, p.head_dim_v)
