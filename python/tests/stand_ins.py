"""Libraries that need a GPU, with their kernels replaced by attention's definition in float64.

Each takes its arguments under the names that the release declares, and masks as the kernels are
given them, so that a wrong argument is a wrong value.
"""

from __future__ import annotations

import enum
import inspect
import math
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

from regatta_worker.on_torch.case import starts
from regatta_worker.on_torch.library import Library, TorchWorker
from regatta_worker.problem.attention import Mask

Results = tuple[torch.Tensor, ...]

CPU = torch.device("cpu")


def served(library: Library, **modules: Any) -> TorchWorker:
    """A worker of the library on the CPU, whose modules these are; `__` stands for a dot."""
    there = {name.replace("__", "."): module for name, module in modules.items()}
    for name in list(there):
        for end in range(name.count(".")):
            parent = ".".join(name.split(".")[: end + 1])
            there.setdefault(parent, types.ModuleType(parent))
    rows = {name: replace(row, on_gpu=False) for name, row in library.rows.items()}
    with mock.patch.dict(sys.modules, there):
        return TorchWorker(replace(library, rows=rows))


def module(**members: Any) -> Any:
    """A module of these members."""
    made = types.ModuleType("stand_in")
    vars(made).update(members)
    return made


def declared(names: str, compute: Callable[[Any], Any], **defaults: Any) -> Callable[..., Any]:
    """A function of these parameters alone, which computes with what it was given."""
    parameters = names.split()

    def called(*arguments: Any, **named: Any) -> Any:
        assert set(named) <= set(parameters[len(arguments) :]), named
        given = dict(zip(parameters, arguments, strict=False)) | named
        return compute(SimpleNamespace(**{**dict.fromkeys(parameters), **defaults, **given}))

    kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD
    of = [inspect.Parameter(name, kinds) for name in parameters]
    called.__signature__ = inspect.Signature(of)  # type: ignore[attr-defined]
    return called


# Attention by its definition.


class Attention(torch.autograd.Function):  # type: ignore[misc]  # of no type here
    """`out` of `q, k, v, mask, cu_seqlens`, packed where there are `cu_seqlens`, and gradients."""

    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, *mask: Any) -> torch.Tensor:
        ctx.save_for_backward(q, k, v)
        ctx.mask = mask
        return _each((q, k, v, None), *mask)[0]

    @staticmethod
    def backward(ctx: Any, dout: torch.Tensor) -> tuple[Any, ...]:
        return *_each((*ctx.saved_tensors, dout), *ctx.mask), None, None


def attend(q: Any, k: Any, v: Any, mask: Mask, starts_q: Any = None, starts_k: Any = None) -> Any:
    """As an operator that comes with a gradient."""
    return Attention.apply(q, k, v, mask, (starts_q, starts_k))


def gradients(given: Any, mask: Mask, starts_q: Any = None, starts_k: Any = None) -> Results:
    """`dq`, `dk`, `dv`, of what forward saved of these very inputs."""
    inputs = (given.q, given.k, given.v)
    out = attend(*inputs, mask, starts_q, starts_k)
    torch.testing.assert_close(given.out, out)
    torch.testing.assert_close(given.lse, statistics(out))
    return _each((*inputs, given.dout), mask, (starts_q, starts_k))


def statistics(out: torch.Tensor) -> torch.Tensor:
    """What stands for the logsumexp that forward leaves for backward."""
    return out.float().sum().reshape(1)


def _each(tensors: Any, mask: Mask, cu_seqlens: tuple[Any, Any]) -> Results:
    """Sequence by sequence, each `[seq, heads, width]`."""
    q, k, v, dout = tensors
    if cu_seqlens[0] is None:
        assert q.ndim == 4
        douts = [None] * len(q) if dout is None else dout
        parts = [_one(*part, mask) for part in zip(q, k, v, douts, strict=True)]
        return tuple(torch.stack(results) for results in zip(*parts, strict=True))
    assert q.ndim == 3
    lengths_q, lengths_k = (bounds.diff().tolist() for bounds in cu_seqlens)
    douts = [None] * len(lengths_q) if dout is None else dout.split(lengths_q)
    split = (q.split(lengths_q), k.split(lengths_k), v.split(lengths_k), douts)
    parts = [_one(*part, mask) for part in zip(*split, strict=True)]
    return tuple(torch.cat(results) for results in zip(*parts, strict=True))


