"""Fp8 regions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


class FP8GlobalStateManager:
    """What is true in the region that is open."""

    recipe: Any = None
    resets = 0

    @classmethod
    def reset(cls) -> None:
        cls.recipe = None
        cls.resets += 1


@contextlib.contextmanager
def autocast(enabled: bool = True, *, recipe: Any = None) -> Iterator[None]:
    """A region whose modules have scales of their own."""
    outer = FP8GlobalStateManager.recipe
    FP8GlobalStateManager.recipe = recipe if enabled else None
    try:
        yield
    finally:
        FP8GlobalStateManager.recipe = outer
