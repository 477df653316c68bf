"""Does a gate name the cause of a slowdown in attention first, and does its account add up?

    python3 probe/tests/suite_faults.py --regatta target/release/regatta

SDPA of PyTorch, served as anybody's function is, is made the baseline as it should be; then it
is gated once with each fault of the table below, and with changes that cost nothing, of which
none may fail. A row each: the exit code, the first cause, the account and what of the change it
does not explain. Needs PyTorch and a CUDA device; exits 1 where a row does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

FAULTS: dict[str, tuple[str, ...]] = {
    "clone": ("copies-added",),
    "cast": ("copies-added", "kernel-replaced"),
    "transposes": ("copies-added",),
    "host-round-trip": ("copies-added", "synchronisation"),
    "item": ("synchronisation", "copies-added"),
    "synchronize": ("synchronisation",),
    "empty-cache": ("driver-memory",),
    "print-of-a-tensor": ("synchronisation", "copies-added"),
    "math-backend": ("kernel-replaced",),
    "efficient-backend": ("kernel-replaced",),
    "dense-mask": ("kernel-replaced", "copies-added"),
    "float32": ("kernel-replaced", "copies-added"),
    "small-launches": ("launches-added",),
    # For one head FlashAttention splits the keys, in other kernels.
    "heads-one-by-one": ("launches-added", "less-parallel", "kernel-replaced"),
    "slow-host": ("host-bound",),
    "zeros-first": ("copies-added", "launches-added"),
}
"""By name, the causes of which one must come first."""

HARMLESS = ("same-again", "views", "other-names", "a-list-is-made", "memory-elsewhere")

FUNCTION = """
import os
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

FAULT = os.environ.get("FAULT", "")
if FAULT == "memory-elsewhere":
    keep = torch.ones(1 << 26, device="cuda")


def attention(q, k, v, problem):
    if FAULT == "clone":
        q = q.clone()
    if FAULT == "cast":
        q, k, v = (x.float().to(x.dtype) for x in (q, k, v))
    if FAULT == "transposes":
        q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v))
    if FAULT == "host-round-trip":
        q = q.cpu().to("cuda")
    if FAULT == "item":
        q[0, 0, 0, 0].item()
    if FAULT == "synchronize":
        torch.cuda.synchronize()
    if FAULT == "empty-cache":
        keep = torch.empty(1 << 25, device="cuda")
        del keep
        torch.cuda.empty_cache()
    if FAULT == "print-of-a-tensor":
        str(q[0, 0, 0, :4])
    if FAULT == "slow-host":
        until = time.perf_counter() + 300e-6
        while time.perf_counter() < until:
            pass
    if FAULT == "zeros-first":
        torch.zeros_like(v)
    if FAULT == "views":
        q, k, v = (x.transpose(1, 2).transpose(1, 2) for x in (q, k, v))
    if FAULT == "a-list-is-made":
        list(range(20))
    backend, mask = SDPBackend.FLASH_ATTENTION, None
    if FAULT == "math-backend":
        backend = SDPBackend.MATH
    if FAULT == "efficient-backend":
        backend = SDPBackend.EFFICIENT_ATTENTION
    if FAULT == "dense-mask":
        backend = SDPBackend.EFFICIENT_ATTENTION
        mask = torch.zeros(q.shape[2], k.shape[2], dtype=q.dtype, device="cuda")
    if FAULT == "float32":
        backend = SDPBackend.EFFICIENT_ATTENTION
        dtype, q, k, v = q.dtype, q.float(), k.float(), v.float()
    with sdpa_kernel(backend):
        if FAULT == "heads-one-by-one":
            heads = range(q.shape[1])
            cut = [[x[:, h : h + 1] for x in (q, k, v)] for h in heads]
            out = torch.cat([F.scaled_dot_product_attention(*one) for one in cut], dim=1)
        else:
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    if FAULT == "small-launches":
        for _ in range(20):
            out = out * 1
    return out.to(dtype) if FAULT == "float32" else out
"""

SUITE = """
schema = 1
description = "PyTorch's flash attention, as it should be and with a fault"
[workers.mine]
python = "attention.py:attention"
[measure]
invocations = 4
samples = 20
min_samples = 5
budget_ms = 100
[policy]
floor = 0.02
confirm = 0
[[sweep]]
variants = ["mine/attention"]
shapes = [{ batch = 2, heads = 16, seq = 2048, head_dim = 64 }]
dtype = "bf16"
layout = "bhsd"
direction = "forward"
"""


def regatta(
    program: str, folder: Path, fault: str, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Runs it in the folder, with a fault."""
    return subprocess.run(
        [program, *arguments],
        cwd=folder,
        env=os.environ | {"FAULT": fault, "REGATTA_PYTHON": sys.executable},
        capture_output=True,
        text=True,
    )


def main() -> None:
    """Gates each fault and each harmless change."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--regatta", default="regatta")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--keep", type=Path, help="a folder for the reports")
    options = parser.parse_args()
    program = str(Path(options.regatta).resolve())
    wrong = explained = accounts = 0
    with tempfile.TemporaryDirectory() as name:
        folder = options.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "attention.py").write_text(FUNCTION)
        (folder / "s.toml").write_text(SUITE)
        for arguments in (("run", "./s.toml", "--fresh"), ("baseline", "save", "s", "--replace")):
            done = regatta(program, folder, "", *arguments)
            if done.returncode:
                raise SystemExit(f"{arguments}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        for fault in [*FAULTS, *HARMLESS]:
            if options.only and fault not in options.only:
                continue
            done = regatta(program, folder, fault, "gate", "./s.toml", "--fresh")
            judged = regatta(program, folder, fault, "diff", "s", "reports/s", "--json")
            (folder / f"{fault}.json").write_text(judged.stdout)
            (folder / f"{fault}.txt").write_text(done.stdout)
            row = json.loads(judged.stdout)["rows"][0]
            causes = [finding["cause"] for finding in row["findings"]]
            first = causes[0] if causes else "nothing"
            harmless = fault in HARMLESS
            holds = done.returncode == 0 if harmless else first in FAULTS[fault]
            holds = holds and (harmless or done.returncode == 1)
            wrong += not holds
            print(
                "ok   " if holds else "WRONG",
                f"{fault:18} exit {done.returncode} ",
                ", ".join(causes),
            )
            if account := row.get("account"):
                change, left = account["change_ns"], account["unexplained_ns"]
                accounts += 1
                explained += abs(left) <= max(300, 0.05 * abs(change))
                lines = ", ".join(
                    f"{line['item']} {line['growth_ns'] / 1e3:+.2f}"
                    for line in account["lines"][:5]
                )
                print(f"      {change / 1e3:+.2f} µs, not explained {left / 1e3:+.2f}: {lines}")
    print(f"{wrong} wrong; {explained} of {accounts} accounts within 5 % of the change or 0.3 µs")
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