def _one(q: Any, k: Any, v: Any, dout: Any, mask: Mask) -> Results:
    dtype, kv_heads, group = q.dtype, k.shape[1], q.shape[1] // k.shape[1]
    q, k, v = (x.double().transpose(0, 1) for x in (q, k, v))
    k, v = (x.repeat_interleave(group, dim=0) for x in (k, v))
    p, _ = _softmax(q, k, q.shape[-1] ** -0.5, mask)
    out = p @ v
    if dout is None:
        return (out.transpose(0, 1).to(dtype),)
    dout = dout.double().transpose(0, 1)
    ds = p * (dout @ v.mT - (dout * out).sum(-1, keepdim=True)) * q.shape[-1] ** -0.5
    dk, dv = (x.unflatten(0, (kv_heads, group)).sum(1) for x in (ds.mT @ q, p.mT @ dout))
    return tuple(x.transpose(0, 1).to(dtype) for x in (ds @ k, dk, dv))


def _softmax(q: Any, k: Any, scale: float, mask: Mask) -> Results:
    """The weights, and the logsumexp of the scores, of `[..., seq, width]`."""
    seq_q, seq_k = q.shape[-2], k.shape[-2]
    rows, columns = torch.arange(seq_q)[:, None], torch.arange(seq_k)[None, :]
    seen = mask.visible(rows, columns, mask.offset(seq_q, seq_k))
    scores = (q @ k.mT * scale).masked_fill(~seen, -math.inf)
    return scores.softmax(-1).nan_to_num(), scores.logsumexp(-1, keepdim=True)


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
    """Forward, or where it is given a gradient backward, in the arguments of any generation: `out`
    and statistics, or three gradients."""

    def first(*names: str) -> Any:
        return next((getattr(given, name) for name in names if hasattr(given, name)), None)

    lengths = (first("cu_seqlens_q", "cum_seq_q"), first("cu_seqlens_k", "cum_seq_k"))
    longest = (first("max_seqlen_q", "max_q"), first("max_seqlen_k", "max_k"))
    bounded(*lengths, *longest)
    window = first("window_size") or (given.window_size_left, given.window_size_right)
    mask = flash_mask(first("causal", "is_causal"), *window)
    q, k, v = (
        first(name, long) for name, long in zip("qkv", ("query", "key", "value"), strict=True)
    )
    given.q, given.k, given.v = q, k, v
    assert first("softmax_scale", "scale") in (None, q.shape[-1] ** -0.5)
    assert lengths[0] is not None or longest in ((None, None), (q.shape[1], k.shape[1]))
    if hasattr(given, "dout") or hasattr(given, "grad_out"):
        given.dout, given.lse = first("dout", "grad_out"), first("lse", "softmax_lse", "logsumexp")
        return gradients(given, mask, *lengths)
    Recorded.num_splits, Recorded.strides = first("num_splits"), q.stride()
    out = attend(q, k, v, mask, *lengths)
    return out, statistics(out)


def operator(schema: Any, results: int) -> Callable[..., Any]:
    """A kernel of an operator. The dispatcher gives values by position and leaves out the last ones
    that are at their defaults."""
    defaults = {argument.name: argument.default_value for argument in schema.arguments}

    def compute(given: Any) -> Any:
        found = _flash(given)
        return *found, *(given.q.new_zeros(2) for _ in range(results - len(found)))

    return declared(" ".join(defaults), compute, **defaults)


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


def _fa4(given: Any) -> Any:
    # -1 is a window there, which ends before the query itself.
    window = (given.window_size_left, given.window_size_right)
    assert all(side is None or side >= 0 for side in window)
    return _flash(given)


_FA2 = "dropout_p softmax_scale causal window_size softcap alibi_slopes deterministic"
FLASH_ATTN_2 = module(  # As flash_attn 2.8 has it.
    flash_attn_func=declared(
        f"q k v {_FA2} return_attn_probs", lambda given: _flash(given)[0], window_size=(-1, -1)
    ),
    flash_attn_varlen_func=declared(
        f"q k v cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k {_FA2} return_attn_probs "
        "block_table",
        lambda given: _flash(given)[0],
        window_size=(-1, -1),
    ),
)
FLASH_ATTN_4 = module(  # As flash_attn.cute 4.0.0b15 has it.
    _flash_attn_fwd=declared(
        "q k v qv cu_seqlens_q cu_seqlens_k seqused_q seqused_k max_seqlen_q max_seqlen_k "
        "min_seqlen_k page_table softmax_scale causal softcap window_size_left window_size_right "
        "learnable_sink tile_mn mma_pv_is_rs intra_wg_overlap num_threads num_splits pack_gqa "
        "_arch score_mod mask_mod block_sparse_tensors return_lse out lse aux_tensors q_descale "
        "k_descale v_descale gather_kv_indices",
        _fa4,
    ),
    _flash_attn_bwd=declared(
        "q k v out dout lse softmax_scale causal softcap window_size_left window_size_right "
        "m_block_size n_block_size num_threads pack_gqa num_stages_Q num_stages_dO SdP_swapAB "
        "dKV_swapAB dQ_swapAB AtomLayoutMSdP AtomLayoutNdKV AtomLayoutMdQ V_in_regs cu_seqlens_q "
        "cu_seqlens_k seqused_q seqused_k max_seqlen_q max_seqlen_k deterministic dq dk dv "
        "score_mod score_mod_bwd mask_mod aux_tensors block_sparse_tensors dlse",
        _fa4,
    ),
)


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


