"""A model of how TransformerEngine keeps the attention backend it has selected.

A model and no part of TransformerEngine: it says how often a selection is made, and
nothing of what one costs there. As there, the parameters of each call are gathered in a
dataclass and compared with those of the call before, which lie in one slot for all
modules; where they differ, every filter is walked again. Names are those of version 2.20,
`dot_product_attention/utils.py` and `dot_product_attention.py`. No filter is a stub: each
decides over the parameters, for the device it is told of.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

HOPPER = (9, 0)


@dataclass(frozen=True)
class Recipe:
    """How an fp8 region scales; equal where its words are."""

    fp8_format: str = "HYBRID"
    amax_history_len: int = 1024
    fp8_dpa: bool = False


class Scaling:
    """Scales and histories of one module's tensors: equal to none but itself."""

    def __init__(self, tensors: int) -> None:
        self.scale = [1.0] * tensors
        self.amax_history = [0.0] * tensors


def fp8_meta(region: Recipe | None) -> dict[str, Any]:
    """What a module keeps for fp8; scales only once it has run in an fp8 region."""
    meta: dict[str, Any] = {"fp8_checkpoint": False, "fp8_group": None}
    if region is not None:
        meta |= {"recipe": region, "scaling_fwd": Scaling(9), "scaling_bwd": Scaling(6)}
    return meta


@dataclass(eq=False)
class AttentionParams:
    """What a selection depends on, as far as a module without bias, cache or ranks sets it."""

    qkv_dtype: str
    qkv_layout: str
    batch_size: int
    num_heads: int
    num_gqa_groups: int
    max_seqlen_q: int
    max_seqlen_kv: int
    head_dim_qk: int
    head_dim_v: int
    attn_mask_type: str
    window_size: tuple[int, int]
    bottom_right_diagonal: bool
    is_training: bool
    fp8: bool
    fp8_meta: dict[str, Any]
    softcap: float = 0.0
    core_attention_bias_type: str = "no_bias"
    attention_dropout: float = 0.0
    context_parallel: bool = False
    deterministic: bool = False
    softmax_type: str = "vanilla"
    return_max_logit: bool = False
    num_splits: int = 1


Same = Callable[[AttentionParams, AttentionParams], bool]


def same_in_every_field(one: AttentionParams, other: AttentionParams) -> bool:
    """The comparison before 2.1: a dataclass's own, `fp8_meta` with its scales included."""
    return all(getattr(one, f.name) == getattr(other, f.name) for f in fields(one))


def same_recipe(one: AttentionParams, other: AttentionParams) -> bool:
    """The comparison since 2.1 (pull request 1397): of `fp8_meta` the recipe alone."""
    for f in fields(one):
        mine, theirs = getattr(one, f.name), getattr(other, f.name)
        if f.name == "fp8_meta":
            mine, theirs = mine.get("recipe"), theirs.get("recipe")
        if mine != theirs:
            return False
    return True


COMPARISONS: dict[str, Same] = {"before-2.1": same_in_every_field, "today": same_recipe}


@dataclass(frozen=True)
class Filter:
    """A backend is ruled out where this holds."""

    backend: str
    reason: str
    rules_out: Callable[[AttentionParams], bool]


def _off(variable: str) -> Callable[[AttentionParams], bool]:
    return lambda _: os.environ.get(variable, "1") == "0"


def _windowed(params: AttentionParams) -> bool:
    return params.window_size[0] >= 0


FILTERS = (
    Filter("flash", "NVTE_FLASH_ATTN=0", _off("NVTE_FLASH_ATTN")),
    Filter("flash", "16-bit types only", lambda p: p.qkv_dtype not in ("f16", "bf16")),
    Filter("flash", "heads at most 256 wide", lambda p: p.head_dim_qk > 256),
    Filter("flash", "heads in steps of 8", lambda p: p.head_dim_qk % 8 != 0),
    Filter("flash", "no fp8 attention", lambda p: p.fp8 and p.fp8_meta["recipe"].fp8_dpa),
    Filter("flash", "vanilla softmax only", lambda p: p.softmax_type != "vanilla"),
    Filter("flash", "no largest logit", lambda p: p.return_max_logit),
    Filter("flash", "no bias", lambda p: p.core_attention_bias_type not in ("no_bias", "alibi")),
    Filter(
        "flash",
        "causal masks aligned bottom-right",
        lambda p: p.attn_mask_type == "causal" and p.max_seqlen_q != p.max_seqlen_kv,
    ),
    Filter("fused", "NVTE_FUSED_ATTN=0", _off("NVTE_FUSED_ATTN")),
    Filter("fused", "16-bit types only", lambda p: p.qkv_dtype not in ("f16", "bf16")),
    Filter("fused", "no logits capped", lambda p: p.softcap != 0.0),
    Filter("fused", "one split", lambda p: p.num_splits != 1),
    Filter("fused", "heads at most 256 wide", lambda p: max(p.head_dim_qk, p.head_dim_v) > 256),
    Filter("fused", "windows without dropout", lambda p: _windowed(p) and p.attention_dropout > 0),
    Filter("fused", "windows to the left alone", lambda p: _windowed(p) and p.window_size[1] > 0),
    Filter(
        "fused",
        "no deterministic training with dropout",
        lambda p: p.deterministic and p.is_training and p.attention_dropout > 0,
    ),
    Filter("unfused", "NVTE_UNFUSED_ATTN=0", _off("NVTE_UNFUSED_ATTN")),
    Filter("unfused", "no fp8 attention", lambda p: p.fp8 and p.fp8_meta["recipe"].fp8_dpa),
    Filter("unfused", "no context parallelism", lambda p: p.context_parallel),
    Filter("unfused", "no logits capped", lambda p: p.softcap != 0.0),
)

PREFERENCE = ("fused", "flash", "unfused")
"""On Hopper, where cuDNN's is the fastest of those that are left."""


def select_backend(params: AttentionParams) -> str:
    """The backend that is preferred among those no filter rules out; "none" if all are."""
    # As there, what a selection went by is put together first, for the log.
    config = {f.name: getattr(params, f.name) for f in fields(params)}
    config |= {"compute_capability": HOPPER}
    ruled_out = {each.backend for each in FILTERS if each.rules_out(params)}
    left = [backend for backend in PREFERENCE if backend not in ruled_out]
    return left[0] if left else "none"


@dataclass
class SelectionCache:
    """The last selections, newest first, each with the parameters that it was made for."""

    slots: int
    same: Same
    kept: list[tuple[AttentionParams, str]] = field(default_factory=list)

    def backend(self, params: AttentionParams) -> str:
        """The backend for a call; selected anew unless a slot holds these parameters."""
        for held, backend in self.kept:
            if self.same(params, held):
                return backend
        backend = select_backend(params)
        self.kept.insert(0, (params, backend))
        del self.kept[self.slots :]
        return backend
