"""Does `regatta diff` of two traces name the cause of a slowdown, and nothing else?

    python3 probe/tests/trace_faults.py --regatta target/release/regatta

A training step on a GPU (attention forward and backward, a matrix product with a copy from
the host under it) is traced as it should be, then once with each of eleven faults, whose
cause must be the first finding and whose exit code 1, and once with each of ten harmless
changes, of which none may be called worse. Needs PyTorch and a CUDA device; prints a row
each and exits 1 where one does not hold. tests/causes.rs does the same to runs of a suite,
without a GPU.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STEPS = 12

FAULTS = {
    "one-split": "less-parallel",
    "copies": "copies-added",
    "pageable": "lost-overlap",
    "one-stream": "lost-overlap",
    "other-kernel": "kernel-replaced",
    "float32": "kernel-replaced",
    "small-launches": "launches-added",
    "slow-host": "host-bound",
    "waits-at-once": "lost-overlap",
    "recompile": "modules-loaded",
    "to-host-and-back": "copies-added",
}
"""By name, the cause that must come first."""

HARMLESS = (
    "other-seed",
    "other-stream",
    "streams-created-in-another-order",
    "more-steps",
    "fewer-steps",
    "warm-up-twice",
    "memory-elsewhere",
    "threads",
    "print",
    "same-again",
)


def program(change: str) -> None:
    """The traced program, with one thing different."""
    import torch

    torch.manual_seed(7 if change == "other-seed" else 0)
    if change == "memory-elsewhere":
        keep = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
        keep.fill_(1)
    if change == "threads":
        torch.set_num_threads(1)
    if change == "streams-created-in-another-order":
        torch.cuda.Stream()
    aten, device = torch.ops.aten, "cuda"
    dtype = torch.float32 if change == "float32" else torch.float16
    q, k, v, dout = (torch.randn(1, 6144, 2, 64, device=device, dtype=dtype) for _ in range(4))
    weight = torch.randn(8192, 8192, device=device, dtype=torch.bfloat16)
    batch = torch.randn(1 << 24, device="cpu").to(torch.bfloat16)
    batch = batch if change == "pageable" else batch.pin_memory()
    landing = torch.empty(batch.shape, dtype=batch.dtype, device=device)
    side = torch.cuda.Stream()
    main = torch.cuda.Stream() if change == "other-stream" else torch.cuda.current_stream()
    splits = 1 if change == "one-split" else None

    def attention() -> None:
        given = (q, k, v)
        if change == "copies":
            # Into another order of the axes and back, as a wrapper does that does not
            # know which one its kernel takes.
            given = tuple(x.transpose(1, 2).contiguous() for x in given)
            given = tuple(x.transpose(1, 2).contiguous() for x in given)
        if change == "to-host-and-back":
            given = tuple(x.to("cpu").to(device) for x in given)
        if change == "other-kernel":
            saved = aten._flash_attention_forward(*given, None, None, 6144, 6144, 0.0, False, False)
            out, lse, state, unused, _ = saved
            aten._flash_attention_backward(
                dout, *given, out, lse, None, None, 6144, 6144, 0.0, False, state, unused
            )
            return
        out, lse, seed, offset, seqlen_q, seqlen_k = aten._efficient_attention_forward(
            *given, None, None, None, None, None, 0.0, 0, True
        )
        aten._efficient_attention_backward(
            dout, *given, None, out, None, None, seqlen_q, seqlen_k, lse, 0.0, seed, offset, 0,
            False, num_splits_key=splits,
        )  # fmt: skip

    def step(number: int) -> None:
        if change != "one-stream":
            side.wait_stream(main)
        with torch.cuda.stream(main if change == "one-stream" else side):
            landing.copy_(batch, non_blocking=True)
        if change == "waits-at-once":
            main.wait_stream(side)
        product = weight @ weight
        product = product @ weight
        attention()
        if change == "small-launches":
            for _ in range(400):
                product[0].add_(1)
        if change == "slow-host":
            time.sleep(0.02)
        product[0].add_(0)
        if change == "recompile":
            source = f"__global__ void scale(float* x) {{ x[threadIdx.x] *= {number}.f; }}"
            kernel = torch.cuda._compile_kernel(f'extern "C" {source}', "scale")
            kernel((1, 1, 1), (32, 1, 1), (scratch,))
        if change == "print":
            print("step", number)
        main.wait_stream(side)

    scratch = torch.ones(32, device=device)
    steps = {"more-steps": STEPS + 5, "fewer-steps": STEPS - 3}.get(change, STEPS)
    with torch.cuda.stream(main):
        for warmup in range(2 if change == "warm-up-twice" else 1):
            step(-1 - warmup)
        torch.cuda.synchronize()
        for number in range(steps):
            step(number)
    torch.cuda.synchronize()


def traced(regatta: str, change: str, folder: Path) -> Path:
    """The trace of the program with a change."""
    trace = folder / f"{change}.trace"
    command = [regatta, "trace", "--out", str(trace), "--", sys.executable, __file__, change]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{change}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return trace


def main() -> None:
    """Traces every change and judges it against the program as it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--regatta", default="regatta")
    parser.add_argument("--only", nargs="*", default=[])
    wanted = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        base = traced(wanted.regatta, "as-it-should-be", folder)
        for change in (*FAULTS, *HARMLESS):
            if wanted.only and change not in wanted.only:
                continue
            head = traced(wanted.regatta, change, folder)
            compared = subprocess.run(
                [wanted.regatta, "diff", "--json", str(base), str(head)],
                capture_output=True,
                text=True,
            )
            findings = json.loads(compared.stdout)["findings"] if compared.stdout else []
            first = findings[0] if findings else {"cause": "nothing", "evidence": compared.stderr}
            expected = FAULTS.get(change)
            code = 1 if expected else 0
            held = compared.returncode == code
            held = held and (not expected or first["cause"] == expected)
            wrong += not held
            words = f"{first['cause']}: {first['evidence']}"
            print(f"{'ok' if held else 'WRONG':5} {change:34} exit {compared.returncode}  {words}")
            if not held:
                print(f"      expected {expected or 'nothing'}, exit {code}")
                print(f"      {json.dumps(findings)[:1500]}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    if len(sys.argv) == 2 and not sys.argv[1].startswith("-"):
        program(sys.argv[1])
    else:
        main()