# flash-linear-attention.


def _fla(given: Any) -> Any:
    q, k, v, starts_k = given.q, given.k, given.v, given.cu_seqlens
    unused = set(vars(given)) - {"q", "k", "v", "cu_seqlens", "window_size"}
    assert all(getattr(given, name) is None for name in unused)
    assert q.ndim == 4
    assert q.shape[2] % k.shape[2] == 0
    window = getattr(given, "window_size", None)
    mask = Mask(None if window is None else window - 1, 0, "top-left")
    if starts_k is None:
        assert q.shape[1] == k.shape[1]
        return attend(q, k, v, mask)
    assert len(q) == 1
    assert starts_k.dtype == torch.int64
    return attend(q[0], k[0], v[0], mask, starts_k, starts_k).unsqueeze(0)


FLA = {  # By the first release that declares it so; 0.4.2 adds `chunk_indices`.
    "0.3.2": declared("q k v g scale cu_seqlens head_first", _fla),
    "0.5.0": declared("q k v g scale window_size cu_seqlens chunk_indices sink_bias", _fla),
}


# FlashInfer.


class Wrapper:
    """What FlashInfer's wrappers share: a workspace, a layout, and a plan before each run."""

    PLAN = ""

    def __init__(self, float_workspace_buffer: torch.Tensor, kv_layout: str, **given: Any) -> None:
        assert float_workspace_buffer.dtype == torch.uint8
        assert kv_layout == "NHD"
        self.plans = 0
        names = f"num_qo_heads num_kv_heads head_dim_qk {self.PLAN} head_dim_vo causal window_left "
        names += "q_data_type kv_data_type fixed_split_size disable_split_kv"
        self.plan = declared(f"{self.ROWS} {names}", self._plan)
        Wrapper.last = self

    ROWS = "qo_indptr kv_indptr"
    last: Wrapper

    def _plan(self, given: Any) -> None:
        self.plans += 1
        self.given, self.mask = given, flash_mask(given.causal, given.window_left, -1)
        # Of decoding, where there is one query a sequence.
        one_each = torch.arange(len(given.kv_indptr), dtype=torch.int32)
        self.starts = getattr(given, "qo_indptr", one_each), given.kv_indptr
        assert all(bounds.dtype == torch.int32 for bounds in self.starts)

    def run(self, q: torch.Tensor, *kv: Any) -> torch.Tensor:
        k, v = kv
        return attend(q, k, v, self.mask, *self.starts)


class Paged(Wrapper):
    ROWS = "qo_indptr kv_indptr indices last_page_len"
    PLAN = "page_size"

    def run(self, q: torch.Tensor, *kv: Any) -> torch.Tensor:
        """Over the keys and values of each sequence, out of their pages."""
        given, lengths, found = self.given, [], []
        ends = given.kv_indptr.tolist()
        used = given.last_page_len.tolist()
        for first, end, last in zip(ends[:-1], ends[1:], used, strict=True):
            pages = given.indices[first:end].long()
            lengths.append((len(pages) - 1) * given.page_size + last)
            found.append([x[pages].flatten(0, 1)[: lengths[-1]] for x in kv[0]])
        k, v = (torch.cat(parts) for parts in zip(*found, strict=True))
        return attend(q, k, v, self.mask, self.starts[0], starts(lengths))


class Decode(Paged):
    ROWS = "kv_indptr indices last_page_len"


def _single(given: Any) -> Any:
    assert given.kv_layout == "NHD"
    mask = flash_mask(given.causal, given.window_left, -1)
    return attend(given.q[None], given.k[None], given.v[None], mask)[0]


FLASHINFER = module(
    single_prefill_with_kv_cache=declared("q k v causal kv_layout window_left backend", _single),
    BatchPrefillWithRaggedKVCacheWrapper=Wrapper,
    BatchPrefillWithPagedKVCacheWrapper=Paged,
    BatchDecodeWithPagedKVCacheWrapper=Decode,
)


