"""Library `triton`: a fused kernel of our own, tuned once for a range of lengths or for each.

The algorithm is that of FlashAttention 2 (Dao, 2023, arXiv:2307.08691): a block of queries
stays in registers while keys and values stream past it; the running maximum and sum of each
row rescale what was accumulated. Lengths are arguments, not constants, so that a new length
compiles nothing: what it may cost is the choice of a configuration.

Triton compiles for GPUs alone; with TRITON_INTERPRET=1 it runs its kernels on the host,
element by element, which shows whether they are right and nothing of their speed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from regatta_worker.on_torch.case import Call, Results, TorchCase
from regatta_worker.on_torch.library import Library
from regatta_worker.problem.input_sets import Lengths
from regatta_worker.protocol.channel import Unsupported

TUNED = ("BLOCK_Q", "num_warps")
"""The settings in which configurations differ: a case that asks for one is not tuned."""

HEAD_DIMS = (64, 128)
MOST_GRID_Y = 65535
"""Blocks in y of a CUDA grid: batch times heads."""

WORKER = Library("triton", packages=("triton",))


def tuning_key(variant: str, seq_q: int) -> int:
    """The key of a variant's autotuner for a problem: lengths of one key share a choice."""
    return seq_q if variant == "flash-exact" else triton.next_power_of_2(seq_q)


def flash(case: TorchCase) -> Call:
    """A call of the problem itself, or of lengths that are new in each call, longest first.

    Each case has an autotuner of its own: what one has tuned is new to the next.
    """
    problem, interpreted = case.problem, bool(triton.knobs.runtime.interpret)
    if case.device.type == "cpu" and not interpreted:
        raise Unsupported("Triton compiles for GPUs, and torch can use none")
    _refuse(case, interpreted)
    asked = case.param("lengths", 1)
    drawn = Lengths(problem.seq_q, asked) if "lengths" in case.params else None
    chosen = {name: case.param(name) for name in TUNED if name in case.params}
    kernel, tensors, mask = autotuned(chosen), case.tensors, problem.mask

    def attend_length(seq_q: int, seq_k: int) -> torch.Tensor:
        q, k, v = tensors["q"][:, :seq_q], tensors["k"][:, :seq_k], tensors["v"][:, :seq_k]
        diagonal, key = mask.offset(seq_q, seq_k), tuning_key(case.variant, seq_q)
        return attend(kernel, q, k, v, mask.is_causal, diagonal, key)

    if drawn is None:
        return Call(lambda: (attend_length(problem.seq_q, problem.seq_k),))

    def several() -> Results:
        return tuple(attend_length(length, length) for length in drawn.draw())

    return Call(several, problems=asked, varies=True, draws_lengths=True)


for _name, _summary in (
    ("flash", "fused forward in Triton, tuned once for all lengths up to a power of two"),
    ("flash-exact", "the same kernel, tuned again for each length"),
):
    WORKER.variant(
        _name,
        _summary,
        on_gpu=False,
        packed=False,
        directions=("forward",),
        parameters={"lengths": "integer", **dict.fromkeys(TUNED, "integer")},
    )(flash)


def _refuse(case: TorchCase, interpreted: bool) -> None:
    problem = case.problem
    if problem.head_dim not in HEAD_DIMS or problem.head_dim_v != problem.head_dim:
        raise Unsupported(
            f"the kernel takes head_dim 64 and 128, the same for values, not {problem.head_dim} "
            f"and {problem.head_dim_v}"
        )
    if not problem.mask.is_full and not problem.mask.is_causal:
        raise Unsupported("the kernel's masks are full and causal; it has no window")
    if problem.batch * problem.heads > MOST_GRID_Y:
        raise Unsupported(f"batch * heads is at most {MOST_GRID_Y}, the blocks of a grid in y")
    if interpreted and problem.dtype == "bf16":
        raise Unsupported("Triton's interpreter computes in numpy, which has no bfloat16")
    if "lengths" in case.params and problem.seq_q != problem.seq_k:
        raise Unsupported("lengths are of self-attention: seq_q and seq_k must be equal")


LOG2_E = math.log2(math.e)

CONFIGURATIONS = (
    triton.Config({"BLOCK_Q": 128, "BLOCK_K": 64}, num_warps=8, num_stages=3),
    triton.Config({"BLOCK_Q": 64, "BLOCK_K": 64}, num_warps=4, num_stages=3),
)
"""The configurations that autotuning chooses from."""

TUNING_CALLS = 3
"""Timed calls of each configuration, after one that compiles it. Triton's own benchmarker
takes about 125 ms a configuration: retuning costs its users more than it does here."""


