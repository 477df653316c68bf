"""FlashAttention by its generations: what calls are given, what is refused, what is found where."""

from __future__ import annotations

import contextlib
import inspect
import io
import sys
import types
from typing import Any
from unittest import mock

import pytest

import support

pytest.importorskip("torch")

import torch

import plain_attention
from plain_attention import flash_mask
from regatta_worker.libraries.flash_attn import MODULES, FlashAttnWorker
from regatta_worker.libraries.torch import TorchWorker
from regatta_worker.on_torch.library import TorchLibrary
from regatta_worker.protocol.channel import Unsupported

RAGGED = {"q": [3, 24], "k": [3, 24]}
RAGGED_CROSS = {"q": [3, 24], "k": [5, 30]}
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


class Recorded:
    """What the stand-ins were last given of what does not change the values."""

    num_splits: int | None = None
    strides: tuple[int, ...] = ()


def bounded(cu_seqlens: tuple[Any, Any], longest: tuple[Any, Any]) -> None:
    """Kernels size their grids by the longest sequence: a shorter one loses rows."""
    if cu_seqlens[0] is not None:
        assert tuple(int(bounds.diff().max()) for bounds in cu_seqlens) == longest
        assert all(bounds.dtype == torch.int32 for bounds in cu_seqlens)


def aten_forward(
    q: Any, k: Any, v: Any, cum_q: Any, cum_k: Any, max_q: Any, max_k: Any, dropout_p: Any,
    is_causal: Any, return_debug_mask: Any, *, scale: Any = None, window_size_left: Any = None,
    window_size_right: Any = None, seqused_k: Any = None, alibi_slopes: Any = None,
) -> Any:  # fmt: skip
    """`aten::_flash_attention_forward`."""
    bounded((cum_q, cum_k), (max_q, max_k))
    assert cum_q is not None or (max_q, max_k) == (q.shape[1], k.shape[1])
    Recorded.strides = q.stride()
    mask = flash_mask(is_causal, window_size_left, window_size_right)
    out = plain_attention.forward(q, k, v, mask, (cum_q, cum_k))
    return out, plain_attention.statistics(out), *(q.new_zeros(2) for _ in range(3))


def aten_backward(
    dout: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, cum_q: Any, cum_k: Any, max_q: Any,
    max_k: Any, dropout_p: Any, is_causal: Any, rng: Any, unused: Any, *, scale: Any = None,
    window_size_left: Any = None, window_size_right: Any = None,
) -> Any:  # fmt: skip
    """`aten::_flash_attention_backward`."""
    bounded((cum_q, cum_k), (max_q, max_k))
    mask = flash_mask(is_causal, window_size_left, window_size_right)
    plain_attention.of_these_inputs(out, lse, q, k, v, mask, (cum_q, cum_k))
    return plain_attention.backward(dout, q, k, v, mask, (cum_q, cum_k))


def fa3_given(name: str, *given: Any) -> dict[str, Any]:
    """What an operator of FlashAttention-3 is given, by name, and the mask that it says.

    The dispatcher hands over values by position and leaves out the last ones that are
    at their defaults.
    """
    schema = torch._C.parse_schema(f"flash_attn_3::{name}{FLASH_ATTN_3[name]}")
    named = {argument.name: argument.default_value for argument in schema.arguments}
    named |= dict(zip(named, given, strict=False))
    assert named["softmax_scale"] == named["q"].shape[-1] ** -0.5
    cu_seqlens = (named["cu_seqlens_q"], named["cu_seqlens_k"])
    bounded(cu_seqlens, (named["max_seqlen_q"], named["max_seqlen_k"]))
    window = (named["window_size_left"], named["window_size_right"])
    return named | {"mask": (flash_mask(named["is_causal"], *window), cu_seqlens)}


def fa3_fwd(*given: Any) -> Any:
    """`flash_attn_3::fwd`."""
    named = fa3_given("fwd", *given)
    q, k, v = (named[name] for name in ("q", "k", "v"))
    Recorded.num_splits, Recorded.strides = named["num_splits"], q.stride()
    out = plain_attention.forward(q, k, v, *named["mask"])
    return out, plain_attention.statistics(out), *(q.new_zeros(1) for _ in range(2))


def fa3_bwd(*given: Any) -> Any:
    """`flash_attn_3::bwd`."""
    named = fa3_given("bwd", *given)
    saved = (named[name] for name in ("out", "softmax_lse", "q", "k", "v"))
    plain_attention.of_these_inputs(*saved, *named["mask"])
    gradients = plain_attention.backward(
        *(named[name] for name in ("dout", "q", "k", "v")), *named["mask"]
    )
    return *gradients, *(named["q"].new_zeros(1) for _ in range(5))


