"""The model of TransformerEngine's selection: how often it selects, and what its calls give."""

from __future__ import annotations

import os
import unittest
from dataclasses import replace
from typing import Any
from unittest import mock

import support

from regatta_worker.on_torch import te_selection
from regatta_worker.on_torch.te_selection import (
    AttentionParams,
    Recipe,
    SelectionCache,
    fp8_meta,
    select_backend,
)

PARAMS = AttentionParams(
    qkv_dtype="bf16",
    qkv_layout="bshd_bshd_bshd",
    batch_size=2,
    num_heads=16,
    num_gqa_groups=16,
    max_seqlen_q=1024,
    max_seqlen_kv=1024,
    head_dim_qk=64,
    head_dim_v=64,
    attn_mask_type="causal",
    window_size=(-1, 0),
    bottom_right_diagonal=False,
    is_training=True,
    fp8=False,
    fp8_meta=fp8_meta(None),
)
COUNTERS = [
    {
        "name": "backend_selections",
        "functions": ["regatta_worker.on_torch.te_selection:select_backend"],
    }
]


class Cache(unittest.TestCase):
    def selections(self, slots: int, same: Any, layers: list[AttentionParams], calls: int) -> int:
        cache = SelectionCache(slots, same)
        with mock.patch.object(te_selection, "select_backend", wraps=select_backend) as selected:
            for _ in range(calls):
                for layer in layers:
                    self.assertEqual(cache.backend(replace(layer)), "fused")
        return selected.call_count

    def test_modules_that_differ_in_their_scales_alone(self) -> None:
        """32 layers, 50 iterations, as emulated when the old comparison was looked into."""
        recipe = Recipe()
        layers = [replace(PARAMS, fp8=True, fp8_meta=fp8_meta(recipe)) for _ in range(32)]
        old, new = te_selection.same_in_every_field, te_selection.same_recipe
        self.assertEqual(self.selections(1, old, layers, 50), 1600)
        self.assertEqual(self.selections(1, new, layers, 50), 1)
        # One module alone has one dictionary, and out of fp8 no scales.
        self.assertEqual(self.selections(1, old, layers[:1], 50), 1)
        without = [replace(PARAMS, fp8_meta=fp8_meta(None)) for _ in range(32)]
        self.assertEqual(self.selections(1, old, without, 50), 1)

    def test_another_recipe_is_another_selection(self) -> None:
        layers = [
            replace(PARAMS, fp8=True, fp8_meta=fp8_meta(Recipe(amax_history_len=length)))
            for length in (16, 1024)
        ]
        self.assertEqual(self.selections(1, te_selection.same_recipe, layers, 5), 10)

    def test_windows_in_turn(self) -> None:
        layers = [replace(PARAMS, window_size=(left, 0)) for left in (-1, 256)] * 16
        same = te_selection.same_recipe
        self.assertEqual(self.selections(1, same, layers, 50), 1600)
        self.assertEqual(self.selections(2, same, layers, 50), 2)


class Selection(unittest.TestCase):
    def test_filters(self) -> None:
        for changes, backend in (
            ({}, "fused"),
            ({"softcap": 30.0}, "flash"),
            ({"window_size": (256, 8), "attn_mask_type": "no_mask"}, "flash"),
            ({"num_splits": 4, "max_seqlen_q": 7}, "unfused"),
            ({"qkv_dtype": "f32"}, "unfused"),
            ({"qkv_dtype": "f32", "context_parallel": True}, "none"),
        ):
            with self.subTest(**changes):
                self.assertEqual(select_backend(replace(PARAMS, **changes)), backend)

    def test_the_environment_is_asked_in_each_selection(self) -> None:
        with mock.patch.dict(os.environ, {"NVTE_FUSED_ATTN": "0"}):
            self.assertEqual(select_backend(PARAMS), "flash")
        self.assertEqual(select_backend(PARAMS), "fused")


@unittest.skipUnless(support.installed("torch"), "torch is not installed")
class Conversation(support.Conversing):
    LIBRARY = "te_model"

    def prepare(self, variant: str, params: dict[str, Any], **axes: Any) -> dict[str, Any]:
        problem = support.wire(**{"mask": support.CAUSAL} | axes)
        asked = {"variant": variant, "seed": 42, "params": params, "problem": problem}
        return self.worker.ask("prepare", **asked, counters=COUNTERS, input_sets=support.SETS)

    def test_says_that_it_is_a_model(self) -> None:
        for variant in self.hello["variants"]:
            self.assertIn("a model of TransformerEngine", variant["summary"])
        self.assertNotIn("transformer_engine", self.hello["versions"])

    def test_selections_in_steady_state_and_values(self) -> None:
        eight, alternate = {"layers": 8}, {"windows": "alternate"}
        old, fp8 = {"comparison": "before-2.1"}, {"fp8": "autocast"}
        for variant, params, selections in (
            ("one-slot", {}, 0),
            ("one-slot", eight | fp8, 0),
            ("one-slot", eight | alternate, 8),
            ("two-slots", eight | alternate, 0),
            ("one-slot", eight | old, 0),
            ("one-slot", eight | old | fp8, 8),
            ("two-slots", eight | old | fp8, 8),
        ):
            for direction in ("forward", "both"):
                with self.subTest(variant=variant, direction=direction, **params):
                    # Longer than the window, so that a windowed layer's result is another.
                    reply = self.prepare(variant, params, seq_q=300, direction=direction)
                    self.assertEqual(reply["type"], "prepared", reply)
                    for name, error in reply["errors"].items():
                        self.assertLess(error["relative_l2"], 1e-5, name)
                    measured = self.worker.ask("measure", **support.PLAN)
                    support.right_after_timing(self, measured, 1e-5, reply)
                    self.assertEqual(reply["effective"]["layers"], params.get("layers", 1))
                    counts = self.worker.ask("census")["counts"]
                    self.assertEqual(counts["calls.backend_selections"], selections)
                    self.assertEqual("ns.backend_selections" in counts, selections > 0)

    def test_what_it_does_not_do(self) -> None:
        window = {"left": 4, "right": 0, "align": "top-left"}
        for params, axes, words in (
            ({"windows": "alternate"}, {}, "two or more"),
            ({"windows": "alternate", "layers": 2}, {"mask": support.FULL}, "causal mask"),
            ({}, {"mask": window}, "full and causal"),
        ):
            reply = self.prepare("one-slot", params, **axes)
            self.assertEqual(reply["type"], "unsupported", reply)
            self.assertIn(words, reply["reason"])
        self.assertEqual(self.prepare("one-slot", {"layers": -1})["type"], "failed")


if __name__ == "__main__":
    unittest.main()
