"""What is dear to make and is wanted again: the values used last, up to so many bytes."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

Value = TypeVar("Value")

SHARE_OF_HOST = 16
"""Values may take one part in so many of the host's memory."""


class Cache:
    """Values by everything that determines them; the longest unused ones go first.

    Whoever takes a value only reads it. The one taken last stays, however large it is.
    """

    def __init__(self, limit_bytes: int | None = None) -> None:
        """`limit_bytes` is by default a sixteenth of the host's memory."""
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self.limit_bytes = memory // SHARE_OF_HOST if limit_bytes is None else limit_bytes
        self.values: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    @property
    def total_bytes(self) -> int:
        """What the values take."""
        return sum(size for _, size in self.values.values())

    def fits(self, size: int) -> bool:
        """Whether values of so many bytes are kept beside others."""
        return size <= self.limit_bytes // 2

    def take(
        self,
        key: Hashable,
        size: int,
        make: Callable[[], Value],
        suffices: Callable[[Value], bool] = lambda _: True,
    ) -> Value:
        """The value of this key, of so many bytes, made where it is not there or not enough."""
        kept = self.values.pop(key, None)
        if kept is None or not suffices(kept[0]):
            # What is there makes room first: both need not fit at a time.
            kept = None
            while self.values and self.total_bytes > max(0, self.limit_bytes - size):
                self.values.popitem(last=False)
            kept = (make(), size)
        self.values[key] = kept
        value: Value = kept[0]
        return value
