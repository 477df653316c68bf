"""The module, with its one slot for the last selection."""

from __future__ import annotations

import logging
from typing import Any

import torch

from transformer_engine.pytorch.attention.dot_product_attention import utils as dpa_utils
from transformer_engine.pytorch.attention.dot_product_attention.utils import (
    AttentionLogging as attn_log,
)
from transformer_engine.pytorch.quantization import FP8GlobalStateManager

_attention_backends: dict[str, Any] = {
    "attention_params": None,
    "use_flash_attention": None,
    "flash_attention_backend": None,
    "use_fused_attention": None,
    "fused_attention_backend": None,
    "use_unfused_attention": None,
    "backend_selection_requires_update": False,
}


class Scales:
    """Those of one module: no two are equal."""


class DotProductAttention(torch.nn.Module):
    """Attention whose backend is selected when its parameters are not those of the last call."""

    def __init__(
        self,
        num_attention_heads: int,
        kv_channels: int | tuple[int, int],
        num_gqa_groups: int | None = None,
        attention_dropout: float = 0.0,
        qkv_format: str = "sbhd",
        attn_mask_type: str = "causal",
        window_size: tuple[int, int] | None = None,
        bottom_right_diagonal: bool | None = None,
        layer_number: int | None = None,
        attention_type: str = "self",
    ) -> None:
        super().__init__()
        self.heads, self.groups = num_attention_heads, num_gqa_groups or num_attention_heads
        self.channels = kv_channels
        self.qkv_format, self.attn_mask_type = qkv_format, attn_mask_type
        self.window_size, self.bottom_right_diagonal = window_size, bottom_right_diagonal
        self.fp8_meta: dict[str, Any] = {}
        self.logger = logging.getLogger("DotProductAttention")
        self.logger.setLevel(attn_log._log_level)

    def forward(
        self,
        query_layer: torch.Tensor,
        key_layer: torch.Tensor,
        value_layer: torch.Tensor,
        cu_seqlens_q: torch.Tensor | None = None,
        cu_seqlens_kv: torch.Tensor | None = None,
        max_seqlen_q: int | None = None,
        max_seqlen_kv: int | None = None,
    ) -> torch.Tensor:
        q, k, v = query_layer, key_layer, value_layer
        if any(not x.is_contiguous() for x in (q, k, v)):
            raise AssertionError("the stand-in takes contiguous tensors")
        wide = (q.shape[-1], v.shape[-1]) if q.shape[-1] != v.shape[-1] else q.shape[-1]
        assert wide == self.channels and k.shape[-2] == self.groups, "head sizes differ"
        recipe = FP8GlobalStateManager.recipe
        if recipe is not None and "scaling_fwd" not in self.fp8_meta:
            self.fp8_meta |= {"recipe": recipe, "scaling_fwd": Scales()}
        self._select(q, k)
        if self.qkv_format == "thd":
            outs = [
                self._attend(q[a:b][None], k[c:d][None], v[c:d][None])[0]
                for a, b, c, d in zip(
                    *(x for ends in (cu_seqlens_q, cu_seqlens_kv) for x in (ends[:-1], ends[1:])),
                    strict=True,
                )
            ]
            out = torch.cat(outs)
        else:
            out = self._attend(q, k, v)
        return out.flatten(-2)

    def _select(self, q: torch.Tensor, k: torch.Tensor) -> None:
        params = dpa_utils.AttentionParams(
            qkv_layout="_".join([self.qkv_format] * 3),
            num_heads=self.heads,
            num_gqa_groups=self.groups,
            max_seqlen_q=q.shape[-3],
            max_seqlen_kv=k.shape[-3],
            attn_mask_type=self.attn_mask_type,
            window_size=self.window_size,
            fp8=FP8GlobalStateManager.recipe is not None,
            fp8_meta=self.fp8_meta,
        )
        kept = _attention_backends
        if kept["attention_params"] is None or params != kept["attention_params"]:
            kept["attention_params"] = params
            kept["backend_selection_requires_update"] = True
        if kept["backend_selection_requires_update"]:
            flash, version, fused, number, unfused, _ = dpa_utils.get_attention_backend(params)
            kept["use_flash_attention"], kept["flash_attention_backend"] = flash, version
            kept["use_fused_attention"], kept["fused_attention_backend"] = fused, number
            kept["use_unfused_attention"] = unfused
            kept["backend_selection_requires_update"] = False
        if not any(
            kept[use]
            for use in ("use_flash_attention", "use_fused_attention", "use_unfused_attention")
        ):
            raise ValueError("No dot product attention backend is available.")

    def _attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        seq_q, seq_k, dtype = q.shape[1], k.shape[1], v.dtype
        if self.attn_mask_type.endswith("causal"):
            bottom_right = False
        else:
            bottom_right = self.bottom_right_diagonal is not False
        offset = seq_k - seq_q if bottom_right else 0
        i, j = torch.arange(seq_q)[:, None] + offset, torch.arange(seq_k)[None, :]
        left, right = self.window_size
        if "causal" in self.attn_mask_type:
            assert right == 0, "a causal window has no right side"
        else:
            assert (left < 0) == (right < 0), "window_size should be (-1, -1) or (>=0, >=0)"
        seen = torch.ones(seq_q, seq_k, dtype=torch.bool)
        seen &= (j >= i - left) if left >= 0 else True
        seen &= (j <= i + right) if right >= 0 else True
        q, k, v = (x.transpose(1, 2).float() for x in (q, k, v))
        out = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=seen, enable_gqa=self.heads != self.groups
        )
        return out.transpose(1, 2).to(dtype)
