"""A mask as all generations of FlashAttention take it."""

from __future__ import annotations

from typing import NamedTuple

from regatta_worker.problem.attention import Problem

UNBOUNDED = -1


class FlashMask(NamedTuple):
    """`causal`, or else a window around the diagonal that ends at the last query and key."""

    causal: bool
    left: int
    right: int


def flash_mask(problem: Problem) -> FlashMask:
    """The problem's mask. Raises Unsupported where its diagonal ends elsewhere (since 2.1)."""
    left, right = problem.window("FlashAttention", unbounded=UNBOUNDED)
    if problem.mask.is_causal:
        return FlashMask(True, UNBOUNDED, UNBOUNDED)
    return FlashMask(False, left, right)