# fmt: off
def flash_forward(  # type: ignore[no-untyped-def]  # Triton types what it compiles
    q_ptr, k_ptr, v_ptr, out_ptr,
    q_batch, q_seq, q_head, k_batch, k_seq, k_head,
    v_batch, v_seq, v_head, out_batch, out_seq, out_head,
    heads, group, seq_q, seq_k, diagonal, tuning_key, scale,
    CAUSAL: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
):
    # fmt: on
    """One block of BLOCK_Q queries of one head; the grid is (blocks, batch * heads).

    Strides are in elements; the head dimension is contiguous. `scale` is that of the
    scores times log2(e). Query i sees keys up to i + `diagonal` where CAUSAL.
    `tuning_key` is read by the autotuner alone.
    """
    block = tl.program_id(0)
    batch = tl.program_id(1) // heads
    head = tl.program_id(1) % heads
    rows = block * BLOCK_Q + tl.arange(0, BLOCK_Q)
    columns = tl.arange(0, BLOCK_K)
    width = tl.arange(0, HEAD_DIM)
    q_ptr += batch.to(tl.int64) * q_batch + head.to(tl.int64) * q_head
    k_ptr += batch.to(tl.int64) * k_batch + (head // group).to(tl.int64) * k_head
    v_ptr += batch.to(tl.int64) * v_batch + (head // group).to(tl.int64) * v_head
    out_ptr += batch.to(tl.int64) * out_batch + head.to(tl.int64) * out_head

    q = tl.load(
        q_ptr + rows.to(tl.int64)[:, None] * q_seq + width[None, :],
        mask=rows[:, None] < seq_q,
        other=0.0,
    )
    top = tl.full([BLOCK_Q], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_Q], tl.float32)
    accumulated = tl.zeros([BLOCK_Q, HEAD_DIM], tl.float32)
    end = seq_k
    if CAUSAL:
        end = tl.minimum(seq_k, (block + 1) * BLOCK_Q + diagonal)
    for first in range(0, end, BLOCK_K):
        keys = first + columns
        k = tl.load(
            k_ptr + keys.to(tl.int64)[None, :] * k_seq + width[:, None],
            mask=keys[None, :] < seq_k,
            other=0.0,
        )
        scores = tl.dot(q, k) * scale
        visible = keys[None, :] < seq_k
        if CAUSAL:
            visible = visible & (keys[None, :] <= rows[:, None] + diagonal)
        scores = tl.where(visible, scores, float("-inf"))
        new_top = tl.maximum(top, tl.max(scores, 1))
        # A row that has seen no key yet has no finite maximum to subtract.
        base = tl.where(new_top == float("-inf"), 0.0, new_top)
        p = tl.math.exp2(scores - base[:, None])
        rescale = tl.math.exp2(top - base)
        total = total * rescale + tl.sum(p, 1)
        v = tl.load(
            v_ptr + keys.to(tl.int64)[:, None] * v_seq + width[None, :],
            mask=keys[:, None] < seq_k,
            other=0.0,
        )
        accumulated = accumulated * rescale[:, None] + tl.dot(p.to(v.dtype), v)
        top = new_top
    # A query that sees no key has output 0.
    out = accumulated / tl.where(total == 0.0, 1.0, total)[:, None]
    tl.store(
        out_ptr + rows.to(tl.int64)[:, None] * out_seq + width[None, :],
        out.to(out_ptr.dtype.element_ty),
        mask=rows[:, None] < seq_q,
    )


def configurations(chosen: Mapping[str, Any]) -> list[Any]:
    """Those that have these values. Raises Unsupported where none has."""
    found = [
        config
        for config in CONFIGURATIONS
        if chosen.items() <= {**config.kwargs, "num_warps": config.num_warps}.items()
    ]
    if not found:
        values = ", ".join(f"{name}={value}" for name, value in chosen.items())
        raise Unsupported(f"the kernel has no configuration with {values}")
    return found


def autotuned(chosen: Mapping[str, Any]) -> Any:
    """The kernel with an autotuner of its own, which tunes once for each `tuning_key`."""
    # Without the exemption a key of 1, or one that 16 divides, compiles a kernel of its own.
    jitted = triton.jit(flash_forward, do_not_specialize=["tuning_key"])
    tuner = triton.autotune(configurations(chosen), key=["tuning_key"], do_bench=_bench)
    return tuner(jitted)


def _bench(call: Callable[[], Any], quantiles: tuple[float, ...]) -> list[float]:
    """Milliseconds of a few calls at these quantiles, by the device's events."""
    call()
    if not torch.cuda.is_available():
        return [0.0] * len(quantiles)
    times = []
    for _ in range(TUNING_CALLS):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop))
    found: list[float] = torch.quantile(torch.tensor(times), torch.tensor(quantiles)).tolist()
    return found


def attend(
    kernel: Any,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool,
    diagonal: int,
    tuning_key: int,
) -> torch.Tensor:
    """`softmax(mask(q k^T / sqrt(head_dim))) v`.

    q [batch, seq_q, heads, head_dim], k and v [batch, seq_k, kv_heads, head_dim], in any
    strides whose last is 1; the result lies in memory as q does.
    """
    batch, seq_q, heads, head_dim = q.shape
    seq_k, kv_heads = k.shape[1:3]
    out = torch.empty_like(q)

    def grid(meta: dict[str, Any]) -> tuple[int, int]:
        return triton.cdiv(seq_q, meta["BLOCK_Q"]), batch * heads

    strides = [stride for tensor in (q, k, v, out) for stride in tensor.stride()[:3]]
    lengths = (heads, heads // kv_heads, seq_q, seq_k, diagonal, tuning_key)
    scale = LOG2_E / math.sqrt(head_dim)
    kernel[grid](q, k, v, out, *strides, *lengths, scale, CAUSAL=causal, HEAD_DIM=head_dim)
    return out
