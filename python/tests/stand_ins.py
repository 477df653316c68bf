"""Libraries that need a GPU, with their kernels replaced by the reference, of their arguments.

Operators have the release's schemas, and masks as the kernels are given them, so that a wrong
argument is a wrong value.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import create_mask

from regatta_worker.on_torch.library import Library, TorchWorker
from regatta_worker.problem.arrays import Arrays
from regatta_worker.problem.attention import GRADIENTS, Mask, Problem
from regatta_worker.problem.reference import reference

Results = tuple[torch.Tensor, ...]

CPU = torch.device("cpu")


def served(library: Library, *modules: str) -> TorchWorker:
    """A worker of the library on the CPU, where these modules are there, with nothing in them."""
    there = {name: types.ModuleType(name) for name in modules}
    rows = {name: replace(row, on_gpu=False) for name, row in library.rows.items()}
    with mock.patch.dict(sys.modules, there):
        return TorchWorker(replace(library, rows=rows))


# Attention by the worker's reference.


class Attention(torch.autograd.Function):  # type: ignore[misc]  # of no type here
    """`out` of `q, k, v, mask, cu_seqlens`, packed where there are `cu_seqlens`, and gradients."""

    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, *mask: Any) -> torch.Tensor:
        ctx.save_for_backward(q, k, v)
        ctx.mask = mask
        return _computed(q, k, v, None, *mask)[0]

    @staticmethod
    def backward(ctx: Any, dout: torch.Tensor) -> tuple[Any, ...]:
        q, k, v = ctx.saved_tensors
        return *_computed(q, k, v, dout, *ctx.mask), None, None


def attend(q: Any, k: Any, v: Any, mask: Mask, starts_q: Any = None, starts_k: Any = None) -> Any:
    """As an operator that comes with a gradient."""
    return Attention.apply(q, k, v, mask, (starts_q, starts_k))


def gradients(given: Any, mask: Mask, starts_q: Any = None, starts_k: Any = None) -> Results:
    """`dq`, `dk`, `dv`, of what forward saved of these very inputs."""
    inputs = (given.q, given.k, given.v)
    out = attend(*inputs, mask, starts_q, starts_k)
    torch.testing.assert_close(given.out, out)
    torch.testing.assert_close(given.lse, statistics(out))
    return _computed(*inputs, given.dout, mask, (starts_q, starts_k))


def statistics(out: torch.Tensor) -> torch.Tensor:
    """What stands for the logsumexp that forward leaves for backward."""
    return out.float().sum().reshape(1)


def _computed(q: Any, k: Any, v: Any, dout: Any, mask: Mask, starts: tuple[Any, Any]) -> Results:
    """`out`, or where there is a `dout` the gradients, by the worker's reference."""
    packed = starts[0] is not None
    assert q.ndim == (3 if packed else 4)
    lengths = [tuple(each.diff().tolist()) for each in starts] if packed else []
    sizes = {"batch": 1 if packed else len(q), "heads": q.shape[-2], "kv_heads": k.shape[-2]}
    sizes |= {"seq_q": q.shape[-3], "seq_k": k.shape[-3]}
    sizes |= {"head_dim": q.shape[-1], "head_dim_v": v.shape[-1]}
    direction, names = ("forward", ("out",)) if dout is None else ("both", GRADIENTS)
    wire = {"dtype": "f32", "layout": "bshd", "direction": direction, "mask": vars(mask)}
    ragged = {"varlen": dict(zip("qk", lengths, strict=True))} if packed else {}
    problem = Problem.from_wire(sizes | wire | ragged)
    inputs = {"q": q, "k": k, "v": v, "dout": dout}
    found = reference(Arrays.for_torch(CPU), problem, inputs)
    return tuple(found[name].view(problem.shape(name)).to(q.dtype) for name in names)


def flash_mask(causal: Any, left: int | None, right: int | None) -> Mask:
    """FlashAttention's arguments as a mask: from the bottom right, -1 or None unbounded."""
    left, right = (None if side is None or side < 0 else side for side in (left, right))
    return Mask(left, 0 if causal else right, "bottom-right")


def bounded(starts_q: Any, starts_k: Any, longest_q: Any, longest_k: Any) -> None:
    """Kernels size their grids by the longest sequence: a shorter one loses rows."""
    if starts_q is not None:
        of_both = ((starts_q, longest_q), (starts_k, longest_k))
        assert all(int(starts.diff().max()) == longest for starts, longest in of_both)
        assert starts_q.dtype == starts_k.dtype == torch.int32


# FlashAttention.


class Recorded:
    """What the stand-ins were last given of what does not change the values."""

    num_splits: int | None = None
    strides: tuple[int, ...] = ()


