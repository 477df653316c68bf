"""The torch worker: for real on the CPU, and its CUDA calls by shape alone."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from itertools import product
from typing import Any
from unittest import mock

import pytest

import support

pytest.importorskip("torch")

import torch

from regatta_worker.on_torch.case import Call, TorchCase
from regatta_worker.on_torch.library import Library, Row, TorchWorker, copies
from regatta_worker.problem.variant import Variant
from regatta_worker.protocol.channel import Unsupported
from regatta_worker.protocol.refusals import refusal
from regatta_worker.serving import Session

TOLERANCE = {"f32": 1e-5, "f16": 2e-3, "bf16": 1.5e-2}
RAGGED = {"q": [3, 24], "k": [5, 24]}


class TestRefusals:
    """Which exceptions are a library's own refusal of a case, and which no suite may allow."""

    @pytest.mark.parametrize(
        "words",
        [
            "CUDA error: an illegal memory access was encountered",
            "Triton Error [CUDA]: an illegal memory access was encountered",
            "CUDA driver error: invalid device context",
            "unspecified launch failure",
            "Ninja build failed. Ninja output:\nnvcc fatal   : Unsupported gpu architecture",
            "CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`",
        ],
    )
    def test_what_broke_is_no_refusal(self, words: str) -> None:
        error = RuntimeError(words)
        assert refusal(error, []) is error

    @pytest.mark.parametrize("kind", [RuntimeError, ValueError, AssertionError])
    def test_a_check_that_is_not_passed_is_one(self, kind: type[Exception]) -> None:
        found = refusal(kind("a multiple of 8"), ["16 bits (Triggered internally at sdp.cpp:1)"])
        assert isinstance(found, Unsupported)
        assert str(found) == "a multiple of 8 16 bits"

    def test_mistakes_of_the_worker_itself_are_none(self) -> None:
        def raised(line: str, filename: str) -> Exception:
            try:
                exec(compile(line, filename, "exec"), {})
            except Exception as error:
                return error
            raise AssertionError(line)

        ours, theirs = str(support.WORKER / "some_calls.py"), "/site-packages/library/calls.py"
        for line in ("assert 1 == 2, 'shapes'", "dict(zip('ab', 'c', strict=True))", "a, b = 'c'"):
            error = raised(line, ours)
            assert refusal(error, []) is error
            assert isinstance(refusal(raised(line, theirs), []), Unsupported)
        # As a compiled library raises it, which has no frame.
        assert isinstance(refusal(raised("raise ValueError('f64')", ours), []), Unsupported)


def library(build: Callable[[TorchCase], Call]) -> TorchWorker:
    """A library of one variant."""
    variant = Variant("v", ("f32",), parameters={"plan": ("once", "each")})
    return TorchWorker(Library("one", rows={"v": Row(variant, build, on_gpu=False)}))


@pytest.mark.parametrize("plan", ["once", "each"])
def test_what_each_call_makes_anew_is_no_graphs(plan: str) -> None:
    def build(case: TorchCase) -> Call:
        v = case.tensors["v"]
        return Call(lambda: (v + v,), varies=case.params.get("plan") == "each")

    worker = library(build)
    worker.prepare({"variant": "v", "seed": 1, "params": {"plan": plan}, "problem": support.wire()})
    with pytest.raises(Unsupported) as refused:
        worker.measure(support.PLAN | {"graph": True})
    assert ("each call is to make its own" in str(refused.value)) == (plan == "each")


@pytest.mark.parametrize(("recovers", "answer"), [(False, "lost"), (True, "failed")])
def test_a_device_that_fails_every_call_is_lost(recovers: bool, answer: str) -> None:
    """It breaks in the call made after the first; so does all that follows, unless it recovers."""
    words, calls, broken = "CUDA error: an illegal memory access was encountered", [0], [False]

    def build(case: TorchCase) -> Call:
        def run() -> tuple[torch.Tensor, ...]:
            calls[0] += 1
            if calls[0] > 1:
                broken[0] = True
                raise RuntimeError(f"{words}\nMore.")
            return (case.tensors["v"],)

        return Call(run)

    def wait(results: Any = None) -> None:
        if broken[0]:
            broken[0] = not recovers
            raise RuntimeError(words)

    worker = library(build)
    session = Session(lambda: worker)
    session.answer(b'{"id":1,"type":"hello","protocol":1}')
    counter = {"name": "dumps", "functions": ["json:dumps"]}
    request = {"id": 2, "type": "prepare", "variant": "v", "seed": 1}
    request |= {"problem": support.wire(), "counters": [counter]}
    assert session.answer(json.dumps(request).encode())["type"] == "prepared"
    with contextlib.redirect_stderr(io.StringIO()), mock.patch.object(worker, "wait", wait):
        reply = session.answer(b'{"id":3,"type":"census"}')
    assert reply["type"] == answer
    assert recovers or reply == {"id": 3, "type": "lost", "reason": words}


