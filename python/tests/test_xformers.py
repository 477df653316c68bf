"""xFormers: the package itself, where it is installed, over kernels that need no GPU."""

from __future__ import annotations

import contextlib
from typing import Any
from unittest import mock

import pytest

import support

pytest.importorskip("torch")

import torch

import plain_attention
from plain_attention import flash_mask
from regatta_worker.libraries.xformers import XformersWorker, _sentinel
from regatta_worker.problem.attention import Mask
from regatta_worker.protocol.channel import Unsupported

INSTALLED = support.installed("xformers")
RAGGED = {"q": [3, 24], "k": [3, 24]}
RAGGED_CROSS = {"q": [3, 24], "k": [5, 30]}
TOLERANCE = {"f32": 1e-6, "f16": 2e-3}


class Recorded:
    """What the CUTLASS backward was last given."""

    num_splits_key: Any = "never called"


def efficient_mask(custom_mask_type: int, window_size: int | None) -> Mask:
    """What `aten::_efficient_attention_forward` makes of these two."""
    left = None if window_size is None else window_size - 1
    align = "bottom-right" if custom_mask_type == 2 else "top-left"
    return Mask(left, 0 if custom_mask_type else None, align)


def _packed(cu_seqlens: Any, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tensors if cu_seqlens is None else tuple(x.squeeze(0) for x in tensors)


def efficient_forward(
    query: Any, key: Any, value: Any, bias: Any, cu_seqlens_q: Any, cu_seqlens_k: Any,
    max_seqlen_q: Any, max_seqlen_k: Any, dropout_p: Any, custom_mask_type: Any,
    compute_log_sumexp: Any = False, *, scale: Any = None, seqlen_k: Any = None,
    window_size: Any = None,
) -> Any:  # fmt: skip
    """`aten::_efficient_attention_forward`."""
    mask = efficient_mask(custom_mask_type, window_size)
    cu_seqlens = (cu_seqlens_q, cu_seqlens_k)
    q, k, v = _packed(cu_seqlens_q, query, key, value)
    out = plain_attention.forward(q, k, v, mask, cu_seqlens)
    rows, longest = len(query), query.shape[1]
    if cu_seqlens_q is not None:
        out, rows, longest = out.unsqueeze(0), len(cu_seqlens_q) - 1, max_seqlen_q
    logsumexp = torch.zeros(rows, query.shape[2], longest)
    logsumexp += plain_attention.statistics(out)
    return out, logsumexp, torch.zeros(1), torch.zeros(1), max_seqlen_q, max_seqlen_k


def efficient_backward(
    grad_out: Any, query: Any, key: Any, value: Any, bias: Any, out: Any, cu_seqlens_q: Any,
    cu_seqlens_k: Any, max_seqlen_q: Any, max_seqlen_k: Any, logsumexp: Any, dropout_p: Any,
    philox_seed: Any, philox_offset: Any, custom_mask_type: Any, bias_requires_grad: Any, *,
    scale: Any = None, num_splits_key: Any = None, window_size: Any = None,
    shared_storage_dqdkdv: Any = False,
) -> Any:  # fmt: skip
    """`aten::_efficient_attention_backward`."""
    Recorded.num_splits_key = num_splits_key
    mask = efficient_mask(custom_mask_type, window_size)
    cu_seqlens = (cu_seqlens_q, cu_seqlens_k)
    dout, q, k, v = _packed(cu_seqlens_q, grad_out, query, key, value)
    (plain_out,) = _packed(cu_seqlens_q, out)
    saved = logsumexp.reshape(-1)[:1]
    plain_attention.of_these_inputs(plain_out, saved, q, k, v, mask, cu_seqlens)
    gradients = plain_attention.backward(dout, q, k, v, mask, cu_seqlens)
    if cu_seqlens_q is not None:
        gradients = tuple(x.unsqueeze(0) for x in gradients)
    return *gradients, torch.zeros(0)


def _logsumexp(query: torch.Tensor) -> torch.Tensor:
    return torch.zeros(*query.shape[:-3], query.shape[-2], query.shape[-3])


def flash_forward(
    query: Any, key: Any, value: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, seqused_k: Any,
    max_seqlen_q: Any, max_seqlen_k: Any, p: Any, softmax_scale: Any, is_causal: Any,
    window_left: Any, window_right: Any, return_softmax: Any, block_tables: Any,
) -> Any:  # fmt: skip
    """`xformers_flash::flash_fwd`."""
    mask = flash_mask(is_causal, window_left, window_right)
    cu_seqlens = (cu_seqlens_q, cu_seqlens_k)
    out = plain_attention.forward(query, key, value, mask, cu_seqlens)
    return out, _logsumexp(query), torch.zeros(2, dtype=torch.int64)


def flash_backward(
    grads_share_storage: Any, grad: Any, query: Any, key: Any, value: Any, out: Any, lse: Any,
    cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: Any, max_seqlen_k: Any, p: Any,
    softmax_scale: Any, is_causal: Any, window_left: Any, window_right: Any, rng_state: Any,
) -> Any:  # fmt: skip
    """`xformers_flash::flash_bwd`."""
    mask = flash_mask(is_causal, window_left, window_right)
    cu_seqlens = (cu_seqlens_q, cu_seqlens_k)
    return plain_attention.backward(grad, query, key, value, mask, cu_seqlens)


def flash3_forward(
    query: Any, key: Any, value: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, seqused_k: Any,
    leftpad_k: Any, max_seqlen_q: Any, max_seqlen_k: Any, p: Any, softmax_scale: Any,
    is_causal: Any, descale_q: Any = None, descale_k: Any = None, descale_v: Any = None,
    block_table: Any = None, use_kvsplit: Any = False, window_left: Any = -1,
    window_right: Any = -1,
) -> Any:  # fmt: skip
    """`xformers_flash3::flash_fwd`."""
    mask = flash_mask(is_causal, window_left, window_right)
    cu_seqlens = (cu_seqlens_q, cu_seqlens_k)
    return plain_attention.forward(query, key, value, mask, cu_seqlens), _logsumexp(query)


def flash3_backward(
    grads_share_storage: Any, dout: Any, query: Any, key: Any, value: Any, out: Any,
    softmax_lse: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: Any, max_seqlen_k: Any,
    softmax_scale: Any, is_causal: Any, window_left: Any, window_right: Any,
) -> Any:  # fmt: skip
    """`xformers_flash3::flash_bwd`."""
    mask = flash_mask(is_causal, window_left, window_right)
    cu_seqlens = (cu_seqlens_q, cu_seqlens_k)
    return plain_attention.backward(dout, query, key, value, mask, cu_seqlens)


def on_the_cpu(fmha: Any) -> contextlib.ExitStack:
    """xFormers with kernels that run here, until closed; all else is the package's own."""
    held = contextlib.ExitStack()
    aten = torch.library.Library("aten", "IMPL")
    held.callback(aten._destroy)
    aten.impl("_efficient_attention_forward", efficient_forward, "CPU")
    aten.impl("_efficient_attention_backward", efficient_backward, "CPU")
    for namespace, forward, backward in (
        ("xformers_flash", flash_forward, flash_backward),
        ("xformers_flash3", flash3_forward, flash3_backward),
    ):
        if hasattr(getattr(torch.ops, namespace), "flash_fwd"):
            torch.library.register_kernel(f"{namespace}::flash_fwd", "cpu", forward)
            torch.library.register_kernel(f"{namespace}::flash_bwd", "cpu", backward)
    for operators in (fmha.cutlass, fmha.flash, fmha.flash3):
        for operator in (operators.FwOp, operators.BwOp):
            held.enter_context(mock.patch.object(operator, "SUPPORTED_DEVICES", {"cpu"}))
    held.enter_context(mock.patch("torch.cuda.get_device_capability", lambda device=None: (9, 0)))
    return held


class Backward:
    """A backward of 0.0.28.post3, of which the source is all that is looked at."""

    @staticmethod
    def apply(operator: Any) -> Any:
        return operator(num_splits_key=-1)


class TestSentinel:
    def test_what_a_release_hands_over_is_in_its_source(self) -> None:
        assert _sentinel(Backward) == -1
        assert _sentinel(efficient_mask) is None
        assert _sentinel(len) is None


@pytest.mark.skipif(not (INSTALLED), reason="xFormers is not installed")
class TestByValue:
    """xFormers from its entry to its kernels, whose place attention's definition takes."""

    worker: XformersWorker
    fmha: Any
    held: contextlib.ExitStack

    @classmethod
    def setup_class(cls) -> None:
        cls.worker = XformersWorker()
        cls.fmha = cls.worker._xformers.fmha
        cls.held = on_the_cpu(cls.fmha)

    @classmethod
    def teardown_class(cls) -> None:
        cls.held.close()

    def prepare(self, variant: str, params: Any = None, **axes: Any) -> dict[str, Any]:
        axes = {"head_dim": 64} | axes
        request = {"variant": variant, "seed": 42, "params": params or {}}
        request |= {"problem": support.wire(**axes), "input_sets": support.SETS}
        return self.worker.prepare(request)

    def right(self, variant: str, params: Any = None, **axes: Any) -> dict[str, Any]:
        axes = {"dtype": "f32" if variant in ("cutlass", "default") else "f16"} | axes
        prepared = self.prepare(variant, params, **axes)
        for name, error in prepared["errors"].items():
            limit = TOLERANCE[axes["dtype"]]
            assert error["relative_l2"] < limit, (name, variant, params, axes)
        limit = TOLERANCE[axes["dtype"]]
        support.right_after_timing(self.worker.measure(support.PLAN), limit, prepared)
        effective: dict[str, Any] = prepared["effective"]
        return effective

    def operators(self) -> list[str]:
        flash3 = ["flash3"] if self.fmha.flash3._C_flashattention3 else []
        return ["default", "cutlass", "flash", *flash3]

    def test_causal_masks_and_layouts(self) -> None:
        for variant in self.operators():
            for mask, seq_q in (
                (support.FULL, 20),
                (support.CAUSAL_BR, 20),
                (support.CAUSAL, 24),
            ):
                for layout, direction in (("bshd", "both"), ("bhsd", "backward")):
                    axes = {"mask": mask, "layout": layout, "direction": direction}
                    self.right(variant, seq_q=seq_q, seq_k=24, **axes)
        # Only the CUTLASS kernels have a diagonal from the top left.
        top_left = {"mask": support.CAUSAL, "seq_q": 20, "seq_k": 24}
        self.right("cutlass", direction="both", **top_left)
        with pytest.raises(Unsupported, match="equal number of"):
            self.prepare("flash", dtype="f16", **top_left)

    def test_windows(self) -> None:
        behind = {"left": 3, "right": 0, "align": "bottom-right"}
        around = {"left": 5, "right": 2, "align": "bottom-right"}
        for mask in (behind, around):
            self.right("flash", mask=mask, seq_q=20, seq_k=24, direction="both")
        self.right("cutlass", mask=behind, seq_q=20, seq_k=24)
        self.right("cutlass", mask=behind | {"align": "top-left"})
        for axes, words in (
            ({"mask": around}, "attn_bias type is"),
            ({"mask": behind, "direction": "backward"}, "attn_bias type is"),
            ({"mask": behind | {"align": "top-left"}, "seq_q": 9, "seq_k": 24}, "bottom right"),
            ({"mask": {"left": 3, "right": None, "align": "top-left"}}, "to one side only"),
        ):
            with pytest.raises(Unsupported, match=words):
                self.prepare("cutlass", **axes)

    def test_packed_batches(self) -> None:
        behind = {"left": 3, "right": 0, "align": "top-left"}
        for variant in self.operators():
            for ragged, mask in (
                (RAGGED, support.CAUSAL),
                (RAGGED, behind),
                (RAGGED_CROSS, support.CAUSAL_BR),
                (RAGGED_CROSS, support.FULL),
            ):
                longest = {"seq_q": max(ragged["q"]), "seq_k": max(ragged["k"])}
                axes = {"varlen": ragged, "mask": mask, "direction": "both"} | longest
                self.right(variant, **axes)
        longest = {"seq_q": 24, "seq_k": 30}
        self.right("cutlass", varlen=RAGGED_CROSS, mask=support.CAUSAL, **longest)
        self.right("flash", varlen=RAGGED_CROSS, mask=behind | {"align": "bottom-right"}, **longest)
        around = {"left": 5, "right": 2, "align": "bottom-right"}
        with pytest.raises(Unsupported, match="window to the right"):
            self.prepare("flash", varlen=RAGGED, mask=around)

    def test_shared_heads_are_groups_in_forward_alone(self) -> None:
        for axes in ({}, {"layout": "bhsd"}, {"varlen": RAGGED, "mask": support.CAUSAL}):
            self.right("flash", heads=6, kv_heads=2, **axes)
        for variant in self.operators():
            dtype = "f32" if variant == "cutlass" else "f16"
            with pytest.raises(Unsupported, match="does not support BMGHK"):
                self.prepare(variant, kv_heads=2, direction="backward", dtype=dtype)

    def test_needless_copies_come_back_in_the_callers_layout(self) -> None:
        self.right("cutlass", {"access": "copies"}, layout="bhsd", direction="both")
        assert self.worker.call()[0].transpose(1, 2).is_contiguous()

    def test_num_splits_key_is_handed_over_until_the_case_is_released(self) -> None:
        original = self.fmha.cutlass.BwOp.OPERATOR
        for variant in ("cutlass", "default"):
            for asked in (None, -1, 4):
                Recorded.num_splits_key = "never called"
                params = {} if asked is None else {"num_splits_key": asked}
                self.right(variant, params, direction="backward")
                assert Recorded.num_splits_key == asked
            self.worker.release()
            assert self.fmha.cutlass.BwOp.OPERATOR is original
        with pytest.raises(Unsupported, match="forward has no num_splits_key"):
            self.prepare("cutlass", {"num_splits_key": 4})

    def test_what_xformers_chose_is_told(self) -> None:
        effective = self.right("default", direction="both")
        assert effective["forward_operator"] == self.fmha.cutlass.FwOp.NAME
        assert effective["backward_operator"] == self.fmha.cutlass.BwOp.NAME
        flash = self.right("flash", direction="backward")
        assert flash == {"access": "views", "backward_operator": self.fmha.flash.BwOp.NAME}
        half = self.right("default", dtype="f16")["forward_operator"]
        assert half != self.fmha.cutlass.FwOp.NAME


@pytest.mark.skipif(not (INSTALLED), reason="xFormers is not installed")
class TestWithoutAGpu:
    def test_every_case_is_unsupported_in_its_words(self) -> None:
        worker = XformersWorker()
        for variant in ("default", "cutlass", "flash"):
            problem = support.wire(dtype="f16", head_dim=64, direction="backward")
            request = {"variant": variant, "seed": 1, "problem": problem}
            with pytest.raises(Unsupported, match=r"device=cpu \(supported: \{'cuda'\}\)"):
                worker.prepare(request)
