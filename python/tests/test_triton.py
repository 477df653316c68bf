"""The Triton worker: its kernel by Triton's interpreter, and the lengths it draws."""

from typing import Any

import pytest

import support

pytest.importorskip("torch")
pytest.importorskip("triton")


from regatta_worker.libraries.triton import WORKER, configurations, tuning_key
from regatta_worker.problem.input_sets import Lengths
from regatta_worker.protocol.channel import Failed, Unsupported


class TestDrawing:
    def test_no_length_twice_and_all_in_one_bucket(self) -> None:
        for longest, a_call in ((4096, 24), (128, 4), (100, 1), (37, 3)):
            lengths, calls, seen = Lengths(longest, a_call), 0, []
            assert lengths._calls == (longest - longest // 2) // a_call
            for calls in range(lengths._calls):
                drawn = lengths.draw()
                assert len(drawn) == a_call
                assert drawn == sorted(drawn, reverse=True)
                assert drawn[0] == longest - calls
                seen += drawn
            assert len(set(seen)) == len(seen)
            assert min(seen) > longest // 2
            with pytest.raises(Failed, match=f"new lengths for {lengths._calls} calls"):
                lengths.draw()
        bucketed = {tuning_key("flash", length) for length in range(2049, 4097)}
        assert bucketed == {4096}
        assert len({tuning_key("flash-exact", n) for n in range(2049, 4097)}) == 2048

    def test_more_lengths_than_there_are(self) -> None:
        with pytest.raises(Unsupported, match="lengths=9: .* there are 8"):
            Lengths(16, 9)


def test_a_case_that_asks_for_a_configuration_is_not_tuned() -> None:
    assert len(configurations({})) == 2
    (chosen,) = configurations({"BLOCK_Q": 64})
    assert (chosen.kwargs["BLOCK_Q"], chosen.num_warps) == (64, 4)
    with pytest.raises(Unsupported, match="no configuration with BLOCK_Q=64, num_warps=8"):
        configurations({"BLOCK_Q": 64, "num_warps": 8})


@pytest.mark.parametrize(
    ("axes", "params", "reason"),
    [
        ({"head_dim": 32}, {}, "head_dim 64 and 128"),
        ({"head_dim_v": 128}, {}, "not 64 and 128"),
        ({"mask": {"left": 4, "right": 0, "align": "top-left"}}, {}, "no window"),
        ({"varlen": {"q": [24], "k": [24]}}, {}, "ragged"),
        ({"batch": 65536, "seq_q": 1}, {}, "at most 65535"),
        ({"seq_q": 24, "seq_k": 9}, {"lengths": 2}, "seq_q and seq_k must be equal"),
        ({}, {"lengths": 0}, "lengths=0 is not a positive integer"),
        ({}, {"lengths": "many"}, "lengths='many' is not an integer"),
        ({}, {"splits": 1}, "no parameter `splits`"),
    ],
)
def test_what_it_does_not_do(
    axes: Any, params: Any, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under Triton's interpreter, which no GPU is needed for; values are checked on one."""
    monkeypatch.setattr("triton.knobs.runtime.interpret", True)
    with pytest.raises((Unsupported, Failed), match=reason):
        prepare(params, **axes)


def test_without_a_gpu_every_case_is_unsupported_in_words() -> None:
    with pytest.raises(Unsupported, match="torch can use none"):
        prepare()


def prepare(params: Any = None, **axes: Any) -> Any:
    axes = {"batch": 1, "heads": 1, "head_dim": 64, "dtype": "f16", **axes}
    return WORKER().prepare(support.request("flash", params, **axes))
