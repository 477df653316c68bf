"""FlexAttention, unfused and by a stand-in, and varlen_attn, by shape and by a stand-in."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import support

pytest.importorskip("torch")

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention.flex_attention import BlockMask, create_mask, flex_attention

import plain_attention
from plain_attention import CPU, flash_mask, made, right_twice
from regatta_worker.on_torch.flex import flex_call
from regatta_worker.on_torch.varlen import varlen_call
from regatta_worker.problem import inputs
from regatta_worker.problem.attention import Problem
from regatta_worker.protocol.channel import Unsupported

BAND = {"left": 4, "right": 2, "align": "bottom-right"}
LEFT = {"left": 4, "right": None, "align": "bottom-right"}
RAGGED = {"q": [3, 24, 7], "k": [5, 24, 16]}


def flex_stand_in(
    query: Any, key: Any, value: Any, *, block_mask: BlockMask | None, enable_gqa: bool,
    kernel_options: Any,
) -> torch.Tensor:  # fmt: skip
    """The same mask by SDPA: on a CPU FlexAttention has no backward."""
    mask = None
    if block_mask is not None:
        mask = create_mask(block_mask.mask_mod, 1, 1, query.shape[2], key.shape[2], CPU)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=enable_gqa)


class Varlen(torch.autograd.Function):  # type: ignore[misc]  # of no type here
    """Attention by its definition, and its gradient."""

    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, *mask: Any) -> torch.Tensor:
        ctx.save_for_backward(q, k, v)
        ctx.mask = mask
        return plain_attention.forward(q, k, v, *mask)

    @staticmethod
    def backward(ctx: Any, dout: torch.Tensor) -> tuple[Any, ...]:
        return *plain_attention.backward(dout, *ctx.saved_tensors, *ctx.mask), None, None


def varlen_stand_in(
    query: Any, key: Any, value: Any, cu_seq_q: Any, cu_seq_k: Any, max_q: int, max_k: int, *,
    scale: float | None = None, window_size: tuple[int, int] = (-1, -1),
) -> torch.Tensor:  # fmt: skip
    """varlen_attn by its documentation, FlashAttention's alignment with it."""
    assert int(cu_seq_q.diff().max()) <= max_q
    assert int(cu_seq_k.diff().max()) <= max_k
    mask = flash_mask(False, *window_size)
    out: torch.Tensor = Varlen.apply(query, key, value, mask, (cu_seq_q, cu_seq_k))
    return out


def of_flex(problem: Problem, tensors: Any) -> Any:
    attend = flex_stand_in if problem.has_backward else flex_attention
    return flex_call(problem, tensors, None, attend)


def of_varlen(problem: Problem, tensors: Any) -> Any:
    return varlen_call(problem, tensors, varlen_stand_in)


def checked(make: Any, **axes: Any) -> None:
    problem, tensors = made(**axes)
    with warnings.catch_warnings():
        # It says that it runs unfused.
        warnings.simplefilter("ignore")
        right_twice(problem, tensors, make(problem, tensors))


@pytest.mark.parametrize("direction", ["forward", "backward", "both"])
@pytest.mark.parametrize("mask", [support.FULL, support.CAUSAL_BR, BAND, LEFT])
def test_values(direction: str, mask: dict[str, Any]) -> None:
    axes: dict[str, Any] = {"direction": direction, "mask": mask, "kv_heads": 2}
    for layout in ("bshd", "bhsd"):
        checked(of_flex, seq_q=16, seq_k=32, layout=layout, **axes)
    checked(of_varlen, batch=3, varlen=RAGGED, **axes)
    checked(of_varlen, batch=3, seq_q=9, seq_k=21, **axes)
    checked(of_varlen, batch=1, seq_q=9, seq_k=21, layout="bhsd", **axes)


def test_causal_from_the_top_left() -> None:
    checked(of_flex, seq_q=16, seq_k=32, mask=support.CAUSAL, direction="both")
    checked(of_varlen, batch=3, mask=support.CAUSAL)


def test_a_release_without_windows_does_full_masks_alone() -> None:
    def earlier(
        query: Any, key: Any, value: Any, cu_seq_q: Any, cu_seq_k: Any, max_q: Any, max_k: Any,
        is_causal: Any = False,
    ) -> Any:  # fmt: skip
        return varlen_stand_in(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k)

    def make(problem: Problem, tensors: Any) -> Any:
        return varlen_call(problem, tensors, earlier)

    checked(make, batch=3, varlen=RAGGED)
    with pytest.raises(Unsupported, match="has no window_size"):
        checked(make, batch=3, varlen=RAGGED, mask=support.CAUSAL_BR)


@pytest.mark.parametrize(
    ("words", "make", "axes"),
    [
        ("ragged", of_flex, {"varlen": RAGGED}),
        ("bottom right", of_varlen, {"mask": support.CAUSAL}),
        ("bhsd", of_varlen, {"layout": "bhsd"}),
    ],
)
def test_refusals(words: str, make: Any, axes: dict[str, Any]) -> None:
    problem = Problem.from_wire(support.wire(seq_q=9, seq_k=24, **axes))
    tensors = {name: torch.empty(problem.shape(name)) for name in inputs.TENSORS}
    with pytest.raises(Unsupported, match=words):
        make(problem, tensors)


@pytest.mark.skipif(
    not support.installed("torch.nn.attention.varlen"), reason="this torch has no varlen_attn"
)
class TestVarlenByShape:
    """The real function's signature, without a GPU."""

    def test_forward(self) -> None:
        from torch.nn.attention.varlen import varlen_attn

        for axes in ({"varlen": RAGGED, "mask": support.CAUSAL_BR}, {"mask": support.CAUSAL}):
            problem = Problem.from_wire(support.wire(dtype="bf16", batch=3, **axes))
            with FakeTensorMode():
                tensors = {
                    name: torch.empty(problem.shape(name), dtype=torch.bfloat16, device="cuda")
                    for name in inputs.TENSORS
                }
                (out,) = varlen_call(problem, tensors, varlen_attn)()
            assert tuple(out.shape) == problem.shape("out")


def test_without_a_gpu_they_are_unsupported() -> None:
    worker = support.StartedWorker("torch")
    worker.ask("hello", protocol=1)
    for variant, params in (("flex", {"backend": "triton"}), ("varlen", {})):
        reply = worker.prepare(variant, params, dtype="f16")
        assert reply["type"] == "unsupported", reply
        assert "GPU" in reply["reason"]
    assert worker.prepare("flex", {"backend": "cutlass"}, dtype="f16")["type"] == "failed"
    assert worker.ask("shutdown")["type"] == "bye"
    assert worker.exit_status() == 0
