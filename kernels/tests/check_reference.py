"""Checks the float64 reference and the comparison of reference.cu on the GPU.

    python3 kernels/tests/check_reference.py

The reference is compared with the Python worker's, in float64 by PyTorch (relative L2 below 1e-12),
the comparison with the same figures from PyTorch. Exits with 1 if anything is off. The inputs, and
results of every kernel, are checked by each `regatta run native`.
"""

import ctypes
import itertools
import math
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

KERNELS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(KERNELS.parent / "python"))

import tomllib
import torch

from regatta_worker.problem import inputs
from regatta_worker.problem.arrays import Arrays
from regatta_worker.problem.attention import Problem
from regatta_worker.problem.reference import difference, reference

LIMIT = 1e-12
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
SIZES = ("batch", "heads", "kv_heads", "seq_q", "seq_k", "head_dim", "head_dim_v")
FULL, CAUSAL, CAUSAL_BR = (None, None, 0), (None, 0, 0), (None, 0, 1)
"""Left, right, and whether from the bottom right."""

Shape = tuple[int, int, int, int, int, int, int, tuple[int | None, int | None, int], str]
"""`SIZES`, mask and layout."""
CASES: list[Shape] = [
    (2, 3, 3, 128, 192, 32, 32, FULL, "bhsd"),
    (2, 4, 2, 257, 259, 128, 128, FULL, "bshd"),
    (1, 2, 1, 1, 333, 64, 64, FULL, "bshd"),
    (1, 8, 1, 200, 77, 128, 128, FULL, "bhsd"),
    (2, 4, 2, 513, 513, 64, 64, CAUSAL, "bhsd"),
    (1, 2, 1, 100, 400, 64, 64, CAUSAL, "bshd"),
    (1, 2, 1, 400, 100, 64, 64, CAUSAL_BR, "bshd"),  # rows that see no key
    (1, 2, 2, 700, 700, 64, 64, (128, 0, 0), "bshd"),
    (1, 4, 2, 500, 611, 128, 128, (37, 5, 1), "bhsd"),
    (1, 2, 2, 300, 40, 64, 64, (10, 3, 0), "bshd"),  # rows that see no key, below
    (1, 3, 3, 1025, 1023, 40, 40, CAUSAL, "bshd"),
    (1, 2, 2, 4096, 4096, 32, 32, FULL, "bshd"),
    (1, 2, 1, 130, 100, 256, 192, CAUSAL_BR, "bhsd"),
    (2, 6, 2, 65, 129, 33, 7, (20, 9, 1), "bshd"),
    (1, 1, 1, 3, 2, 1, 1, FULL, "bshd"),
]
# Scores of up to about ±100 that grow along the keys, so that the maximum moves in every tile.
LOUD: list[Shape] = [
    (1, 2, 1, 300, 1100, 64, 64, FULL, "bshd"),
    (1, 2, 2, 1000, 1000, 128, 128, CAUSAL, "bhsd"),
]


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p)] + [
        (stride, ctypes.c_longlong) for stride in ("batch", "seq", "head")
    ]


class Arguments(ctypes.Structure):
    """`Problem` of problem.cuh, field by field; the reference takes no scale."""

    TENSORS = ("q", "k", "v", "out", "dout", "dq", "dk", "dv")
    _fields_ = (
        [(name, Tensor) for name in TENSORS]
        + [(name, ctypes.c_void_p) for name in ("lse", "delta", "workspace")]
        + [(name, ctypes.c_int) for name in (*SIZES, "left", "right", "align", "num_splits")]
        + [("scale", ctypes.c_float)]
    )


