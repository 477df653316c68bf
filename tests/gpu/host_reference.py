"""Measures how host time varies between processes: by itself, and as a ratio to the reference.

    python3 tests/gpu/host_reference.py [--processes 16] [--of backward | jax]

Each process times a call of attention and ten in a row (forward by SDPA's flash backend takes
about 30 and 300 µs), and the worker's reference after each sample. `cv` is the coefficient of
variation of their medians; five pairs detect a change of 1.645 · 2 · cv · sqrt(2 / 5) in 95 of 100.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

from regatta_worker.clock.timing import autograd_reference, torch_reference

SHAPE, CALLS, SAMPLES = (2, 16, 512, 64), (1, 10), 60


def attention_of(kind: str) -> Any:
    """A call, what waits for its result, and the reference; None without CUDA."""
    if kind != "jax":
        import torch

        if not torch.cuda.is_available():
            return None
        q, k, v = (torch.randn(SHAPE, device="cuda", dtype=torch.bfloat16) for _ in range(3))
        torch.backends.cuda.enable_cudnn_sdp(False)
        attend = torch.nn.functional.scaled_dot_product_attention
        wait = lambda results: torch.cuda.synchronize()  # noqa: E731
        if kind == "forward":
            return lambda: attend(q, k, v), wait, torch_reference()
        qkv = [x.requires_grad_() for x in (q, k, v)]
        out = attend(*qkv)
        dout = torch.randn_like(out)
        gradient = lambda: torch.autograd.grad(out, qkv, dout, retain_graph=True)  # noqa: E731
        return gradient, wait, autograd_reference()
    import jax

    from regatta_worker.on_jax import host_reference

    if jax.default_backend() != "gpu":
        return None
    qkv = [jax.numpy.full(SHAPE, value, jax.numpy.bfloat16).swapaxes(1, 2) for value in (1, 2, 3)]
    call = jax.jit(jax.nn.dot_product_attention).lower(*qkv).compile()
    return lambda: call(*qkv), jax.block_until_ready, host_reference()


def medians(attention: Any, calls: int) -> list[float]:
    """Host time and reference in ns, and their ratio."""
    call, wait, reference = attention
    host_ns = []
    for _ in range(SAMPLES):
        begin = time.perf_counter_ns()
        results = [call() for _ in range(calls)]
        host_ns.append(float(time.perf_counter_ns() - begin))
        wait(results)
        reference.take()
    ratios = [host / own for host, own in zip(host_ns, reference.ns[-SAMPLES:], strict=True)]
    return [median(host_ns), median(reference.ns[-SAMPLES:]), median(ratios)]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--processes", type=int, default=16, help="at least 2 (16)")
    parser.add_argument("--of", choices=("forward", "backward", "jax"), default="forward")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        attention = attention_of(asked.of)
        if attention is None:
            parser.error(f"{asked.of}: finds no CUDA device here")
        print(json.dumps([medians(attention, calls) for calls in CALLS]))
        return 0
    found, command = [], [sys.executable, *sys.argv, "--child"]
    for _ in range(asked.processes):
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            return done.returncode
        found.append(json.loads(done.stdout))
    for number, calls in enumerate(CALLS):
        for figure, name in enumerate(("host time, ns", "reference, ns", "ratio")):
            values = [process[number][figure] for process in found]
            cv = stdev(values) / mean(values)
            line = f"calls {calls:2}  {name:13} {min(values):10.2f} to {max(values):10.2f}"
            print(f"{line}  cv {cv:6.1%}  detected {1.645 * 2 * cv * (2 / 5) ** 0.5:6.1%}")
    return 0


sys.exit(main())
