"""What lies in memory where a call needs most of it, from an allocator's record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

MOST = 200
"""Sizes that are told; the smallest beyond them are left out."""


def at_peak(record: Iterable[Mapping[str, Any]]) -> list[dict[str, int]]:
    """Sizes and numbers of what a call had allocated when that was most, the largest first.

    `record` is torch's trace of one device: entries with `action`, `addr` and `size` in bytes, in
    order. What the call frees that was there before it is none of it.
    """
    held: dict[int, int] = {}
    now = most = 0
    peak: Counter[int] = Counter()
    for entry in record:
        action, address = entry.get("action"), entry.get("addr")
        if not isinstance(address, int):
            continue
        if action == "alloc":
            size = int(entry.get("size", 0))
            # An address that is handed out again was freed, seen or not.
            now += size - held.pop(address, 0)
            held[address] = size
            if now > most:
                most, peak = now, Counter(held.values())
        elif action in ("free", "free_requested"):
            now -= held.pop(address, 0)
    largest = sorted(peak.items(), reverse=True)[:MOST]
    return [{"bytes": size, "count": count} for size, count in largest if size > 0]
