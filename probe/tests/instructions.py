"""Whether instructions are counted exactly: deterministic kernels, counted again and again.

    REGATTA_PROBE=target/release/libregatta_probe.so python3 probe/tests/instructions.py \
        [--repeats 20] [--parts kernels,alone,neighbour]

`--each` calls (5) are counted at once, and `--repeats` in all. A row a call: the kernels that
it launches, and for each metric the total of the first call and "exact" or how far calls spread.
Then a Triton kernel on 1000 blocks against 1010, counted as often: alone, and beside a process
that keeps the GPU busy. The census is asked before and after, as it is to work on both sides of
a counting. Needs PyTorch, Triton, a GPU, and permission to count. Exit 1 where executed
instructions are not identical, 1 % more is not found each time, or a census is wrong.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

EXECUTED = "sm__inst_executed.sum"
METRICS = (
    EXECUTED,
    "sm__inst_executed_pipe_tensor.sum",
    "smsp__inst_executed_op_local_ld.sum",
    "smsp__inst_executed_op_local_st.sum",
    "l1tex__data_bank_conflicts_pipe_lsu.sum",
    "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "dram__bytes.sum",
)
# It ends with whoever started it, however that ended: its input closes.
NEIGHBOUR = """
import os, sys, threading
def follow():
    sys.stdin.read()
    os._exit(0)
threading.Thread(target=follow, daemon=True).start()
import torch
a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
a @ a
torch.cuda.synchronize()
print("busy", flush=True)
while True:
    for _ in range(50):
        a @ a
    torch.cuda.synchronize()
"""
Call = Callable[[], Any]


class Probe:
    """The probe's census and counters of one call."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(os.environ["REGATTA_PROBE"])
        self.library.regatta_probe_last_error.restype = ctypes.c_char_p

    def ask(self, status: int) -> None:
        if status != 0:
            raise RuntimeError(self.library.regatta_probe_last_error().decode())

    def counted(
        self, call: Call, metrics: tuple[str, ...], calls: int = 1, kernels: int = 0
    ) -> dict[str, Any]:
        names = (ctypes.c_char_p * len(metrics))(*(name.encode() for name in metrics))
        torch.cuda.synchronize()
        self.ask(self.library.regatta_probe_counters_begin(names, len(metrics), kernels))
        text = ctypes.c_char_p()
        try:
            for _ in range(calls):
                call()
            torch.cuda.synchronize()
        finally:
            status = self.library.regatta_probe_counters_end(ctypes.byref(text))
        self.ask(status)
        found: dict[str, Any] = json.loads(text.value or b"{}")
        return found

    def launched(self, call: Call) -> list[str]:
        torch.cuda.synchronize()
        self.ask(self.library.regatta_probe_census_begin())
        text = ctypes.c_char_p()
        try:
            call()
            torch.cuda.synchronize()
        finally:
            status = self.library.regatta_probe_census_end(ctypes.byref(text))
        self.ask(status)
        operations = json.loads(text.value or b"{}")["operations"]
        return [each["name"] for each in operations if each["kind"] == "kernel"]


# Triton evaluates annotations, and knows no types but its own.
@triton.jit  # type: ignore[untyped-decorator]
def scale(source, target, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + at, tl.load(source + at) * 2.0 + 1.0)