class Differentiable(torch.autograd.Function):  # type: ignore[misc]  # of no type here
    """The stand-in of FlashAttention-2's public functions, which come with a gradient."""

    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, *mask: Any) -> torch.Tensor:
        ctx.save_for_backward(q, k, v)
        ctx.mask = mask
        return plain_attention.forward(q, k, v, *mask)

    @staticmethod
    def backward(ctx: Any, dout: torch.Tensor) -> tuple[Any, ...]:
        return *plain_attention.backward(dout, *ctx.saved_tensors, *ctx.mask), None, None


def flash_attn_func(
    q: Any, k: Any, v: Any, dropout_p: Any = 0.0, softmax_scale: Any = None, causal: Any = False,
    window_size: Any = (-1, -1), softcap: Any = 0.0, alibi_slopes: Any = None,
    deterministic: Any = False, return_attn_probs: Any = False,
) -> Any:  # fmt: skip
    """As flash_attn 2.8 has it."""
    return Differentiable.apply(q, k, v, flash_mask(causal, *window_size), (None, None))


def flash_attn_varlen_func(
    q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: Any,
    max_seqlen_k: Any, dropout_p: Any = 0.0, softmax_scale: Any = None, causal: Any = False,
    window_size: Any = (-1, -1), softcap: Any = 0.0, alibi_slopes: Any = None,
    deterministic: Any = False, return_attn_probs: Any = False, block_table: Any = None,
) -> Any:  # fmt: skip
    """As flash_attn 2.8 has it."""
    bounded((cu_seqlens_q, cu_seqlens_k), (max_seqlen_q, max_seqlen_k))
    mask = flash_mask(causal, *window_size)
    return Differentiable.apply(q, k, v, mask, (cu_seqlens_q, cu_seqlens_k))


def _flash_attn_fwd(
    q: Any, k: Any, v: Any, qv: Any = None, cu_seqlens_q: Any = None, cu_seqlens_k: Any = None,
    seqused_q: Any = None, seqused_k: Any = None, max_seqlen_q: Any = None,
    max_seqlen_k: Any = None, min_seqlen_k: Any = None, page_table: Any = None,
    softmax_scale: Any = None, causal: Any = False, softcap: Any = None,
    window_size_left: Any = None, window_size_right: Any = None, learnable_sink: Any = None,
    tile_mn: Any = None, mma_pv_is_rs: Any = None, intra_wg_overlap: Any = None,
    num_threads: Any = 384, num_splits: Any = 1, pack_gqa: Any = None, _arch: Any = None,
    score_mod: Any = None, mask_mod: Any = None, block_sparse_tensors: Any = None,
    return_lse: Any = False, out: Any = None, lse: Any = None, aux_tensors: Any = None,
    q_descale: Any = None, k_descale: Any = None, v_descale: Any = None,
    gather_kv_indices: Any = None,
) -> Any:  # fmt: skip
    """As flash_attn.cute 4.0.0b15 has it."""
    # -1 is a window there, which ends before the query itself.
    assert all(side is None or side >= 0 for side in (window_size_left, window_size_right))
    bounded((cu_seqlens_q, cu_seqlens_k), (max_seqlen_q, max_seqlen_k))
    mask = flash_mask(causal, window_size_left, window_size_right)
    out = plain_attention.forward(q, k, v, mask, (cu_seqlens_q, cu_seqlens_k))
    return out, plain_attention.statistics(out) if return_lse else None


def _flash_attn_bwd(
    q: Any, k: Any, v: Any, out: Any, dout: Any, lse: Any, softmax_scale: Any = None,
    causal: Any = False, softcap: Any = 0.0, window_size_left: Any = None,
    window_size_right: Any = None, m_block_size: Any = 64, n_block_size: Any = 128,
    num_threads: Any = 256, pack_gqa: Any = False, num_stages_Q: Any = 2, num_stages_dO: Any = 2,
    SdP_swapAB: Any = False, dKV_swapAB: Any = False, dQ_swapAB: Any = False,
    AtomLayoutMSdP: Any = 2, AtomLayoutNdKV: Any = 2, AtomLayoutMdQ: Any = 2,
    V_in_regs: Any = False, cu_seqlens_q: Any = None, cu_seqlens_k: Any = None,
    seqused_q: Any = None, seqused_k: Any = None, max_seqlen_q: Any = None,
    max_seqlen_k: Any = None, deterministic: Any = False, dq: Any = None, dk: Any = None,
    dv: Any = None, score_mod: Any = None, score_mod_bwd: Any = None, mask_mod: Any = None,
    aux_tensors: Any = None, block_sparse_tensors: Any = None, dlse: Any = None,
) -> Any:  # fmt: skip
    """As flash_attn.cute 4.0.0b15 has it."""
    mask = flash_mask(causal, window_size_left, window_size_right)
    plain_attention.of_these_inputs(out, lse, q, k, v, mask, (cu_seqlens_q, cu_seqlens_k))
    return plain_attention.backward(dout, q, k, v, mask, (cu_seqlens_q, cu_seqlens_k))