class Reference(ctypes.Structure):
    """`Reference` of reference.cu: dense float64 results."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("out", "lse", "delta", "dq", "dk", "dv")]


class Difference(ctypes.Structure):
    """`Difference` of reference.cu."""

    _fields_ = [
        ("result", Tensor),
        ("reference", ctypes.c_void_p),
        ("partials", ctypes.c_void_p),
    ] + [(name, ctypes.c_int) for name in ("batch", "seq", "heads", "dim")]


class Driver:
    """The kernels of reference.cu, in the primary context of device 0."""

    def __init__(self) -> None:
        self.contracts = tomllib.loads((KERNELS / "contracts.toml").read_text())["checks"]
        self.cuda = ctypes.CDLL("libcuda.so.1")
        context, device = ctypes.c_void_p(), ctypes.c_int()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        self.module = ctypes.c_void_p()
        nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "reference.cubin"
            options = ["-std=c++17", "-arch=sm_90a", "-cubin", "-o", str(path)]
            subprocess.run([nvcc, *options, f"{KERNELS}/reference.cu"], check=True)
            self.call("cuModuleLoadData", ctypes.byref(self.module), path.read_bytes())

    def call(self, name: str, *arguments: Any) -> None:
        code = getattr(self.cuda, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self.cuda.cuGetErrorString(code, ctypes.byref(text))
            raise RuntimeError(f"{name}: {code} {(text.value or b'').decode()}")

    def launch(
        self, kernel: str, dtype: str, grid: tuple[int, int, int], *structs: ctypes.Structure
    ) -> None:
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


class Case:
    """A problem with its inputs on the GPU."""

    def __init__(self, shape: Shape, dtype: str) -> None:
        *sizes, (left, right, bottom_right), layout = shape
        align = "bottom-right" if bottom_right else "top-left"
        mask = {"left": left, "right": right, "align": align}
        named = dict(zip(SIZES, sizes, strict=True))
        wire = {"dtype": dtype, "mask": mask, "layout": layout, "direction": "both"}
        self.problem, self.arrays = Problem.from_wire(named | wire), Arrays.for_torch("cuda")
        self.tensors = {
            name: inputs.whole(self.arrays, self.problem, name, 0, DTYPES[dtype])
            for name in inputs.TENSORS
        }
        if shape in LOUD:
            k = self.tensors["k"]
            k *= torch.linspace(0.1, 20, k.shape[1], device="cuda")[:, None, None].to(k.dtype)
        band = (-1 if side is None else side for side in (left, right))
        views = {name: view(tensor) for name, tensor in self.tensors.items()}
        self.arguments = Arguments(
            **named, **views, **dict(zip(("left", "right"), band, strict=True))
        )
        self.arguments.align, self.arguments.scale = bottom_right, math.nan

    def by_kernels(self, driver: Driver) -> dict[str, Any]:
        """Results of reference.cu: forward, then backward, which reads forward's."""
        p = self.problem
        planes, kv_planes = p.batch * p.heads, p.batch * p.kv_heads
        shapes = {name: p.shape(name) for name in ("out", "dq", "dk", "dv")}
        shapes |= dict.fromkeys(("lse", "delta"), (p.batch, p.heads, p.seq_q))
        found = {
            name: torch.full(shape, math.nan, device="cuda", dtype=torch.float64)
            for name, shape in shapes.items()
        }
        results = Reference(**{name: tensor.data_ptr() for name, tensor in found.items()})
        for name, seq, axis, count, columns in (
            ("lse", p.seq_q, "queries", planes, 1),
            ("out", p.seq_q, "queries", planes, p.head_dim_v),
            ("delta", p.seq_q, "queries", planes, 1),
            ("dq", p.seq_q, "queries", planes, p.head_dim),
            ("dk", p.seq_k, "keys", kv_planes, p.head_dim),
            ("dv", p.seq_k, "keys", kv_planes, p.head_dim_v),
        ):
            (tile,) = driver.contracts[name]["tiles"]
            grid = (-(-seq // tile[axis]), count, -(-columns // tile.get("columns", 1)))
            driver.launch(name, p.dtype, grid, self.arguments, results)
        torch.cuda.synchronize()
        return found


def view(tensor: Any) -> Tensor:
    return Tensor(tensor.data_ptr(), *tensor.stride()[:3])


def check_results(driver: Driver) -> int:
    bad, worst = 0, dict[str, float]()
    for shape, dtype in itertools.product(CASES + LOUD, DTYPES):
        case = Case(shape, dtype)
        found = case.by_kernels(driver)
        # Scores recomputed from lse: where it is off, so are all results.
        exact = reference(case.arrays.kept_there(), case.problem, case.tensors)
        errors = {
            name: difference(case.arrays, (found[name], value))["relative_l2"]
            for name, value in exact.items()
        }
        worst = {name: max(worst.get(name, 0.0), error) for name, error in errors.items()}
        if not all(error <= LIMIT for error in errors.values()):
            bad += 1
            print("WRONG", dtype, shape, errors, flush=True)
    print("reference against the worker's, worst:", worst)
    return bad


def check_difference(driver: Driver) -> int:
    bad = 0
    for dtype, layout, blocks, broken in itertools.product(
        DTYPES, ("bshd", "bhsd"), (1, 7, 300), (0, 3)
    ):
        result = Case((2, 3, 3, 67, 67, 41, 41, FULL, layout), dtype).tensors["q"]
        noise = torch.randn(result.shape, device="cuda").double()
        right = result.double().contiguous() + 1e-3 * noise
        off = result.double() - right
        places = ((0, 0, 0, 0), (1, 66, 2, 40), (1, 5, 1, 7))
        values = (math.nan, math.inf, -math.inf)[:broken]
        for place, value in zip(places, values, strict=False):
            result[place], off[place] = value, 0.0
        partials = torch.full((blocks, 4), math.nan, device="cuda", dtype=torch.float64)
        of = Difference(view(result), right.data_ptr(), partials.data_ptr(), *result.shape)
        driver.launch("difference", dtype, (blocks, 1, 1), of)
        torch.cuda.synchronize()
        squares, norm, _, infinite = partials.sum(0).tolist()
        found = (squares, norm, partials[:, 2].max().item(), infinite)
        sums = (off.square().sum().item(), right.square().sum().item())
        expected = (*sums, off.abs().max().item(), float(broken))
        if not all(math.isclose(a, b, rel_tol=1e-12) for a, b in zip(found, expected, strict=True)):
            bad += 1
            print("WRONG difference", dtype, layout, blocks, broken, found, expected)
    print("difference:", "wrong" if bad else "as PyTorch's")
    return bad


def main() -> int:
    torch.zeros(1, device="cuda")
    driver = Driver()
    bad = check_difference(driver) + check_results(driver)
    print(f"{bad} wrong")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
