"""Compares JAX's device times with CUPTI on a machine with a GPU and JAX.

    cargo rustc --release -p regatta-probe --crate-type cdylib
    REGATTA_PROBE=target/release/libregatta_probe.so python3 crates/probe/tests/ruler_jax.py

With XLA_PYTHON_CLIENT_USE_TFRT_GPU_CLIENT=1 XLA queues work from threads of its own. Exits with 1
if a kernel's reading is off by more than 0.5 µs, if the marker changes what XLA runs, or if XLA
leaves the clock's stream.
"""

import os
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[3] / "python"
sys.path.insert(0, str(FOLDER / "tests"))
sys.path.insert(0, str(FOLDER))

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.gpu.attention import mha

from regatta_worker import on_jax
from regatta_worker.clock import probe
from regatta_worker.libraries import jax as jax_worker
from regatta_worker.on_jax import XlaProbe
from ruler import Operation, compare, misbehaving_calls, record, say, summary
from support import CAUSAL, FULL, wire

PALLAS = ((1, 8, 128, 64), (2, 16, 512, 64), (2, 16, 1024, 64))
"""[batch, heads, seq, head_dim] in bf16 of forward calls that are one kernel: JAX's own
FlashAttention, written in Pallas. XLA's and cuDNN's are several operations."""

SUMS = (1 << 20, 4 << 20, 8 << 20)
"""float32 elements of further calls that are one kernel."""

CASES = (
    ("cudnn", "forward", (1, 8, 128, 64)),
    ("cudnn", "forward", (2, 16, 512, 64)),
    ("xla", "forward", (1, 8, 128, 64)),
    ("xla", "forward", (2, 16, 512, 64)),
    ("cudnn", "backward", (2, 16, 512, 64)),
    ("xla", "backward", (2, 16, 512, 64)),
)
"""Variant, direction and [batch, heads, seq, head_dim] in bf16, through the worker."""

BF16_ERROR = 1.5e-2
"""Relative error of a right result in bf16."""


def single_kernels(clock: XlaProbe) -> None:
    """Calls of one kernel: the reading is the kernel's time."""
    for shape in PALLAS:
        batch, heads, seq, head_dim = shape
        keys = jax.random.split(jax.random.key(42), 3)
        qkv = [jax.random.normal(key, (batch, seq, heads, head_dim), jnp.bfloat16) for key in keys]
        scale = head_dim**-0.5
        compiled = jax.jit(
            on_jax.marked(lambda q, k, v: mha(q, k, v, None, sm_scale=scale))  # noqa: B023
        )
        exact = jax.nn.dot_product_attention(*(value.astype(jnp.float32) for value in qkv))
        error = jnp.linalg.norm(compiled(*qkv) - exact) / jnp.linalg.norm(exact)
        say(f"Pallas forward {shape}: relative error {error:.1e}", bool(error < BF16_ERROR))
        for cold in (True, False):
            compare(clock, f"Pallas forward {shape}", cold, lambda: compiled(*qkv))  # noqa: B023
    for elements in SUMS:
        values = jax.random.normal(jax.random.key(7), (elements,))
        compiled = jax.jit(on_jax.marked(lambda x: x + 1))
        compare(clock, f"{elements} elements plus one", True, lambda: compiled(values))  # noqa: B023


def prepared(worker: jax_worker.JaxWorker, clock: XlaProbe | None, **request: Any) -> Any:
    """The worker's case, with or without the marker, which the worker has checked."""
    worker.clock = clock
    reply = worker.prepare({"seed": 42, **request})
    for name, error in reply["errors"].items():
        if error["relative_l2"] > BF16_ERROR:
            say(f"{request}: {name} is off by {error['relative_l2']:.1e}", False)
    for _ in range(3):
        jax.block_until_ready(worker.call())
    return worker.case


def kinds(operations: list[Operation]) -> list[tuple[str, int]]:
    """The operations that the marker must not change.

    Names of equal kernels differ from one compilation to the next, and so may the order of
    operations that do not depend on each other.
    """
    return sorted((op["kind"], op.get("bytes", 0)) for op in operations)


def same_work(worker: jax_worker.JaxWorker, clock: XlaProbe, **request: Any) -> Any:
    """The marked case, after checking that the marker adds no operation and no stream."""
    problem = request["problem"]
    axes = " ".join(str(problem[axis]) for axis in ("direction", "layout", "seq_q"))
    mask = "causal" if problem["mask"] == CAUSAL else "full"
    prepared(worker, None, **request)
    expected = record(worker.call)
    marked = prepared(worker, clock, **request)
    found = record(worker.call)
    streams = {op["stream"] for op in found if op["kind"] == "kernel"}
    right = kinds(found) == kinds(expected) and len(streams) == 1
    say(f"{request['variant']} {axes} {mask}: {len(found)} operations, as unmarked", right)
    if not right:
        for title, operations in (("without", expected), ("with", found)):
            for op in operations:
                print(f"      {title}: {op}")
    return marked


def every_kind(worker: jax_worker.JaxWorker, clock: XlaProbe) -> None:
    """The marker on one small problem in every variant, direction, layout and mask."""
    axes = {"batch": 1, "heads": 8, "seq_q": 128, "head_dim": 64, "dtype": "bf16"}
    for variant, direction, layout, mask in product(
        ("xla", "cudnn"), ("forward", "backward", "both"), ("bshd", "bhsd"), (FULL, CAUSAL)
    ):
        problem = wire(direction=direction, layout=layout, mask=mask, **axes)
        same_work(worker, clock, variant=variant, problem=problem)


def unmarked_calls(clock: XlaProbe, call: Callable[[], Any]) -> None:
    """A call without a marker harms itself alone."""
    try:
        clock.sample(True, lambda: jnp.zeros(1))
    except probe.ProbeError as error:
        say(f"a call without a marker is refused: {error}", "marker" in str(error))
    say("and the next sample is right", not clock.sample(True, call).synchronised)


def main() -> int:
    worker = jax_worker.JaxWorker()
    clock = worker.clock
    if clock is None:
        say(f"no clock: {probe.VARIABLE}={os.environ.get(probe.VARIABLE)}", False)
        return 1
    version = worker.hello()["versions"]
    print(f"{version['clock']}, JAX {version['jax']}")
    single_kernels(clock)
    for variant, direction, (batch, heads, seq, head_dim) in CASES:
        axes = {"batch": batch, "heads": heads, "seq_q": seq, "head_dim": head_dim}
        problem = wire(dtype="bf16", direction=direction, **axes)
        call = same_work(worker, clock, variant=variant, problem=problem).call
        for cold in (True, False):
            compare(clock, f"{variant} {direction} {tuple(axes.values())}", cold, call)
    every_kind(worker, clock)
    call = worker.prepared().call
    misbehaving_calls(clock, call, jax.block_until_ready)
    unmarked_calls(clock, call)
    return summary()


if __name__ == "__main__":
    sys.exit(main())
