"""xFormers: what a release hands over where nobody asks, and its words without a GPU.

Its values are checked where it runs: by every `regatta run xformers-library` on a GPU.
"""

from __future__ import annotations

from typing import Any

import pytest

import support

pytest.importorskip("torch")

from regatta_worker.libraries.xformers import XformersWorker, _sentinel
from regatta_worker.protocol.channel import Unsupported


class Backward:
    """A backward of 0.0.28.post3, of which the source is all that is looked at."""

    @staticmethod
    def apply(operator: Any) -> Any:
        return operator(num_splits_key=-1)


def test_what_a_release_hands_over_is_in_its_source() -> None:
    assert _sentinel(Backward) == -1
    assert _sentinel(support.wire) is None
    assert _sentinel(len) is None


@pytest.mark.skipif(not support.installed("xformers"), reason="xFormers is not installed")
@pytest.mark.parametrize("variant", ["default", "cutlass", "flash"])
def test_without_a_gpu_every_case_is_unsupported_in_its_words(variant: str) -> None:
    problem = support.wire(dtype="f16", head_dim=64, direction="backward")
    request = {"variant": variant, "seed": 1, "problem": problem}
    with pytest.raises(Unsupported, match=r"device=cpu \(supported: \{'cuda'\}\)"):
        XformersWorker().prepare(request)
