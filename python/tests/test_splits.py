"""The rule by which `num_splits_key` becomes a number of blocks."""

from __future__ import annotations

from typing import Any

import support
from regatta_worker.on_torch.cutlass_splits import effective_splits
from regatta_worker.problem.attention import Problem

HOPPER: dict[str, Any] = {"capability": (9, 0), "shared_bytes": 232448}


def splits(requested: int | None, **axes: Any) -> int | None:
    axes = {"batch": 1, "direction": "backward"} | axes
    return effective_splits(Problem.from_wire(support.wire(**axes)), requested, **HOPPER)


class TestSplits:
    def test_xformers_issue_1176(self) -> None:
        """157 blocks on the grid before, 1 after: see the issue."""
        case = {"heads": 1, "seq_q": 10000, "head_dim": 32}
        assert splits(None, **case) == 157
        assert splits(-1, **case) == 1
        assert splits(1, **case) == 1
        assert splits(16, **case) == 16
        assert splits(1000, **case) == 157

    def test_many_heads_and_few_keys_are_not_split(self) -> None:
        assert splits(None, heads=256, seq_q=128, head_dim=32) == 1
        assert splits(None, heads=255, seq_q=128, head_dim=32) == 2

    def test_staged_gradients_cap_the_heuristic_alone(self) -> None:
        wide = {"seq_q": 8192, "head_dim": 256, "dtype": "bf16"}
        assert splits(None, heads=8, **wide) == 25
        assert splits(64, heads=8, **wide) == 64
        assert splits(None, heads=256, **wide) == 1, "200 / 256 is 0, raised to 1"
        assert splits(None, heads=8, seq_q=8192, head_dim=256) == 128, "f32 stages none"

    def test_unknown_tiles_give_no_number(self) -> None:
        problem = Problem.from_wire(support.wire(direction="backward"))
        assert effective_splits(problem, None, (10, 0), 232448) is None
        assert effective_splits(problem, None, (8, 6), 101376) is None
        assert effective_splits(problem, 8, (8, 0), 166912, deterministic=True) == 1
