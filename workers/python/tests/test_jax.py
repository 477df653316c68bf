"""A conversation with a started worker, JAX on the CPU."""

from __future__ import annotations

import os
import unittest
from typing import Any

import support

TOLERANCE = {"f32": 1e-5, "f16": 2e-3, "bf16": 1.5e-2}


@unittest.skipUnless(support.installed("jax"), "jax is not installed")
class Conversation(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        os.environ["JAX_PLATFORMS"] = "cpu"
        cls.worker = support.StartedWorker("jax")
        cls.hello = cls.worker.ask("hello", protocol=1)

    @classmethod
    def tearDownClass(cls) -> None:
        assert cls.worker.ask("shutdown")["type"] == "bye"
        assert cls.worker.exit_status() == 0

    def right(self, reply: dict[str, Any], dtype: str = "f32") -> None:
        self.assertEqual(reply["type"], "prepared", reply)
        for name, error in reply["errors"].items():
            self.assertLess(error["relative_l2"], TOLERANCE[dtype], name)
            self.assertEqual(len(reply["probes"][name]), 16)
        self.assertGreater(reply["first_call_ns"], 0)

    def refused(self, reply: dict[str, Any], words: str) -> None:
        self.assertEqual(reply["type"], "unsupported", reply)
        self.assertIn(words, reply["reason"])

    def test_hello(self) -> None:
        self.assertEqual((self.hello["type"], self.hello["protocol"]), ("hello", 1))
        self.assertEqual(self.hello["device"]["kind"], "cpu")
        self.assertGreater(self.hello["device"]["memory_bytes"], 0)
        self.assertLessEqual({"jax", "jaxlib", "python"}, set(self.hello["versions"]))
        self.assertEqual([v["name"] for v in self.hello["variants"]], ["xla", "cudnn"])
        self.assertFalse(any(v["tf32"] for v in self.hello["variants"]))

    def test_every_direction_and_layout(self) -> None:
        for layout in ("bshd", "bhsd"):
            for direction, results in (
                ("forward", ["out"]),
                ("backward", ["dq", "dk", "dv"]),
                ("both", ["out", "dq", "dk", "dv"]),
            ):
                reply = self.worker.prepare("xla", layout=layout, direction=direction)
                with self.subTest(layout=layout, direction=direction):
                    self.right(reply)
                    self.assertEqual(list(reply["errors"]), results)

    def test_masks_and_grouped_heads(self) -> None:
        for mask in (
            support.CAUSAL,
            support.CAUSAL_BR,
            {"left": 5, "right": 0, "align": "top-left"},
            {"left": 5, "right": 3, "align": "bottom-right"},
            {"left": None, "right": 3, "align": "top-left"},
            {"left": 5, "right": None, "align": "top-left"},
        ):
            for kv_heads in (1, 2, 4):
                with self.subTest(mask=mask, kv_heads=kv_heads):
                    axes = {"seq_q": 9, "seq_k": 13, "kv_heads": kv_heads, "mask": mask}
                    self.right(self.worker.prepare("xla", direction="both", **axes))

    def test_bfloat16(self) -> None:
        self.right(self.worker.prepare("xla", dtype="bf16", direction="both"), "bf16")

    def test_probes_do_not_depend_on_the_layout(self) -> None:
        found = [self.worker.prepare("xla", layout=x)["probes"]["out"] for x in ("bshd", "bhsd")]
        for one, other in zip(*found, strict=True):
            self.assertAlmostEqual(one, other, places=5)

    def test_what_jax_does_not_do(self) -> None:
        prepare = self.worker.prepare
        self.refused(prepare("cudnn", dtype="bf16"), "cuDNN")
        self.refused(prepare("xla", head_dim_v=8), "value shape should be")
        self.refused(prepare("xla", seq_q=9, seq_k=5, mask=support.CAUSAL_BR), "sees no key")
        ragged = {"q": [24, 3], "k": [24, 3]}
        self.refused(prepare("xla", varlen=ragged), "ragged")

    def test_mistakes_are_failures(self) -> None:
        for reply, words in (
            (self.worker.prepare("nope"), "no variant `nope`"),
            (self.worker.prepare("xla", {"num_splits_key": 3}), "num_splits_key"),
            (self.worker.prepare("xla", dtype="f8"), "dtype"),
            (self.worker.ask("prepare", variant="xla", seed=1), "`problem`"),
            (self.worker.ask("hello", protocol=7), "protocol 7"),
            (self.worker.send(b"{nonsense"), "malformed"),
        ):
            self.assertEqual(reply["type"], "failed", reply)
            self.assertIn(words, reply["reason"])

    def test_measure_census_release(self) -> None:
        self.right(self.worker.prepare("xla", direction="backward"))
        plan = {"warmup": 1, "samples": 3, "min_samples": 3, "budget_ms": 0}
        for cache in ("hot", "cold"):
            measured = self.worker.ask("measure", cache=cache, **plan)
            self.assertEqual(measured["type"], "measured", measured)
            self.assertEqual(len(measured["device_ns"]), 3)
            self.assertTrue(all(ns > 0 for ns in measured["device_ns"]))
            self.assertEqual(measured["host_ns"], [])
            self.assertGreater(measured["peak_bytes"], 0)
        census = self.worker.ask("census")
        self.assertEqual((census["type"], census["launches"]), ("census", []))
        self.assertEqual(self.worker.ask("release")["type"], "released")
        self.assertEqual(self.worker.ask("measure", cache="hot", **plan)["type"], "failed")
        self.assertEqual(self.worker.ask("census")["type"], "failed")


class Ending(unittest.TestCase):
    def test_a_missing_library_is_absent_in_hello(self) -> None:
        # -S leaves the installed packages out, so neither library is there.
        for library in ("jax", "torch"):
            worker = support.StartedWorker(library, "-S")
            reply = worker.ask("hello", protocol=1)
            self.assertEqual((reply["type"], reply["variants"]), ("hello", []))
            self.assertIn(f"`{library}`", reply["absent"])
            self.assertIn("pip install", reply["absent"])
            self.assertEqual(worker.exit_status(), 0, "the end of requests is a good end")
            self.assertIn(b"Traceback", worker.log)

    def test_started_by_hand_it_says_so(self) -> None:
        import subprocess

        command = [support.sys.executable, str(support.WORKER / "main.py"), "--library", "jax"]
        done = subprocess.run(command, capture_output=True, text=True, close_fds=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("descriptor 3 is not open", done.stderr)


if __name__ == "__main__":
    unittest.main()
