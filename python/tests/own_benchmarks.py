"""Times each library as its own benchmark script does, beside what regatta read of it.

A script for a machine with a GPU, and no test:

    python3 own_benchmarks.py --run reports/providers

prints a JSON line for each case of the suite `providers` that it knows, with the TFLOP/s by
the library's own method and, with `--run`, what regatta measured and the ratio of the two;
exit code 1 says that some are further apart than `--within`. Nothing of regatta is imported:
libraries are called here as their documentation says, so that both the call and the clock are
checked. FLOPs are those of docs/FORMAT.md: 4 pairs x heads x head_dim forward, 10 backward.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
Run = Callable[[], Any]
Clock = Callable[[Run], float]
"""Milliseconds of one call."""


@dataclass(frozen=True)
class Shape:
    """bf16, one sequence: what the suite `providers` has."""

    heads: int
    kv_heads: int
    seq: int
    head_dim: int
    causal: bool

    def problem(self, backward: bool) -> str:
        """As regatta's case ids spell it."""
        kv = "" if self.kv_heads == self.heads else f",kv{self.kv_heads}"
        mask = ",causal" if self.causal else ""
        ending = ",bwd" if backward else ""
        return f"h{self.heads}{kv},s{self.seq},d{self.head_dim},bf16{mask}{ending}"

    def flops(self, backward: bool) -> float:
        """Of the visible pairs."""
        pairs = self.seq * (self.seq + 1) / 2 if self.causal else self.seq**2
        return (10 if backward else 4) * pairs * self.heads * self.head_dim

    def tensors(self) -> Tensors:
        """q, k, v and the gradient of the output, `[batch, seq, heads, head_dim]`."""

        def drawn(heads: int) -> torch.Tensor:
            return torch.randn(
                1, self.seq, heads, self.head_dim, device="cuda", dtype=torch.bfloat16
            )

        q, k, v = drawn(self.heads), drawn(self.kv_heads), drawn(self.kv_heads)
        return q.requires_grad_(), k.requires_grad_(), v.requires_grad_(), drawn(self.heads)


SHAPES = (
    Shape(16, 16, 8192, 128, causal=False),
    Shape(16, 16, 8192, 128, causal=True),
    Shape(32, 8, 4096, 128, causal=True),
)


# The libraries' methods.


def do_bench(run: Run) -> float:
    """hopper/benchmark_attn.py of FlashAttention: Triton's do_bench after a second of rest."""
    from triton.testing import do_bench as measured

    for _ in range(5):
        run()
    torch.cuda.synchronize()
    # Their words: to avoid residual power throttling.
    time.sleep(1)
    return float(measured(run, warmup=3, rep=30))


def timer(run: Run) -> float:
    """benchmarks/benchmark_flash_attention.py: the mean of 30 calls in a row."""
    from torch.utils.benchmark import Timer

    return float(Timer("run()", globals={"run": run}).timeit(30).mean * 1e3)


# The libraries. Each yields forward, and backward or nothing.

Pair = tuple[Run, Run | None]


def _autograd(forward: Callable[[], torch.Tensor], tensors: Tensors, gradient: Any) -> Pair:
    out = forward()
    q, k, v, _ = tensors

    def plain() -> torch.Tensor:
        with torch.no_grad():
            return forward()

    return plain, lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True)


def _sdpa(backend: str) -> Callable[[Shape, Tensors], Pair]:
    def make(shape: Shape, tensors: Tensors) -> Pair:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        q, k, v, g = (tensor.transpose(1, 2) for tensor in tensors)
        chosen, grouped = getattr(SDPBackend, backend), shape.heads != shape.kv_heads

        def forward() -> torch.Tensor:
            with sdpa_kernel(chosen):
                return F.scaled_dot_product_attention(
                    q, k, v, is_causal=shape.causal, enable_gqa=grouped
                )

        return _autograd(forward, tensors, g)

    return make


def _fa3(shape: Shape, tensors: Tensors) -> Pair:
    import flash_attn_interface  # noqa: F401  (registers the operators)

    operators, (q, k, v, g) = torch.ops.flash_attn_3, (x.detach() for x in tensors)
    common = {"softmax_scale": shape.head_dim**-0.5, "is_causal": shape.causal}
    out, logsumexp = operators.fwd(q, k, v, **common)[:2]
    dq, dk, dv = (torch.empty_like(x) for x in (q, k, v))

    def backward() -> Any:
        return operators.bwd(g, q, k, v, out, logsumexp, dq=dq, dk=dk, dv=dv, **common)

    return lambda: operators.fwd(q, k, v, **common), backward


@dataclass(frozen=True)
class Library:
    """One variant of regatta's, and how its library times it."""

    variant: str
    make: Callable[[Shape, Tensors], Pair]
    clock: Clock
    params: str = ""


LIBRARIES = (
    Library("torch/sdpa-flash", _sdpa("FLASH_ATTENTION"), timer),
    Library("torch/sdpa-efficient", _sdpa("EFFICIENT_ATTENTION"), timer),
    Library("torch/sdpa-cudnn", _sdpa("CUDNN_ATTENTION"), timer),
    Library("flash_attn/fa3", _fa3, do_bench),
)


def measured(library: Library, shape: Shape) -> Iterator[dict[str, Any]]:
    """A record for each direction; a library that is absent or refuses says so in `error`."""
    try:
        forward, backward = library.make(shape, shape.tensors())
    except Exception as error:
        case = f"{library.variant}:{shape.problem(False)}{library.params}"
        yield {"case": case, "error": f"{type(error).__name__}: {error}"[:300]}
        return
    for run, is_backward in ((forward, False), (backward, True)):
        if run is None:
            continue
        case = f"{library.variant}:{shape.problem(is_backward)}{library.params}"
        try:
            milliseconds = library.clock(run)
        except Exception as error:
            yield {"case": case, "error": f"{type(error).__name__}: {error}"[:300]}
            continue
        tflops = shape.flops(is_backward) / milliseconds / 1e9
        method = (library.clock.__doc__ or "").split(":")[0]
        yield {"case": case, "method": method, "ms": milliseconds, "tflops": tflops}


def regatta_tflops(run: Path) -> dict[str, float]:
    """TFLOP/s by case of a run's folder or of its cases.csv."""
    path = run / "cases.csv" if run.is_dir() else run
    with path.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    return {row["case"]: float(row["tflops"]) for row in rows if row["tflops"]}


def main() -> int:
    """Measures, prints, and compares: 1 where readings are apart, 2 where there was no pair."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--run", type=Path, help="a run's folder, or its cases.csv")
    parser.add_argument("--within", type=float, default=0.05, help="largest difference (0.05)")
    arguments = parser.parse_args()
    theirs = regatta_tflops(arguments.run) if arguments.run else {}
    apart = compared = 0
    for library in LIBRARIES:
        for shape in SHAPES:
            for record in measured(library, shape):
                ours = theirs.get(record["case"])
                if ours and "tflops" in record:
                    record["regatta_tflops"] = ours
                    record["ratio"] = ours / record["tflops"]
                    record["apart"] = abs(record["ratio"] - 1) > arguments.within
                    apart += record["apart"]
                    compared += 1
                print(json.dumps(record), flush=True)
    print(json.dumps({"apart": apart, "compared": compared, "within": arguments.within}))
    if arguments.run and not compared:
        print(f"no case of {arguments.run} was measured here: nothing compared", file=sys.stderr)
        return 2
    return 1 if apart else 0


if __name__ == "__main__":
    sys.exit(main())