def stand_ins() -> dict[str, types.ModuleType]:
    """The modules of the three generations, by the names they are imported under."""
    second = types.ModuleType("flash_attn.flash_attn_interface")
    vars(second).update(
        flash_attn_func=flash_attn_func, flash_attn_varlen_func=flash_attn_varlen_func
    )
    fourth = types.ModuleType("flash_attn.cute.interface")
    vars(fourth).update(_flash_attn_fwd=_flash_attn_fwd, _flash_attn_bwd=_flash_attn_bwd)
    parents = (types.ModuleType(name) for name in ("flash_attn", "flash_attn.cute"))
    third = types.ModuleType("flash_attn_interface")
    return {module.__name__: module for module in (*parents, second, third, fourth)}


def kernels() -> list[torch.library.Library]:
    """CPU kernels of the operators, in force while they are held."""
    aten = torch.library.Library("aten", "IMPL")
    aten.impl("_flash_attention_forward", aten_forward, "CPU")
    aten.impl("_flash_attention_backward", aten_backward, "CPU")
    third = torch.library.Library("flash_attn_3", "DEF")
    for name, kernel in (("fwd", fa3_fwd), ("bwd", fa3_bwd)):
        third.define(f"{name}{FLASH_ATTN_3[name]}")
        third.impl(name, kernel, "CPU")
    return [aten, third]


EVERY = pytest.mark.parametrize("variant", ["flash", "fa2", "fa3", "fa4"])


class TestByValue:
    """Each call with its kernel replaced by attention's definition, held to the reference."""

    libraries: list[torch.library.Library]
    generations: FlashAttnWorker
    torch: TorchWorker
    worker: TorchLibrary

    @classmethod
    def setup_class(cls) -> None:
        cls.libraries = kernels()
        with mock.patch.dict(sys.modules, stand_ins()):
            cls.generations = FlashAttnWorker()
        cls.torch = TorchWorker()

    @classmethod
    def teardown_class(cls) -> None:
        for library in cls.libraries:
            library._destroy()

    def prepare(self, variant: str, params: Any = None, **axes: Any) -> dict[str, Any]:
        self.worker = self.torch if variant == "flash" else self.generations
        request = {"variant": variant, "seed": 42, "params": params or {}}
        request |= {"problem": support.wire(**axes), "input_sets": support.SETS}
        return self.worker.prepare(request)

    def right(self, variant: str, params: Any = None, **axes: Any) -> dict[str, Any]:
        prepared = self.prepare(variant, params, **axes)
        support.right(prepared, 1e-6)
        support.right_after_timing(self.worker.measure(support.PLAN), 1e-6, prepared)
        return prepared

    @EVERY
    def test_masks_layouts_and_shared_heads(self, variant: str) -> None:
        window = {"left": 5, "right": 2, "align": "bottom-right"}
        behind = {"left": 3, "right": 0, "align": "bottom-right"}
        ahead = {"left": None, "right": 4, "align": "bottom-right"}
        for mask in (support.FULL, support.CAUSAL_BR, window, behind, ahead):
            for layout, direction in (("bshd", "both"), ("bhsd", "backward")):
                axes = {"mask": mask, "layout": layout, "direction": direction}
                self.right(variant, kv_heads=2, seq_q=20, seq_k=24, **axes)
        self.right(variant, mask=support.CAUSAL, kv_heads=1)

    @EVERY
    def test_packed_batches(self, variant: str) -> None:
        for ragged, mask in (
            (RAGGED, support.CAUSAL),
            (RAGGED_CROSS, support.CAUSAL_BR),
            (RAGGED_CROSS, support.FULL),
        ):
            lengths = {"seq_q": max(ragged["q"]), "seq_k": max(ragged["k"])}
            axes = {"varlen": ragged, "mask": mask, "direction": "both"} | lengths
            self.right(variant, kv_heads=2, **axes)

    @EVERY
    def test_a_diagonal_from_the_top_left_is_refused(self, variant: str) -> None:
        for axes in (
            {"seq_q": 9, "seq_k": 24},
            {"varlen": RAGGED_CROSS, "seq_q": 24, "seq_k": 30},
        ):
            with pytest.raises(Unsupported, match="at the bottom right"):
                self.prepare(variant, mask=support.CAUSAL, **axes)

    @EVERY
    def test_needless_copies_reorder_and_come_back(self, variant: str) -> None:
        for layout in ("bhsd", "bshd"):
            copies = {"access": "copies"}
            prepared = self.right(variant, copies, layout=layout, direction="both")
            assert prepared["effective"] == copies
        if variant in ("flash", "fa3"):
            axes = {"batch": 1, "seq_q": 8, "heads": 4, "head_dim": 16, "layout": "bhsd"}
            self.right(variant, **axes)
            assert Recorded.strides[1:] == (16, 128, 1)
            self.right(variant, {"access": "copies"}, **axes)
            assert Recorded.strides[1:] == (64, 16, 1)
            assert self.worker.call()[0].transpose(1, 2).is_contiguous()

    def test_num_splits_is_of_forward(self) -> None:
        for asked, effective in ((None, None), (4, 4), (1, 1), (0, None), (-1, None)):
            params = {} if asked is None else {"num_splits": asked}
            found = self.right("fa3", params)["effective"]
            assert found.get("num_splits") == effective
            assert Recorded.num_splits == (asked or 0)
        with pytest.raises(Unsupported, match="bwd has no num_splits"):
            self.prepare("fa3", {"num_splits": 4}, direction="backward")

    def test_only_autograd_takes_the_stream_of_forward(self) -> None:
        for variant, earlier in (("fa2", True), ("fa3", False), ("fa4", False)):
            self.right(variant, direction="backward")
            assert self.generations._prepared().built.earlier_stream == earlier


