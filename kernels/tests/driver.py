"""Launches reference.cu and inputs.cu: contracts, the structs that they take, the CUDA driver."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import tomllib

Grid = tuple[int, int, int]
UNBOUNDED = 1 << 30
KERNELS = Path(__file__).resolve().parent.parent
FILES = ("reference", "inputs")


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


def build(directory: str) -> None:
    """Compiles the kernel files into DIRECTORY/NAME.cubin."""
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    command = [nvcc, "-std=c++17", "-arch=sm_90a", "-cubin"]
    running = [
        subprocess.Popen([*command, f"{KERNELS}/{name}.cu", "-o", f"{directory}/{name}.cubin"])
        for name in FILES
    ]
    failed = [process for process in running if process.wait()]
    if failed:
        raise SystemExit("a kernel does not compile")


class Driver:
    """The loaded cubins, in the primary context of device 0."""

    def __init__(self, cubins: str) -> None:
        self.contracts = tomllib.loads((KERNELS / "contracts.toml").read_text())
        self.cuda = ctypes.CDLL("libcuda.so.1")
        context, device = ctypes.c_void_p(), ctypes.c_int()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        self.modules: dict[str, ctypes.c_void_p] = {}
        self.functions: dict[str, ctypes.c_void_p] = {}
        for name in FILES:
            image = Path(cubins, f"{name}.cubin").read_bytes()
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

    def launch(self, file: str, kernel: str, dtype: str, grid: Grid, *structs: Any) -> None:
        """Launches a kernel, in whose contract there is one tile."""
        contract = self.contracts[file][kernel]
        (tile,) = contract["tiles"]
        shared = tile.get("shared_bytes", 0)
        function = self.function(file, contract["entry"].format(dtype=dtype), shared)
        arguments = (ctypes.c_void_p * len(structs))(*map(ctypes.addressof, structs))
        shape = (*grid, tile["threads"], 1, 1, shared)
        self.call("cuLaunchKernel", function, *shape, None, arguments, None)

    def synchronize(self) -> None:
        self.call("cuCtxSynchronize")

    def reference(self, p: Problem, dtype: str, direction: str, results: Reference) -> None:
        """Computes the float64 results of one direction; backward reads forward's."""
        planes, kv_planes = p.batch * p.heads, p.batch * p.kv_heads

        def run(name: str, seq: int, axis: str, planes: int, columns: int = 1) -> None:
            (tile,) = self.contracts["reference"][name]["tiles"]
            grid = (-(-seq // tile[axis]), planes, -(-columns // tile.get("columns", 1)))
            self.launch("reference", name, dtype, grid, p, results)

        if direction == "forward":
            run("lse", p.seq_q, "queries", planes)
            run("out", p.seq_q, "queries", planes, p.head_dim_v)
        else:
            run("delta", p.seq_q, "queries", planes)
            run("dq", p.seq_q, "queries", planes, p.head_dim)
            run("dk", p.seq_k, "keys", kv_planes, p.head_dim)
            run("dv", p.seq_k, "keys", kv_planes, p.head_dim_v)
