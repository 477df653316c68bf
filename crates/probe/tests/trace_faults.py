"""Does `regatta diff` of two traces name the cause of a slowdown, and nothing else?

    python3 crates/probe/tests/trace_faults.py --regatta target/release/regatta --keep FOLDER

Traces the programs of `faults/` on a GPU as they should be, then once with each fault and each
harmless change of `CHANGES`. Of a fault, one of its causes is the first finding, and `diff` exits
with 1; of a harmless change it exits with 0. Prints a row each, and exits with 1 where one is
wrong. Traces that are in FOLDER are not taken again. `--run PROGRAM CHANGE` runs a program alone,
and prints how long a step takes.

Needs a CUDA device, PyTorch and transformers.
"""

import argparse
import contextlib
import gc
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BASE = "as-it-should-be"
"""The program with nothing changed."""

Causes = tuple[str, ...]
"""One of these causes must come first; several are listed where the program does two things;
none of a harmless change."""

REPLACED = ("kernel-replaced",)
COPIES = ("copies-added",)
OVERLAP = ("lost-overlap",)
LAUNCHES = ("launches-added",)
FETCHED = ("synchronisation", "copies-added", "calls-added")

CHANGES: dict[str, dict[str, Causes]] = {
    # Attention and matrix products, with a copy from the host under them.
    "step": {
        "one-split": ("less-parallel",),
        "contiguous": COPIES,
        "pageable": OVERLAP,
        "one-stream": OVERLAP,
        "waits-at-once": OVERLAP,
        "other-kernel": REPLACED,
        "float32": REPLACED,
        "small-launches": LAUNCHES,
        "slow-host": ("host-bound",),
        "recompile": ("recompiled", "modules-loaded"),
        "to-host-and-back": COPIES,
        "neighbour": ("shared-device", "same-launch", "gaps"),
        "same-again": (),
        "other-seed": (),
        "other-stream": (),
        "streams-created-in-another-order": (),
        "more-steps": (),
        "fewer-steps": (),
        "warm-up-twice": (),
        "memory-elsewhere": (),
        "threads": (),
        "print": (),
        "unused-library": (),
        "other-environment": (),
    },
    # transformers' Llama: a training step under autocast with fused AdamW.
    "llama": {
        "eager-attention": REPLACED,
        # A padding mask: cuDNN's kernels, launched as before, leave out no part of it.
        "mask": ("same-launch",),
        "item": FETCHED,
        "print-of-tensor": (*FETCHED, "launches-added"),
        "synchronize": ("synchronisation", "calls-added"),
        "empty-cache": ("driver-memory", "calls-added"),
        # Seven multi-tensor kernels for the fused one.
        "foreach-adamw": ("kernel-replaced", "launches-added"),
        "zeroed-gradients": LAUNCHES,
        "gradient-copies": COPIES,
        "float32-layer": REPLACED,
        "checkpointing": LAUNCHES,
        "same-again": (),
        "other-data": (),
        "ranges": (),
        "no-garbage-collection": (),
    },
    # Four CUDA kernels compiled at the start.
    "own_kernels": {
        "bank-conflicts": ("recompiled", "same-launch"),
        "occupancy": ("recompiled", "less-parallel"),
        "spills": ("recompiled", "spills"),
        "strided": ("same-launch",),
        "fewer-blocks": ("less-parallel",),
        "same-again": (),
    },
}

STEPS, WARM_UPS = {"more-steps": 17, "fewer-steps": 9}, {"warm-up-twice": 6}
"""By change; else 12 and 3."""

