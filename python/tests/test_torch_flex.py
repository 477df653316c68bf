"""FlexAttention, unfused and by a stand-in, and varlen_attn, by shape and by a stand-in."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import support

pytest.importorskip("torch")

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention.flex_attention import BlockMask, create_mask, flex_attention

from regatta_worker.on_torch.flex import flex_call
from regatta_worker.on_torch.varlen import varlen_call
from regatta_worker.problem import inputs
from regatta_worker.problem.attention import Problem
from regatta_worker.problem.reference import Arrays, ReferenceCache
from regatta_worker.protocol.channel import Unsupported

CPU = torch.device("cpu")
BAND = {"left": 4, "right": 2, "align": "bottom-right"}
LEFT = {"left": 4, "right": None, "align": "bottom-right"}
RAGGED = {"q": [3, 24, 7], "k": [5, 24, 16]}


class TestValues:
    def right(self, make: Any, **axes: Any) -> None:
        problem = Problem.from_wire(support.wire(**axes))
        tensors = {
            name: inputs.torch_input(problem, name, 3, torch.float32, CPU)
            for name in inputs.TENSORS
        }
        values = {name: tensor.clone() for name, tensor in tensors.items()}
        with warnings.catch_warnings():
            # It says that it runs unfused.
            warnings.simplefilter("ignore")
            built = make(problem, tensors)
            self.same(problem, 3, values, built())
            support.put(4, tensors, values, built.refresh)
            self.same(problem, 4, values, built())

    def same(self, problem: Problem, seed: int, values: Any, results: Any) -> None:
        exact = ReferenceCache(Arrays.of_torch(CPU)).of(problem, seed, values)
        for name, value in zip(problem.results, results, strict=True):
            assert tuple(value.shape) == problem.shape(name)
            assert not value.requires_grad, name
            expected = torch.as_tensor(exact[name]).view(value.shape)
            torch.testing.assert_close(value.detach().double(), expected, atol=1e-5, rtol=1e-5)

    def test_flex(self) -> None:
        def make(problem: Problem, tensors: Any) -> Any:
            attend = flex_stand_in if problem.has_backward else flex_attention
            return flex_call(problem, tensors, None, attend)

        for direction in ("forward", "backward", "both"):
            for layout in ("bshd", "bhsd"):
                for mask in (support.FULL, support.CAUSAL, support.CAUSAL_BR, BAND, LEFT):
                    axes = {"direction": direction, "layout": layout, "mask": mask}
                    self.right(make, seq_q=16, seq_k=32, kv_heads=2, **axes)

    def test_varlen(self) -> None:
        def make(problem: Problem, tensors: Any) -> Any:
            return varlen_call(problem, tensors, varlen_stand_in)

        for direction in ("forward", "backward", "both"):
            for mask in (support.FULL, support.CAUSAL_BR, BAND, LEFT):
                for axes in (
                    {"batch": 3, "varlen": RAGGED},
                    {"batch": 3, "seq_q": 9, "seq_k": 21},
                    {"batch": 1, "seq_q": 9, "seq_k": 21, "layout": "bhsd"},
                ):
                    self.right(make, direction=direction, mask=mask, kv_heads=2, **axes)
        self.right(make, batch=3, mask=support.CAUSAL)

    def test_a_release_without_windows_does_full_masks_alone(self) -> None:
        def earlier(
            query: Any, key: Any, value: Any, cu_seq_q: Any, cu_seq_k: Any, max_q: Any, max_k: Any,
            is_causal: Any = False,
        ) -> Any:  # fmt: skip
            return varlen_stand_in(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k)

        def make(problem: Problem, tensors: Any) -> Any:
            return varlen_call(problem, tensors, earlier)

        self.right(make, batch=3, varlen=RAGGED)
        with pytest.raises(Unsupported, match="has no window_size"):
            self.right(make, batch=3, varlen=RAGGED, mask=support.CAUSAL_BR)

    def test_refusals(self) -> None:
        cases: tuple[tuple[str, Callable[..., Any], dict[str, Any]], ...] = (
            ("ragged", lambda p, t: flex_call(p, t, None, flex_attention), {"varlen": RAGGED}),
            (
                "bottom right",
                lambda p, t: varlen_call(p, t, varlen_stand_in),
                {"mask": support.CAUSAL},
            ),
            ("bhsd", lambda p, t: varlen_call(p, t, varlen_stand_in), {"layout": "bhsd"}),
        )
        for words, make, axes in cases:
            problem = Problem.from_wire(support.wire(seq_q=9, seq_k=24, **axes))
            tensors = {name: torch.empty(problem.shape(name)) for name in inputs.TENSORS}
            with pytest.raises(Unsupported, match=words):
                make(problem, tensors)


def flex_stand_in(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    block_mask: BlockMask | None,
    enable_gqa: bool,
    kernel_options: Any,
) -> torch.Tensor:
    """The same mask by SDPA: on a CPU FlexAttention has no backward."""
    mask = None
    if block_mask is not None:
        mask = create_mask(block_mask.mask_mod, 1, 1, query.shape[2], key.shape[2], CPU)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=enable_gqa)


def varlen_stand_in(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seq_q: torch.Tensor,
    cu_seq_k: torch.Tensor,
    max_q: int,
    max_k: int,
    *,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
) -> torch.Tensor:
    """varlen_attn by its documentation, FlashAttention's alignment with it."""
    found = []
    for number in range(len(cu_seq_q) - 1):
        q, k, v = (
            x[bounds[number] : bounds[number + 1]]
            for x, bounds in ((query, cu_seq_q), (key, cu_seq_k), (value, cu_seq_k))
        )
        assert len(q) <= max_q
        assert len(k) <= max_k
        group = q.shape[1] // k.shape[1]
        k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) * (scale or q.shape[-1] ** -0.5)
        rows = torch.arange(len(q))[:, None] + len(k) - len(q)
        columns = torch.arange(len(k))[None, :]
        left, right = window_size
        if left >= 0:
            scores = scores.masked_fill(columns < rows - left, -torch.inf)
        if right >= 0:
            scores = scores.masked_fill(columns > rows + right, -torch.inf)
        found.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1), v))
    return torch.cat(found)


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
