"""The Triton worker: its kernel by Triton's interpreter, and the lengths it draws."""

from __future__ import annotations

import importlib.metadata
import os
import unittest
from typing import Any

import support

if not (support.installed("torch") and support.installed("triton")):
    raise unittest.SkipTest("torch and triton are not installed")

from regatta_worker.libraries.triton import tuning_key
from regatta_worker.problem.lengths import Lengths
from regatta_worker.protocol.channel import Failed, Unsupported

TOLERANCE = 2e-3


def interpreter_works() -> bool:
    """Triton 3.6 interprets loops by `int(array)`, which NumPy refuses from 2.4 on."""
    if not support.installed("numpy"):
        return False
    return tuple(map(int, importlib.metadata.version("numpy").split(".")[:2])) < (2, 4)


class Drawing(unittest.TestCase):
    def test_no_length_twice_and_all_in_one_bucket(self) -> None:
        for longest, a_call in ((4096, 24), (128, 4), (100, 1), (37, 3)):
            lengths, calls, seen = Lengths(longest, a_call), 0, []
            self.assertEqual(lengths._calls, (longest - longest // 2) // a_call)
            for calls in range(lengths._calls):
                drawn = lengths.draw()
                self.assertEqual(len(drawn), a_call)
                self.assertEqual(drawn, sorted(drawn, reverse=True))
                self.assertEqual(drawn[0], longest - calls)
                seen += drawn
            self.assertEqual(len(set(seen)), len(seen))
            self.assertGreater(min(seen), longest // 2)
            with self.assertRaisesRegex(Failed, f"new lengths for {lengths._calls} calls"):
                lengths.draw()
        bucketed = {tuning_key("flash", length) for length in range(2049, 4097)}
        self.assertEqual(bucketed, {4096})
        self.assertEqual(len({tuning_key("flash-exact", n) for n in range(2049, 4097)}), 2048)

    def test_more_lengths_than_there_are(self) -> None:
        with self.assertRaisesRegex(Unsupported, "lengths=9: .* there are 8"):
            Lengths(16, 9)


class Conversation(unittest.TestCase):
    worker: support.StartedWorker
    hello: dict[str, Any]

    @classmethod
    def setUpClass(cls) -> None:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        os.environ["TRITON_INTERPRET"] = "1"
        try:
            cls.worker = support.StartedWorker("triton")
        finally:
            del os.environ["TRITON_INTERPRET"]
        cls.hello = cls.worker.ask("hello", protocol=1)

    @classmethod
    def tearDownClass(cls) -> None:
        assert cls.worker.ask("shutdown")["type"] == "bye"
        assert cls.worker.exit_status() == 0

    def prepare(self, variant: str, params: Any = None, **axes: Any) -> dict[str, Any]:
        shape = {"batch": 1, "heads": 1, "head_dim": 64, "dtype": "f16"}
        reply: dict[str, Any] = self.worker.prepare(variant, params, **shape | axes)
        return reply

    def right(self, reply: dict[str, Any]) -> None:
        self.assertEqual(reply["type"], "prepared", reply)
        self.assertLess(reply["errors"]["out"]["relative_l2"], TOLERANCE)
        self.assertEqual(len(reply["probes"]["out"]), 16)

    def right_after_timing(self, reply: dict[str, Any]) -> None:
        """The last timed call; where it drew its lengths, these are not the problem's own."""
        self.right(reply)
        measured = self.worker.ask("measure", **support.PLAN)
        if reply["effective"] == {"lengths": 1}:
            support.right_after_timing(self, measured, TOLERANCE, reply)
            return
        self.assertEqual((measured["checked"]["seed"], measured["checked"]["probes"]), (43, {}))
        self.assertLess(measured["checked"]["errors"]["out"]["relative_l2"], TOLERANCE)

    def test_hello(self) -> None:
        names = [variant["name"] for variant in self.hello["variants"]]
        self.assertEqual(names, ["flash", "flash-exact"])
        self.assertIn("triton", self.hello["versions"])

    @unittest.skipUnless(interpreter_works(), "Triton's interpreter needs NumPy below 2.4")
    def test_right_for_every_mask_layout_and_sharing_of_heads(self) -> None:
        for mask in (support.FULL, support.CAUSAL, support.CAUSAL_BR):
            for layout in ("bshd", "bhsd"):
                axes = {"mask": mask, "layout": layout, "seq_q": 70, "seq_k": 40}
                with self.subTest(**axes):
                    self.right_after_timing(self.prepare("flash", heads=2, kv_heads=1, **axes))
        self.right(self.prepare("flash", head_dim=128, seq_q=40))

    @unittest.skipUnless(interpreter_works(), "Triton's interpreter needs NumPy below 2.4")
    def test_lengths_that_are_drawn_are_right_after_timing(self) -> None:
        for axes in ({"mask": support.CAUSAL}, {"batch": 2, "heads": 2, "kv_heads": 1}):
            self.right_after_timing(self.prepare("flash", {"lengths": 2}, seq_q=40, **axes))

    @unittest.skipUnless(interpreter_works(), "Triton's interpreter needs NumPy below 2.4")
    def test_the_variant_tuned_on_exact_lengths_retunes_for_each(self) -> None:
        for variant, retuned in (("flash", 0), ("flash-exact", 3)):
            reply = self.prepare(variant, {"lengths": 3}, seq_q=72, mask=support.CAUSAL)
            self.right(reply)
            self.assertEqual(reply["effective"], {"lengths": 3})
            plan = {"warmup": 0, "samples": 1, "min_samples": 1, "budget_ms": 0, "cache": "hot"}
            refused = self.worker.ask("measure", **plan, graph=True)
            self.assertEqual(refused["type"], "unsupported", refused)
            self.assertIn("replays the lengths", refused["reason"])
            counts = self.worker.ask("census")["counts"]
            self.assertEqual(counts["calls.triton_autotune"], retuned)
            self.assertEqual(counts["calls.triton_compile"], 0)
            # Without lengths a call is of the problem's own, over and over.
            self.assertEqual(self.prepare(variant, seq_q=64)["effective"], {"lengths": 1})
            counts = self.worker.ask("census")["counts"]
            self.assertEqual(counts["calls.triton_autotune"], 0)

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
            with self.subTest(reason):
                reply = self.prepare("flash", **axes)
                self.assertEqual(reply["type"], "unsupported", reply)
                self.assertIn(reason, reply["reason"])
        reply = self.prepare("flash", {"lengths": 2}, seq_q=24, seq_k=9)
        self.assertIn("seq_q and seq_k must be equal", reply["reason"])

    def test_parameters_that_are_none(self) -> None:
        for params, reason in (
            ({"lengths": 0}, "lengths=0 is no positive integer"),
            ({"lengths": "many"}, "lengths='many' is no integer"),
            ({"splits": 1}, "no parameter `splits`"),
        ):
            reply = self.prepare("flash", params)
            self.assertEqual(reply["type"], "failed", reply)
            self.assertIn(reason, reply["reason"])


class WithoutAGpu(unittest.TestCase):
    def test_every_case_is_unsupported_in_words(self) -> None:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        worker = support.StartedWorker("triton")
        self.assertEqual(worker.ask("hello", protocol=1)["device"]["kind"], "cpu")
        reply = worker.prepare("flash", dtype="f16", head_dim=64)
        self.assertEqual(reply["type"], "unsupported")
        self.assertIn("there is none that torch can use", reply["reason"])
        self.assertEqual(worker.ask("shutdown")["type"], "bye")
        self.assertEqual(worker.exit_status(), 0)


if __name__ == "__main__":
    unittest.main()
