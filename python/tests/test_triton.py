"""The Triton worker: its kernel by Triton's interpreter, and the lengths it draws."""

from __future__ import annotations

import importlib.metadata
import os
from typing import Any

import pytest

import support

pytest.importorskip("torch")
pytest.importorskip("triton")


from regatta_worker.libraries.triton import tuning_key
from regatta_worker.problem.lengths import Lengths
from regatta_worker.protocol.channel import Failed, Unsupported

TOLERANCE = 2e-3


def interpreter_works() -> bool:
    """Triton 3.6 interprets loops by `int(array)`, which NumPy refuses from 2.4 on."""
    if not support.installed("numpy"):
        return False
    return tuple(map(int, importlib.metadata.version("numpy").split(".")[:2])) < (2, 4)


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


class TestConversation:
    worker: support.StartedWorker
    hello: dict[str, Any]

    @classmethod
    def setup_class(cls) -> None:
        os.environ["TRITON_INTERPRET"] = "1"
        try:
            cls.worker = support.StartedWorker("triton")
        finally:
            del os.environ["TRITON_INTERPRET"]
        cls.hello = cls.worker.ask("hello", protocol=1)

    @classmethod
    def teardown_class(cls) -> None:
        assert cls.worker.ask("shutdown")["type"] == "bye"
        assert cls.worker.exit_status() == 0

    def prepare(self, variant: str, params: Any = None, **axes: Any) -> dict[str, Any]:
        shape = {"batch": 1, "heads": 1, "head_dim": 64, "dtype": "f16"}
        reply: dict[str, Any] = self.worker.prepare(variant, params, **shape | axes)
        return reply

    def right(self, reply: dict[str, Any]) -> None:
        assert reply["type"] == "prepared", reply
        assert reply["errors"]["out"]["relative_l2"] < TOLERANCE
        assert len(reply["probes"]["out"]) == 16

    def right_after_timing(self, reply: dict[str, Any]) -> None:
        """The last timed call; where it drew its lengths, these are not the problem's own."""
        self.right(reply)
        measured = self.worker.ask("measure", **support.PLAN)
        if reply["effective"] == {"lengths": 1}:
            support.right_after_timing(measured, TOLERANCE, reply)
            return
        assert (measured["checked"]["seed"], measured["checked"]["probes"]) == (43, {})
        assert measured["checked"]["errors"]["out"]["relative_l2"] < TOLERANCE

    def test_hello(self) -> None:
        names = [variant["name"] for variant in self.hello["variants"]]
        assert names == ["flash", "flash-exact"]
        assert "triton" in self.hello["versions"]

    @pytest.mark.skipif(
        not (interpreter_works()), reason="Triton's interpreter needs NumPy below 2.4"
    )
    def test_right_for_every_mask_layout_and_sharing_of_heads(self) -> None:
        for mask in (support.FULL, support.CAUSAL, support.CAUSAL_BR):
            for layout in ("bshd", "bhsd"):
                axes = {"mask": mask, "layout": layout, "seq_q": 70, "seq_k": 40}
                self.right_after_timing(self.prepare("flash", heads=2, kv_heads=1, **axes))
        self.right(self.prepare("flash", head_dim=128, seq_q=40))

    @pytest.mark.skipif(
        not (interpreter_works()), reason="Triton's interpreter needs NumPy below 2.4"
    )
    def test_lengths_that_are_drawn_are_right_after_timing(self) -> None:
        for axes in ({"mask": support.CAUSAL}, {"batch": 2, "heads": 2, "kv_heads": 1}):
            self.right_after_timing(self.prepare("flash", {"lengths": 2}, seq_q=40, **axes))

    @pytest.mark.skipif(
        not (interpreter_works()), reason="Triton's interpreter needs NumPy below 2.4"
    )
    def test_the_variant_tuned_on_exact_lengths_retunes_for_each(self) -> None:
        for variant, retuned in (("flash", 0), ("flash-exact", 3)):
            reply = self.prepare(variant, {"lengths": 3}, seq_q=72, mask=support.CAUSAL)
            self.right(reply)
            assert reply["effective"] == {"lengths": 3}
            plan = {"warmup": 0, "samples": 1, "min_samples": 1, "budget_ms": 0, "cache": "hot"}
            refused = self.worker.ask("measure", **plan, graph=True)
            assert refused["type"] == "unsupported", refused
            assert "replays the lengths" in refused["reason"]
            counts = self.worker.ask("census")["counts"]
            assert counts["calls.triton_autotune"] == retuned
            assert counts["calls.triton_compile"] == 0
            # Without lengths a call is of the problem's own, over and over.
            assert self.prepare(variant, seq_q=64)["effective"] == {"lengths": 1}
            counts = self.worker.ask("census")["counts"]
            assert counts["calls.triton_autotune"] == 0

    def test_what_it_does_not_do(self) -> None:
        for axes, reason in (
            ({"dtype": "f32"}, "f16 and bf16, not f32"),
            ({"direction": "both"}, "no backward"),
            ({"head_dim": 32}, "head_dim 64 and 128"),
            ({"head_dim_v": 128}, "not 64 and 128"),
            ({"mask": {"left": 4, "right": 0, "align": "top-left"}}, "no window"),
            ({"varlen": {"q": [24], "k": [24]}}, "ragged"),
            ({"batch": 65536}, "at most 65535"),
        ):
            reply = self.prepare("flash", **axes)
            assert reply["type"] == "unsupported", reply
            assert reason in reply["reason"]
        reply = self.prepare("flash", {"lengths": 2}, seq_q=24, seq_k=9)
        assert "seq_q and seq_k must be equal" in reply["reason"]

    def test_parameters_that_are_none(self) -> None:
        for params, reason in (
            ({"lengths": 0}, "lengths=0 is no positive integer"),
            ({"lengths": "many"}, "lengths='many' is no integer"),
            ({"splits": 1}, "no parameter `splits`"),
        ):
            reply = self.prepare("flash", params)
            assert reply["type"] == "failed", reply
            assert reason in reply["reason"]


class TestWithoutAGpu:
    def test_every_case_is_unsupported_in_words(self) -> None:
        worker = support.StartedWorker("triton")
        assert worker.ask("hello", protocol=1)["device"]["kind"] == "cpu"
        reply = worker.prepare("flash", dtype="f16", head_dim=64)
        assert reply["type"] == "unsupported"
        assert "there is none that torch can use" in reply["reason"]
        assert worker.ask("shutdown")["type"] == "bye"
        assert worker.exit_status() == 0
