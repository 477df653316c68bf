"""flash-linear-attention: its operator's arguments, over attention by its definition."""

from __future__ import annotations

import sys
import types
from typing import Any
from unittest import mock

import pytest

import support

pytest.importorskip("torch")

import torch

import plain_attention
from regatta_worker.libraries.fla import FlaWorker
from regatta_worker.problem.attention import Mask
from regatta_worker.protocol.channel import Unsupported

RAGGED = {"q": [3, 24], "k": [3, 24]}
BEHIND = {"left": 3, "right": 0, "align": "top-left"}
TOLERANCE = 2e-3


class Attention(torch.autograd.Function):  # type: ignore[misc]
    """What stands for the operator's own autograd function, on packed or even batches."""

    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, mask: Mask, cu_seqlens: Any) -> torch.Tensor:
        ctx.save_for_backward(q, k, v)
        ctx.mask, ctx.cu_seqlens = mask, (cu_seqlens, cu_seqlens)
        if cu_seqlens is None:
            return plain_attention.forward(q, k, v, mask)
        out = plain_attention.forward(q[0], k[0], v[0], mask, ctx.cu_seqlens)
        return out.unsqueeze(0)

    @staticmethod
    def backward(ctx: Any, dout: Any) -> tuple[Any, ...]:
        q, k, v = ctx.saved_tensors
        if ctx.cu_seqlens[0] is None:
            return *plain_attention.backward(dout, q, k, v, ctx.mask), None, None
        rows = (dout[0], q[0], k[0], v[0])
        gradients = plain_attention.backward(*rows, mask=ctx.mask, cu_seqlens=ctx.cu_seqlens)
        return *(x.unsqueeze(0) for x in gradients), None, None


def checked(q: torch.Tensor, k: torch.Tensor, cu_seqlens: Any) -> None:
    """What every release takes for granted."""
    assert q.ndim == 4
    assert q.shape[2] % k.shape[2] == 0
    if cu_seqlens is not None:
        assert q.shape[0] == 1
        assert cu_seqlens.dtype == torch.int64
    else:
        assert q.shape[1] == k.shape[1]


def of_0_3_2(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: Any = None, scale: Any = None,
    cu_seqlens: Any = None, head_first: bool = False,
) -> torch.Tensor:  # fmt: skip
    """`parallel_attn` as it was declared up to 0.4.1; 0.4.2 adds `chunk_indices`."""
    assert g is None
    assert scale is None
    assert not head_first
    checked(q, k, cu_seqlens)
    out: torch.Tensor = Attention.apply(q, k, v, Mask(None, 0, "top-left"), cu_seqlens)
    return out


def of_0_5_0(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: Any = None, scale: Any = None,
    window_size: int | None = None, cu_seqlens: Any = None, chunk_indices: Any = None, *,
    sink_bias: Any = None, **kwargs: Any,
) -> torch.Tensor:  # fmt: skip
    """`parallel_attn` as it is declared from 0.5.0 on."""
    assert g is None
    assert scale is None
    assert chunk_indices is None
    assert sink_bias is None
    assert not kwargs
    checked(q, k, cu_seqlens)
    mask = Mask(None if window_size is None else window_size - 1, 0, "top-left")
    out: torch.Tensor = Attention.apply(q, k, v, mask, cu_seqlens)
    return out


def worker(operator: Any) -> FlaWorker:
    """One that finds this operator in place of the package's."""
    module = types.ModuleType("fla.ops.attn")
    module.parallel_attn = operator  # type: ignore[attr-defined]
    packages = {name: types.ModuleType(name) for name in ("fla", "fla.ops")}
    with mock.patch.dict(sys.modules, packages | {"fla.ops.attn": module}):
        return FlaWorker()


class TestByValue:
    """Every way a release is called, whose place attention's definition takes."""

    def prepare(self, operator: Any, **axes: Any) -> tuple[FlaWorker, dict[str, Any]]:
        axes = {"dtype": "f16", "mask": support.CAUSAL} | axes
        request = {"variant": "parallel", "seed": support.SEED, "params": {}}
        request |= {"problem": support.wire(**axes), "input_sets": support.SETS}
        made = worker(operator)
        with mock.patch.object(made, "compiles", lambda: True):
            return made, made.prepare(request)

    def right(self, operator: Any, **axes: Any) -> None:
        made, prepared = self.prepare(operator, **axes)
        for name, error in prepared["errors"].items():
            assert error["relative_l2"] < TOLERANCE, (name, axes)
        support.right_after_timing(made.measure(support.PLAN), TOLERANCE, prepared)

    def test_every_release_is_called_as_it_is_declared(self) -> None:
        for operator in (of_0_3_2, of_0_5_0):
            for axes in (
                {"direction": "forward"},
                {"direction": "both", "heads": 6, "kv_heads": 2},
                {"direction": "backward", "layout": "bhsd"},
                {"direction": "both", "varlen": RAGGED},
                {"direction": "forward", "head_dim": 16, "head_dim_v": 32},
            ):
                self.right(operator, **axes)

    def test_a_window_is_from_0_5_0_on(self) -> None:
        self.right(of_0_5_0, mask=BEHIND, direction="both")
        with pytest.raises(Unsupported, match="no window before fla-core 0.5.0"):
            self.prepare(of_0_3_2, mask=BEHIND)

    def test_what_it_does_not_do_is_refused_in_words(self) -> None:
        for axes, words in (
            ({"mask": support.FULL}, "is causal"),
            ({"mask": BEHIND | {"right": 2}}, "is causal"),
            ({"seq_q": 20, "seq_k": 24}, "seq_q and seq_k must be equal"),
            ({"head_dim": 320}, "head_dim of at most 256"),
        ):
            with pytest.raises(Unsupported, match=words):
                self.prepare(of_0_5_0, **axes)


class TestAbsent:
    @pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
    def test_without_a_gpu_it_is_unsupported(self) -> None:
        request = {"variant": "parallel", "seed": 1, "params": {}}
        request |= {"problem": support.wire(dtype="f16", mask=support.CAUSAL)}
        with pytest.raises(Unsupported, match="compiles for GPUs"):
            worker(of_0_5_0).prepare(request)