# cuDNN's frontend.


class Alignment(enum.Enum):
    TOP_LEFT = 0
    BOTTOM_RIGHT = 1


class End:
    """A tensor of a graph: dimensions and strides, no data."""

    def __init__(self, dim: Any = None, stride: Any = None, data_type: Any = None) -> None:
        self.dim, self.stride, self.data_type, self.output = dim, stride, data_type, False

    def __getattr__(self, name: str) -> Any:
        """`set_output` and the others, each of which gives the tensor back."""
        if not name.startswith("set_"):
            raise AttributeError(name)

        def put(value: Any) -> End:
            setattr(self, name.removeprefix("set_"), value)
            return self

        return put


STEPS = ["validate", "build_operation_graph", "create_execution_plans", "check_support"]


class Graph:
    """The frontend's `pygraph`, which computes with torch what it was described to."""

    made = 0

    def __init__(self, **given: Any) -> None:
        assert given["handle"] == "handle"
        assert given["compute_data_type"] == "FLOAT"
        Graph.made += 1
        self.steps: list[str] = []

    def tensor(self, *, name: str, dim: Any, stride: Any, data_type: Any) -> End:
        return End(dim, stride, data_type)

    def sdpa(self, q: End, k: End, v: End, *, generate_stats: bool, **options: Any) -> list[Any]:
        self.ends: tuple[End, ...] = (q, k, v)
        self.outputs, self.options = [End()], options
        self.outputs += [End()] if generate_stats else []
        return [self.outputs[0], self.outputs[1] if generate_stats else None]

    def sdpa_backward(
        self, q: End, k: End, v: End, o: End, dO: End, stats: End, **options: Any
    ) -> list[End]:
        self.ends, self.options = (q, k, v, o, dO, stats), options
        self.outputs = [End(), End(), End()]
        return self.outputs

    def __getattr__(self, name: str) -> Any:
        """The steps of building it, in their order."""
        if name not in (*STEPS, "build_plans"):
            raise AttributeError(name)
        return lambda *given: self._step(name)

    def _step(self, name: str) -> None:
        self.steps.append(name)
        if name == "build_plans":
            assert self.steps == [*STEPS, name]
            self._plan_index = 1

    def get_plan_name_at_index(self, index: int) -> str:
        return f"eng{index}_k24=13"

    def get_workspace_size(self) -> int:
        return 0

    def execute(self, bound: dict[End, torch.Tensor], workspace: Any, handle: Any) -> None:
        assert handle == "handle"
        assert workspace.numel() > 0
        assert "build_plans" in self.steps
        assert set(bound) == {*self.ends, *self.outputs}
        assert all(end.output for end in self.outputs)
        for end, tensor in bound.items():
            if end.stride is not None:
                assert list(tensor.shape) == end.dim
                assert list(tensor.stride()) == end.stride
        q, k, v = (bound[end].detach().requires_grad_() for end in self.ends[:3])
        values = out, logsumexp = _cudnn(q, k, v, **self.options)
        if len(self.ends) > 3:
            _, _, _, saved, dout, stats = (bound[end] for end in self.ends)
            torch.testing.assert_close(saved, out)
            torch.testing.assert_close(stats, logsumexp)
            values = torch.autograd.grad(out, (q, k, v), dout)
        for end, value in zip(self.outputs, values, strict=False):
            bound[end].copy_(value.detach())


def _cudnn(
    q: Any, k: Any, v: Any, *, attn_scale: float, name: str, diagonal_alignment: Any = None,
    diagonal_band_left_bound: int | None = None, diagonal_band_right_bound: int | None = None,
) -> Results:  # fmt: skip
    """By the rules of the frontend: the left bound is the first distance that is hidden."""
    left = None if diagonal_band_left_bound is None else diagonal_band_left_bound - 1
    align = "bottom-right" if diagonal_alignment is Alignment.BOTTOM_RIGHT else "top-left"
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
    p, logsumexp = _softmax(q, k, attn_scale, Mask(left, diagonal_band_right_bound, align))
    return p @ v, logsumexp


CUDNN = module(
    pygraph=Graph,
    create_handle=lambda: "handle",
    set_stream=lambda handle, stream: None,
    backend_version=lambda: 91900,
    cudnnGraphNotSupportedError=NotImplementedError,
    data_type=SimpleNamespace(FLOAT="FLOAT", HALF="HALF", BFLOAT16="BFLOAT16"),
    heur_mode=SimpleNamespace(A="A", FALLBACK="FALLBACK"),
    diagonal_alignment=Alignment,
)