@pytest.mark.skipif(
    not support.installed("flash_attn_interface"), reason="FlashAttention-3 is not installed"
)
class TestRealOperators:
    def test_the_stand_ins_have_their_parameters(self) -> None:
        import flash_attn_interface  # noqa: F401  (registers the operators)

        for name, declared in FLASH_ATTN_3.items():
            theirs = getattr(torch.ops.flash_attn_3, name).default._schema
            ours = torch._C.parse_schema(f"flash_attn_3::{name}{declared}")
            assert [(argument.name, argument.type) for argument in theirs.arguments] == [
                (argument.name, argument.type) for argument in ours.arguments
            ]
            assert len(theirs.returns) == len(ours.returns)


class TestTorchsOperators:
    def test_arguments_of_the_stand_ins_are_the_schemas(self) -> None:
        for name, kernel in (
            ("_flash_attention_forward", aten_forward),
            ("_flash_attention_backward", aten_backward),
        ):
            schema = getattr(torch.ops.aten, name).default._schema
            assert len(schema.arguments) == len(inspect.signature(kernel).parameters)


class TestGenerations:
    """Where each is found: modules of these names, with nothing in them, in place of packages."""

    def loaded(self, *modules: str) -> FlashAttnWorker:
        every = {name: None for names in MODULES.values() for name in names}
        there = {module: types.ModuleType(module) for module in modules}
        with (
            mock.patch.dict(sys.modules, every | there),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            return FlashAttnWorker()

    def test_xformers_copy_of_fa3_does_where_the_package_is_not_there(self) -> None:
        with mock.patch.object(
            torch.ops, "flash_attn_3", types.SimpleNamespace(fwd=None), create=True
        ):
            worker = self.loaded("xformers.ops.fmha.flash3")
        assert list(worker._modules) == ["fa3"]
        assert list(worker._missing) == ["fa2", "fa4"]
        assert "absent" not in worker.hello()

    def test_a_module_that_registers_nothing_is_none(self) -> None:
        empty = types.SimpleNamespace()
        with mock.patch.object(torch.ops, "flash_attn_3", empty, create=True):
            worker = self.loaded("xformers.ops.fmha.flash3", "flash_attn.cute.interface")
        assert list(worker._modules) == ["fa4"]
        assert "flash_attn_interface cannot be imported" in worker._missing["fa3"]
        assert "it registers no operator" in worker._missing["fa3"]
