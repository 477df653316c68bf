"""Runs one program with one thing different, and prints how long a step takes.

    python3 crates/probe/tests/faults/main.py llama eager-attention

The second word is a change of `table`, or `as-it-should-be`.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from faults import around, table


def main(program: str, change: str) -> None:
    """Runs the program."""
    table.find(program, change)
    # A pool of processes that compile costs more than it saves where little is compiled.
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    # Its own tuner times kernels for seconds, and chooses otherwise from run to run; what
    # Triton makes of a matrix product is slow without it.
    os.environ["XLA_FLAGS"] = "--xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false"
    around.prepare(change)
    module = importlib.import_module(f"faults.programs.{program}")
    with other_stream(change):
        milliseconds = around.run(module.build(change), change)
    print(f"{program} {change}: {milliseconds:.3f} ms a step", file=sys.stderr)


def other_stream(change: str) -> contextlib.AbstractContextManager[object]:
    """A stream of PyTorch's that is not the default one, where that is the change."""
    if change not in ("other-stream", "streams-created-in-another-order"):
        return contextlib.nullcontext()
    import torch

    stream = torch.cuda.Stream()
    return torch.cuda.stream(stream) if change == "other-stream" else contextlib.nullcontext()


if __name__ == "__main__":
    main(*sys.argv[1:])
