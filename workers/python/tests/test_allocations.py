"""What lies in memory at the peak of a call, from records made for it."""

from __future__ import annotations

import unittest
from typing import Any

import support  # noqa: F401

from regatta_worker.census.allocations import MOST, at_peak


def alloc(address: int, size: int) -> dict[str, Any]:
    return {"action": "alloc", "addr": address, "size": size}


def free(address: int, action: str = "free_requested") -> dict[str, Any]:
    return {"action": action, "addr": address, "size": 0}


class AtPeak(unittest.TestCase):
    def test_what_is_held_together_at_the_most_is_told_by_size(self) -> None:
        record = [
            alloc(1, 64),
            alloc(2, 64),
            alloc(3, 512),
            free(1),
            free(1, "free_completed"),
            alloc(4, 32),
            free(3),
            alloc(5, 64),
        ]
        told = [{"bytes": 512, "count": 1}, {"bytes": 64, "count": 2}]
        self.assertEqual(at_peak(record), told)

    def test_what_was_there_before_is_none_of_it(self) -> None:
        self.assertEqual(at_peak([free(9), alloc(1, 8)]), [{"bytes": 8, "count": 1}])
        self.assertEqual(at_peak([]), [])

    def test_an_address_that_comes_again_was_freed(self) -> None:
        record = [alloc(1, 64), alloc(1, 16), alloc(2, 8)]
        self.assertEqual(at_peak(record), [{"bytes": 64, "count": 1}])

    def test_other_entries_and_zeros_are_passed_by(self) -> None:
        segment = alloc(1, 9) | {"action": "segment_alloc"}
        self.assertEqual(at_peak([segment, {"action": "alloc"}, alloc(1, 0)]), [])

    def test_the_largest_are_told(self) -> None:
        told = at_peak(alloc(size, size) for size in range(1, 2 * MOST + 1))
        self.assertEqual((len(told), told[0]["bytes"]), (MOST, 2 * MOST))


if __name__ == "__main__":
    unittest.main()