def calls() -> dict[str, Call]:
    """Twelve calls whose kernels do the same each time."""
    torch.manual_seed(0)
    backends = torch.nn.attention.SDPBackend
    q, k, v = (torch.randn(2, 8, 1024, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    a = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)
    x = torch.randn(4096, 1024, device="cuda")
    y = torch.empty_like(x)
    weight = torch.ones(1024, device="cuda")

    def attention(backend: Any, causal: bool) -> Call:
        def call() -> Any:
            with torch.nn.attention.sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

        return call

    return {
        "flash": attention(backends.FLASH_ATTENTION, False),
        "flash, causal": attention(backends.FLASH_ATTENTION, True),
        "efficient": attention(backends.EFFICIENT_ATTENTION, False),
        "cudnn": attention(backends.CUDNN_ATTENTION, False),
        "matmul": lambda: a @ a,
        "softmax": lambda: torch.softmax(x, -1),
        "layer norm": lambda: F.layer_norm(x, (1024,), weight),
        "strided copy": lambda: y.t().contiguous(),
        "add": lambda: torch.add(x, x, out=y),
        "gelu": lambda: F.gelu(x),
        "sum of rows": lambda: x.sum(-1),
        "triton": lambda: scale[(1000,)](x, y, BLOCK=1024),
    }


def by_call(counted: dict[str, Any], calls: int) -> list[dict[str, Any]]:
    """A counting of several calls as one of each."""
    kernels = counted["kernels"]
    each = len(kernels) // calls
    if each * calls != len(kernels):
        raise RuntimeError(f"{len(kernels)} kernels of {calls} calls")
    parts = [kernels[at : at + each] for at in range(0, len(kernels), each or 1)]
    return [counted | {"kernels": part} for part in parts]


def repeated(probe: Probe, name: str, call: Call, repeats: int, each: int) -> bool:
    """Prints the row of a call; whether its executed instructions are identical."""
    call()
    before = probe.launched(call)
    several = [
        probe.counted(call, METRICS, each, each * len(before)) for _ in range(repeats // each)
    ]
    countings = [one for counted in several for one in by_call(counted, each)]
    if not countings:
        raise RuntimeError("nothing was counted")
    after = probe.launched(call)
    first = countings[0]
    right = bool(first["kernels"]) and before == after and len(before) == len(first["kernels"])
    told = []
    for at, metric in enumerate(first["metrics"]):
        totals = [sum(kernel[at] for kernel in each["kernels"]) for each in countings]
        least, most = min(totals), max(totals)
        spread = "exact" if least == most else f"{(most - least) / (most or 1):.2%}"
        told.append(f"{metric.split('.')[0]} {totals[0]:.10g} {spread}")
        if metric == EXECUTED:
            right = right and least == most
    right = right and EXECUTED in first["metrics"]
    print(
        f"{name}: {'ok' if right else 'WRONG'}, kernels {len(first['kernels'])}, census "
        f"{len(before)} and {len(after)}, passes {first['passes']}, dropped {first['dropped']}, "
        f"unavailable {first['unavailable']}\n   " + "\n   ".join(told),
        flush=True,
    )
    return right


def planted(probe: Probe, where: str, repeats: int) -> bool:
    """Whether 1 % more blocks is 1 % more instructions, in each of the countings."""
    x = torch.randn(1010 * 1024, device="cuda")
    y = torch.empty_like(x)

    def executed(blocks: int) -> float:
        call = lambda: scale[(blocks,)](x, y, BLOCK=1024)  # noqa: E731
        return float(
            sum(kernel[0] for kernel in probe.counted(call, (EXECUTED,), kernels=1)["kernels"])
        )

    executed(1000)
    pairs = [(executed(1000), executed(1010)) for _ in range(repeats)]
    same = len(set(pairs)) == 1
    found = sum(more > least * 1.005 for least, more in pairs)
    print(f"planted 1 %, {where}: found {found} of {repeats}, identical {same}, {pairs[0]}")
    return same and found == repeats


def main() -> None:
    """Prints the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--each", type=int, default=5, help="calls of one counting")
    parser.add_argument("--parts", default="kernels,alone,neighbour")
    arguments = parser.parse_args()
    repeats, parts = arguments.repeats, arguments.parts.split(",")
    if repeats < arguments.each or repeats % arguments.each:
        parser.error(f"--repeats {repeats} is no multiple of --each {arguments.each}")
    probe = Probe()
    right = True
    for name, call in calls().items() if "kernels" in parts else ():
        begun = time.monotonic()
        try:
            right = repeated(probe, name, call, repeats, arguments.each) and right
        except RuntimeError as error:
            print(f"{name}: WRONG, {error}", flush=True)
            right = False
        print(f"   {time.monotonic() - begun:.1f} s", flush=True)
    if "alone" in parts:
        right = planted(probe, "alone", repeats) and right
    if "neighbour" not in parts:
        sys.exit(0 if right else 1)
    with subprocess.Popen(
        [sys.executable, "-c", NEIGHBOUR],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as neighbour:
        try:
            if neighbour.stdout is None or "busy" not in neighbour.stdout.readline():
                sys.exit("the neighbour did not start")
            right = planted(probe, "beside a busy process", repeats) and right
        finally:
            neighbour.kill()
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
