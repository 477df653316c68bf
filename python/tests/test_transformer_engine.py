"""The TransformerEngine worker: how it calls the library, by values, on a stand-in."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import support

pytest.importorskip("torch")

from regatta_worker.libraries.transformer_engine import mask_arguments
from regatta_worker.problem.attention import Problem

STAND_INS = str(Path(__file__).resolve().parent / "stand_ins")
TOLERANCE = {"f16": 4e-3, "bf16": 2e-2}
SELECTOR = "transformer_engine.pytorch.attention.dot_product_attention.utils:get_attention_backend"
COUNTERS = [{"name": "backend_selections", "functions": [SELECTOR]}]
WINDOW = {"left": 5, "right": 3, "align": "top-left"}
WINDOW_BR = WINDOW | {"align": "bottom-right"}


def started(path: str) -> support.StartedWorker:
    """A worker that sees no GPU and looks for libraries here first."""
    before = os.environ.get("PYTHONPATH")
    os.environ |= {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": path}
    try:
        return support.StartedWorker("transformer_engine")
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before


class TestWindows:
    def test_a_windowed_layer_differs_in_its_window_alone(self) -> None:
        for axes in ({}, {"seq_q": 9}, {"varlen": {"q": [3, 24], "k": [3, 24]}}):
            problem = Problem.from_wire(support.wire(mask=support.CAUSAL, **axes))
            plain, windowed = mask_arguments(problem, False), mask_arguments(problem, True)
            assert plain["window_size"] == (-1, 0)
            assert windowed == plain | {"window_size": (256, 0)}


class TestConversation:
    worker: support.StartedWorker
    hello: dict[str, Any]

    @classmethod
    def setup_class(cls) -> None:
        cls.worker = started(STAND_INS)
        cls.hello = cls.worker.ask("hello", protocol=1)

    @classmethod
    def teardown_class(cls) -> None:
        assert cls.worker.ask("shutdown")["type"] == "bye"
        assert cls.worker.exit_status() == 0

    def prepare(
        self, params: dict[str, Any] | None = None, variant: str = "default", **axes: Any
    ) -> dict[str, Any]:
        problem = support.wire(**{"dtype": "f16"} | axes)
        return self.worker.ask(
            "prepare",
            variant=variant,
            seed=42,
            params=params or {},
            problem=problem,
            counters=COUNTERS,
            input_sets=support.SETS,
        )

    def right(self, reply: dict[str, Any], dtype: str = "f16") -> None:
        assert reply["type"] == "prepared", reply
        for name, error in reply["errors"].items():
            assert error["relative_l2"] < TOLERANCE[dtype], name
        measured = self.worker.ask("measure", **support.PLAN)
        support.right_after_timing(measured, TOLERANCE[dtype], reply)

    def selections(self, params: dict[str, Any] | None = None, **axes: Any) -> int:
        """In one steady call."""
        self.right(self.prepare(params, **axes))
        return int(self.worker.ask("census")["counts"]["calls.backend_selections"])

    def test_hello(self) -> None:
        assert [variant["name"] for variant in self.hello["variants"]] == [
            "default",
            "fused",
            "flash",
            "unfused",
        ]
        parameters = self.hello["variants"][0]["parameters"]
        assert parameters["layers"] == "integer"

    def test_masks_directions_and_sharing_of_heads(self) -> None:
        for mask in (support.FULL, support.CAUSAL, support.CAUSAL_BR, WINDOW, WINDOW_BR):
            for direction in ("forward", "both"):
                every: dict[str, Any] = {"seq_k": 24, "mask": mask, "direction": direction}
                for axes in (every, {**every, "seq_q": 16, "kv_heads": 2, "head_dim_v": 8}):
                    self.right(self.prepare(**axes))
        self.right(self.prepare(dtype="bf16", direction="both"), "bf16")

    def test_one_sided_windows(self) -> None:
        for left, right in ((None, 3), (5, None), (5, 0)):
            mask = {"left": left, "right": right, "align": "bottom-right"}
            self.right(self.prepare(mask=mask, seq_q=16, seq_k=24))

    def test_packed_sequences(self) -> None:
        ragged = {"q": [3, 24], "k": [5, 24]}
        for mask in (support.FULL, support.CAUSAL, support.CAUSAL_BR):
            for direction in ("forward", "both"):
                self.right(self.prepare(varlen=ragged, mask=mask, direction=direction))

    def test_a_call_is_so_many_layers(self) -> None:
        for direction in ("forward", "both"):
            reply = self.prepare({"layers": 4}, direction=direction)
            self.right(reply)
            assert reply["effective"]["layers"] == 4
            assert reply["problems"] == 4

    def test_the_backend_is_told_and_selected_anew_for_each_case(self) -> None:
        for variant, backend in (
            ("default", "fused-1"),
            ("unfused", "unfused"),
            ("fused", "fused-1"),
        ):
            reply = self.prepare(variant=variant)
            assert reply["effective"] == {"layers": 1, "backend": backend}

    def test_why_there_is_no_backend(self) -> None:
        reply = self.prepare(variant="flash")
        assert reply["type"] == "unsupported"
        for words in (
            "No dot product attention backend is available.",
            "Disabling FusedAttention due to NVTE_FUSED_ATTN=0.",
            "Disabling UnfusedDotProductAttention due to NVTE_UNFUSED_ATTN=0.",
        ):
            assert words in reply["reason"]
        # Nor does the next case find what was selected, or set, for this one.
        assert self.prepare()["effective"]["backend"] == "fused-1"

    def test_selections_in_steady_state(self) -> None:
        causal: dict[str, Any] = {"mask": support.CAUSAL}
        alternate, eight = {"windows": "alternate"}, {"layers": 8}
        fp8 = {"fp8": "autocast"}
        for params, selections in (
            ({}, 0),
            (eight, 0),
            (eight | fp8, 0),
            (eight | alternate, 8),
        ):
            for direction in ("forward", "both"):
                found = self.selections(params, direction=direction, **causal)
                assert found == selections

    def test_what_it_does_not_do(self) -> None:
        for params, axes, words in (
            ({}, {"layout": "bhsd"}, "takes bshd, sbhd and thd"),
            ({"windows": "alternate"}, {"mask": support.CAUSAL}, "two or more"),
            ({"windows": "alternate", "layers": 2}, {}, "causal mask"),
            ({"windows": "alternate", "layers": 2}, {"mask": WINDOW}, "causal mask"),
        ):
            reply = self.prepare(params, **axes)
            assert reply["type"] == "unsupported", reply
            assert words in reply["reason"]

    def test_mistakes_are_failures(self) -> None:
        for params, words in (
            ({"layers": 0}, "no positive integer"),
            ({"fp8": "attention"}, "fp8='attention' is neither"),
            ({"windows": "wide"}, "windows='wide'"),
        ):
            reply = self.prepare(params)
            assert reply["type"] == "failed", reply
            assert words in reply["reason"]
