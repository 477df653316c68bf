"""Selection of a backend."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, fields
from typing import Any


class AttentionLogging:
    """The level that each selection gives its logger."""

    _log_level = logging.WARNING


@dataclass(eq=True)
class AttentionParams:
    """What a selection depends on."""

    qkv_layout: str
    num_heads: int
    num_gqa_groups: int
    max_seqlen_q: int
    max_seqlen_kv: int
    attn_mask_type: str
    window_size: tuple[int, int]
    fp8: bool
    fp8_meta: dict[str, Any]

    def __eq__(self, other: object) -> bool:
        for field in fields(self):
            one, another = getattr(self, field.name), getattr(other, field.name)
            if field.name == "fp8_meta":
                one, another = one.get("recipe"), another.get("recipe")
            if one != another:
                return False
        return True


def get_attention_backend(attention_params: AttentionParams) -> tuple[Any, ...]:
    """Flash is not installed; fused is what is taken, unless the environment says otherwise."""
    logger = logging.getLogger("DotProductAttention")
    logger.setLevel(AttentionLogging._log_level)
    logger.debug("Running with config=%s", Unprintable())
    fused, unfused = (
        os.environ.get(name, "1") == "1" for name in ("NVTE_FUSED_ATTN", "NVTE_UNFUSED_ATTN")
    )
    if not fused:
        logger.debug("Disabling FusedAttention due to NVTE_FUSED_ATTN=0")
    if not unfused:
        logger.debug("Disabling UnfusedDotProductAttention due to NVTE_UNFUSED_ATTN=0")
    return False, None, fused, 1 if fused else None, unfused and not fused, [False, fused, unfused]


class Unprintable:
    """A configuration whose printing would cost more than the selection."""

    def __str__(self) -> str:
        raise AssertionError("the configuration is not to be formatted")
