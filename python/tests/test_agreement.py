"""Ranks that come to the same point, as threads of one process on one file."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from regatta_worker.protocol.channel import Failed
from regatta_worker.ranks.agreement import Agreement

RANKS = 3
ROUNDS = 50


class TestMeeting:
    @pytest.fixture(autouse=True)
    def file(self, tmp_path: Path) -> None:
        self.path = tmp_path / "agreement"
        Agreement.create(self.path, RANKS)

    def agreement(self, rank: int, limit_s: float = 60.0) -> Agreement:
        return Agreement(self.path, rank, RANKS, limit_s)

    def together(self, visit_as: Callable[[int], Any]) -> list[Any]:
        with ThreadPoolExecutor(RANKS) as pool:
            return list(pool.map(visit_as, range(RANKS)))

    def test_nobody_goes_on_before_all_are_there(self) -> None:
        arrived: list[list[int]] = [[] for _ in range(ROUNDS)]

        def visit(rank: int) -> list[int]:
            agreement, seen = self.agreement(rank), []
            for round_ in arrived:
                round_.append(rank)
                agreement.meet()
                seen.append(len(round_))
            return seen

        assert self.together(visit) == [[RANKS] * ROUNDS] * RANKS

    def test_rank_0_decides_for_all(self) -> None:
        said = [number % 3 > 0 for number in range(ROUNDS)]

        def decide(rank: int) -> list[bool]:
            agreement = self.agreement(rank)
            return [agreement.decided(own if rank == 0 else not own) for own in said]

        assert self.together(decide) == [said] * RANKS

    def test_who_does_not_come_is_named(self) -> None:
        self.agreement(2)._words[1 + 2] = 1
        with pytest.raises(Failed, match="rank 1 did not come within 0 s"):
            self.agreement(0, limit_s=0.01).meet()
        with pytest.raises(Failed, match="rank 0 did not come"):
            self.agreement(1, limit_s=0.01).decided(True)
