"""What is dear to make and is wanted again: the values used last, up to so many bytes."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

Value = TypeVar("Value")

SHARE_OF_HOST = 16
"""Values may take one part in so many of the host's memory."""


class Shelf:
    """Values by everything that determines them; the longest unused ones go first.

    Whoever takes a value only reads it. The one taken last stays, however large it is.
    """

    def __init__(self, limit_bytes: int | None = None) -> None:
        """`limit_bytes` is by default a sixteenth of the host's memory."""
        if limit_bytes is None:
            memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
            limit_bytes = memory // SHARE_OF_HOST
        self.limit_bytes = limit_bytes
        self._values: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    @property
    def held_bytes(self) -> int:
        """What the values take."""
        return sum(size for _, size in self._values.values())

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
        kept = self._values.pop(key, None)
        if kept is None or not suffices(kept[0]):
            # What is there makes room first: both need not fit at a time.
            kept = None
            self._shrink(max(0, self.limit_bytes - size))
            kept = (make(), size)
        self._values[key] = kept
        value: Value = kept[0]
        return value

    def _shrink(self, limit_bytes: int) -> None:
        held = self.held_bytes
        while self._values and held > limit_bytes:
            _, (_, size) = self._values.popitem(last=False)
            held -= size

    def clear(self) -> bool:
        """Lets go of everything; false where there was nothing."""
        held = bool(self._values)
        self._values.clear()
        return held

    def __len__(self) -> int:
        return len(self._values)