FLASH_ATTN_3 = {
    "fwd": "(Tensor q, Tensor k, Tensor v, Tensor? k_new=None, Tensor? v_new=None, "
    "Tensor? q_v=None, Tensor? out=None, Tensor? cu_seqlens_q=None, Tensor? cu_seqlens_k=None, "
    "Tensor? cu_seqlens_k_new=None, Tensor? seqused_q=None, Tensor? seqused_k=None, "
    "int? max_seqlen_q=None, int? max_seqlen_k=None, Tensor? page_table=None, "
    "Tensor? kv_batch_idx=None, Tensor? leftpad_k=None, Tensor? rotary_cos=None, "
    "Tensor? rotary_sin=None, Tensor? seqlens_rotary=None, Tensor? q_descale=None, "
    "Tensor? k_descale=None, Tensor? v_descale=None, float? softmax_scale=None, "
    "bool is_causal=False, int window_size_left=-1, int window_size_right=-1, "
    "int attention_chunk=0, float softcap=0., bool is_rotary_interleaved=False, "
    "Tensor? scheduler_metadata=None, int num_splits=0, bool? pack_gqa=None, int sm_margin=0) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
    "bwd": "(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor out, Tensor softmax_lse, "
    "Tensor? dq=None, Tensor? dk=None, Tensor? dv=None, Tensor? cu_seqlens_q=None, "
    "Tensor? cu_seqlens_k=None, Tensor? seqused_q=None, Tensor? seqused_k=None, "
    "int? max_seqlen_q=None, int? max_seqlen_k=None, float? softmax_scale=None, "
    "bool is_causal=False, int window_size_left=-1, int window_size_right=-1, "
    "float softcap=0., bool deterministic=False, int sm_margin=0) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
}
"""As release 3.0.0 declares them, less the notes on which outputs are inputs."""


def _flash(given: Any) -> Any:
    """`out` and statistics, or where a gradient is given three gradients, of the arguments of
    torch's operators or FlashAttention-3's."""

    def first(*names: str) -> Any:
        return next((getattr(given, name) for name in names if hasattr(given, name)), None)

    lengths = (first("cu_seqlens_q", "cum_seq_q"), first("cu_seqlens_k", "cum_seq_k"))
    longest = (first("max_seqlen_q", "max_q"), first("max_seqlen_k", "max_k"))
    bounded(*lengths, *longest)
    mask = flash_mask(first("is_causal"), given.window_size_left, given.window_size_right)
    q, k, v = (
        first(name, long) for name, long in zip("qkv", ("query", "key", "value"), strict=True)
    )
    given.q, given.k, given.v = q, k, v
    assert first("softmax_scale", "scale") in (None, q.shape[-1] ** -0.5)
    assert lengths[0] is not None or longest in ((None, None), (q.shape[1], k.shape[1]))
    if hasattr(given, "dout") or hasattr(given, "grad_out"):
        given.dout, given.lse = first("dout", "grad_out"), first("softmax_lse", "logsumexp")
        return gradients(given, mask, *lengths)
    Recorded.num_splits, Recorded.strides = first("num_splits"), q.stride()
    out = attend(q, k, v, mask, *lengths)
    return out, statistics(out)


def operator(schema: Any, results: int) -> Callable[..., Any]:
    """A kernel of an operator. The dispatcher gives values by position and leaves out the last ones
    that are at their defaults."""
    defaults = {argument.name: argument.default_value for argument in schema.arguments}

    def called(*arguments: Any, **named: Any) -> Any:
        given = defaults | dict(zip(defaults, arguments, strict=False)) | named
        found = _flash(SimpleNamespace(**given))
        return *found, *(found[0].new_zeros(2) for _ in range(results - len(found)))

    return called


def kernels() -> list[Any]:
    """CPU kernels of the operators, in force until they are destroyed."""
    own = torch.library.Library("aten", "IMPL")
    for name in ("forward", "backward"):
        schema = getattr(torch.ops.aten, f"_flash_attention_{name}").default._schema
        own.impl(f"_flash_attention_{name}", operator(schema, len(schema.returns)), "CPU")
    third = torch.library.Library("flash_attn_3", "DEF")
    for name, text in FLASH_ATTN_3.items():
        third.define(f"{name}{text}")
        schema = torch._C.parse_schema(f"flash_attn_3::{name}{text}")
        third.impl(name, operator(schema, len(schema.returns)), "CPU")
    return [own, third]


# torch's own of the newer kind.


def flex(
    query: Any, key: Any, value: Any, *, block_mask: Any, enable_gqa: bool, kernel_options: Any
) -> Any:
    """The same mask by SDPA: on a CPU FlexAttention has no backward."""
    mask = None
    if block_mask is not None:
        mask = create_mask(block_mask.mask_mod, 1, 1, query.shape[2], key.shape[2], CPU)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=enable_gqa)


def varlen(
    query: Any, key: Any, value: Any, cu_seq_q: Any, cu_seq_k: Any, max_q: int, max_k: int,
    window_size: tuple[int, int] = (-1, -1),
) -> Any:  # fmt: skip
    """varlen_attn by its documentation, FlashAttention's alignment with it."""
    assert int(cu_seq_q.diff().max()) <= max_q
    assert int(cu_seq_k.diff().max()) <= max_k
    return attend(query, key, value, flash_mask(False, *window_size), cu_seq_q, cu_seq_k)