class TestConversation(support.Conversing):
    LIBRARY = "torch"

    def right(self, reply: dict[str, Any], dtype: str = "f32") -> None:
        support.right(reply, TOLERANCE[dtype])
        measured = self.worker.ask("measure", **support.PLAN)
        support.right_after_timing(measured, TOLERANCE[dtype], reply)

    def test_hello(self) -> None:
        names = [variant["name"] for variant in self.hello["variants"]]
        sdpa = ["sdpa-math", "sdpa-flash", "sdpa-efficient", "sdpa-cudnn"]
        assert names == [*sdpa, "efficient", "flash", "flex", "varlen"]
        efficient = self.hello["variants"][names.index("efficient")]
        assert efficient["parameters"]["num_splits_key"] == "integer"
        assert self.hello["device"]["kind"] == "cpu"

    @pytest.mark.parametrize("variant", ["sdpa-math", "sdpa-flash"])
    @pytest.mark.parametrize("direction", ["forward", "backward", "both"])
    def test_sdpa_on_the_cpu(self, variant: str, direction: str) -> None:
        masks = (support.FULL, support.CAUSAL, {"left": 4, "right": 2, "align": "bottom-right"})
        for mask, layout, access in product(masks, ("bshd", "bhsd"), ("views", "copies")):
            axes = {"mask": mask, "layout": layout, "direction": direction, "kv_heads": 2}
            reply = self.worker.prepare(variant, {"access": access}, **axes)
            self.right(reply)
            assert reply["effective"] == {"access": access}

    def test_bottom_right_is_never_is_causal(self) -> None:
        for seq_q, seq_k in ((9, 24), (24, 9)):
            reply = self.worker.prepare(
                "sdpa-math", direction="both", seq_q=seq_q, seq_k=seq_k, mask=support.CAUSAL_BR
            )
            self.right(reply)

    def test_half_types(self) -> None:
        for dtype in ("f16", "bf16"):
            self.right(self.worker.prepare("sdpa-math", dtype=dtype, direction="both"), dtype)

    @pytest.mark.parametrize(
        ("variant", "axes", "words"),
        [
            ("sdpa-flash", {"head_dim_v": 8}, "the same last dimension"),
            ("sdpa-cudnn", {}, "backend"),
            ("sdpa-math", {"varlen": RAGGED}, "ragged"),
            ("efficient", {}, "aten::_efficient_attention_forward"),
            ("flash", {}, "aten::_flash_attention_forward"),
        ],
    )
    def test_refusals_are_the_librarys(self, variant: str, axes: Any, words: str) -> None:
        self.refused(self.worker.prepare(variant, **axes), words)

    def test_mistakes_are_failures(self) -> None:
        for variant, params in (
            ("sdpa-math", {"num_splits_key": 1}),
            ("efficient", {"num_splits_key": "many"}),
            ("efficient", {"access": "sideways"}),
        ):
            reply = self.worker.prepare(variant, params)
            assert reply["type"] == "failed", reply

    def test_measure_and_census(self) -> None:
        self.right(self.worker.prepare("sdpa-flash", direction="backward"))
        plan = {"warmup": 1, "samples": 3, "min_samples": 3, "budget_ms": 0}
        for cache in ("hot", "cold"):
            measured = self.worker.ask("measure", cache=cache, **plan)
            assert len(measured["device_ns"]) == 3, measured
            assert measured["host_ns"] == []
            assert "host_reference_ns" not in measured
        census = self.worker.ask("census")
        assert (census["launches"], census["counts"]) == ([], {})


class TestCensus:
    def test_elementwise_kernels_of_torch_that_copy_are_copies(self) -> None:
        copy = "void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda>"
        assert copies({"name": copy})
        assert not copies({"name": "flash_fwd_kernel"})