NEIGHBOUR = """
import torch
a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
a @ a
torch.cuda.synchronize()
print("ready", flush=True)
while True:
    for _ in range(20):
        a @ a
    torch.cuda.synchronize()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--regatta", default="regatta", help="the program that is tested")
    parser.add_argument("--only", nargs="*", default=[], metavar="PROGRAM/CHANGE")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep traces here")
    parser.add_argument("--runs", type=int, default=1, help="of a trace; four find less than 10 %%")
    parser.add_argument("--run", nargs=2, metavar=("PROGRAM", "CHANGE"), help="run a program alone")
    wanted = parser.parse_args()
    if wanted.run:
        run(*wanted.run)
        return
    rows = [
        (program, change, causes)
        for program, changes in CHANGES.items()
        for change, causes in changes.items()
        if not wanted.only or f"{program}/{change}" in wanted.only
    ]
    if not rows:
        parser.error("no such change")
    wrong = 0
    with tempfile.TemporaryDirectory() as name:
        folder = wanted.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        for program, change, causes in rows:
            traces = [
                trace(wanted.regatta, program, variant, folder, wanted.runs)
                for variant in (BASE, change)
            ]
            command = [wanted.regatta, "diff", "--json", *map(str, traces)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
            title = f"{program}/{change}"
            right, shown = judge(title, causes, done.returncode, json.loads(done.stdout))
            wrong += not right
            print(shown, flush=True)
    print(f"{wrong} of {len(rows)} changes are wrong")
    sys.exit(1 if wrong else 0)


def trace(regatta: str, program: str, change: str, folder: Path, runs: int) -> Path:
    """The trace of a program with a change; exits where the program fails."""
    path = folder / f"{program}-{change}.trace"
    if not path.exists():
        command = [regatta, "trace", "--runs", str(runs), "--out", str(path), "--"]
        subprocess.run([*command, sys.executable, __file__, "--run", program, change], check=True)
    return path


def judge(title: str, causes: Causes, code: int, answer: dict[str, Any]) -> tuple[bool, str]:
    """Returns true if `diff` reports what is expected of a change, and the row that shows it."""
    found = [finding["cause"] for finding in answer["findings"]]
    right = code == 0
    if causes:
        right = code == 1 and found[:1] != [] and found[0] in causes
    lines = [f"{finding['cause']}: {finding['evidence']}" for finding in answer["findings"]]
    row = f"{'ok' if right else 'WRONG':5} {title:38} exit {code}  {(lines or ['nothing'])[0]}"
    if right:
        return right, row
    expected = f"      expected {' or '.join(causes) or 'nothing worse'}"
    wrong = [f"{expected}; {answer['verdict']['reasons']}"]
    return right, "\n".join([row, *wrong, *(f"      then {line}" for line in lines[1:])])


def run(program: str, change: str) -> None:
    """Runs a program. One that is misspelt must not run as the program that it should be."""
    if change != BASE and change not in CHANGES[program]:
        raise KeyError(f"{program} has no change {change}: there are {', '.join(CHANGES[program])}")
    if change == "no-garbage-collection":
        gc.disable()
    if change == "unused-library":
        for name in ("sqlite3", "torchvision"):
            importlib.import_module(name)
    if change == "other-environment":
        os.environ.update({"LC_TIME": "C", "EXPERIMENT": "second", "TZ": "UTC"})
    import torch

    other = contextlib.nullcontext()
    if change in ("other-stream", "streams-created-in-another-order"):
        stream = torch.cuda.Stream()
        other = torch.cuda.stream(stream) if change == "other-stream" else other
    build = importlib.import_module(f"faults.{program}").build
    with other:
        step = build(change)
        with neighbour() if change == "neighbour" else contextlib.nullcontext():
            for number in range(-WARM_UPS.get(change, 3), 0):
                step(number)
            torch.cuda.synchronize()
            start, steps = time.perf_counter(), STEPS.get(change, 12)
            for number in range(steps):
                ranges = torch.cuda.nvtx.range(f"step {number}") if change == "ranges" else None
                with ranges or contextlib.nullcontext():
                    step(number)
                if change == "print":
                    print("step", number)
            torch.cuda.synchronize()
            milliseconds = (time.perf_counter() - start) * 1e3 / steps
    print(f"{program} {change}: {milliseconds:.3f} ms a step", file=sys.stderr)


@contextlib.contextmanager
def neighbour() -> Iterator[None]:
    # It is not a part of what is traced.
    variables = {key: of for key, of in os.environ.items() if key != "CUDA_INJECTION64_PATH"}
    command = [sys.executable, "-c", NEIGHBOUR]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=variables) as other:
        try:
            assert other.stdout and other.stdout.readline()
            yield
        finally:
            other.kill()


if __name__ == "__main__":
    main()
