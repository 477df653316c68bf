"""The torch worker: for real on the CPU, and its CUDA calls by shape alone."""

from __future__ import annotations

import contextlib
import io
import json
from itertools import product
from typing import Any

import pytest

import support

pytest.importorskip("torch")

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from regatta_worker.on_torch.case import Asked, Built, Variant
from regatta_worker.on_torch.census import _copies
from regatta_worker.on_torch.library import TorchLibrary
from regatta_worker.on_torch.variants import Access, build_efficient
from regatta_worker.problem import inputs
from regatta_worker.problem.attention import Problem
from regatta_worker.problem.reference import Arrays, ReferenceCache
from regatta_worker.protocol.channel import Unsupported
from regatta_worker.protocol.refusals import refusal
from regatta_worker.serving import Session

TOLERANCE = {"f32": 1e-5, "f16": 2e-3, "bf16": 1.5e-2}
RAGGED = {"q": [3, 24], "k": [5, 24]}


class TestInputs:
    def test_the_layout_is_in_the_strides(self) -> None:
        for layout in ("bshd", "bhsd"):
            problem = Problem.from_wire(support.wire(layout=layout))
            tensor = inputs.torch_input(problem, "q", 1, torch.float16, "cpu")
            assert tuple(tensor.shape) == (2, 24, 4, 16)
            held = tensor if layout == "bshd" else tensor.transpose(1, 2)
            assert held.is_contiguous()

    @pytest.mark.skipif(not support.installed("numpy"), reason="numpy is not installed")
    def test_numpy_makes_the_same(self) -> None:
        import numpy as np

        for seed in (42, (1 << 64) - 1):
            theirs = inputs.numpy_elements(seed, "v", 3, 1000)
            ours = inputs.torch_elements(seed, "v", 3, 1000, "cpu").numpy()
            assert (ours == theirs).all()
        axes = {"kv_heads": 2, "direction": "both", "mask": support.CAUSAL_BR, "seq_k": 9}
        problem = Problem.from_wire(support.wire(**axes))
        values = {t: inputs.numpy_input(problem, t, 5, np.float32) for t in inputs.TENSORS}
        tensors = {name: torch.from_numpy(value.copy()) for name, value in values.items()}
        ours = ReferenceCache(Arrays.of_torch("cpu")).of(problem, 5, tensors)
        for name, value in ReferenceCache(Arrays.of_numpy()).of(problem, 5, values).items():
            np.testing.assert_allclose(ours[name].numpy(), value, atol=1e-12)


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


class Doubling(TorchLibrary):
    """A library of one variant, whose host does new work in each call under `plan = each`."""

    NAME = "doubling"

    def variants(self) -> dict[str, Variant]:
        return {"twice": Variant("v", ("f32",), parameters={"plan": ("once", "each")})}

    def build(self, asked: Asked) -> Built:
        v = asked.tensors["v"]
        return Built(lambda: (v + v,), varies=asked.params.get("plan") == "each")


class TestGraphs:
    def refused(self, params: dict[str, str]) -> str:
        library = Doubling()
        request = {"variant": "twice", "seed": 1, "params": params, "problem": support.wire()}
        library.prepare(request)
        plan = {"warmup": 0, "samples": 1, "min_samples": 1, "budget_ms": 0, "cache": "hot"}
        with pytest.raises(Unsupported) as refused:
            library.measure(plan | {"graph": True})
        return str(refused.value)

    def test_what_each_call_makes_anew_is_no_graphs(self) -> None:
        assert "each call is to make its own" in self.refused({"plan": "each"})
        assert "each call is to make its own" not in self.refused({"plan": "once"})


class Poisoned(Doubling):
    """Breaks in the call made after the first; so does all that follows, unless it recovers."""

    recovers = False
    broken = False
    calls = 0

    def build(self, asked: Asked) -> Built:
        def call() -> tuple[torch.Tensor, ...]:
            self.calls += 1
            if self.calls > 1:
                self.broken = True
                raise RuntimeError("CUDA error: an illegal memory access was encountered\nMore.")
            return (asked.tensors["v"],)

        return Built(call)

    def _synchronize(self) -> None:
        if self.broken:
            self.broken = not self.recovers
            raise RuntimeError("CUDA error: an illegal memory access was encountered")


class TestLostDevices:
    def counted(self, library: Poisoned) -> dict[str, Any]:
        session = Session(lambda: library)
        session.answer(b'{"id":1,"type":"hello","protocol":1}')
        counter = {"name": "dumps", "functions": ["json:dumps"]}
        request = {"id": 2, "type": "prepare", "variant": "twice", "seed": 1}
        request |= {"problem": support.wire(), "counters": [counter]}
        assert session.answer(json.dumps(request).encode())["type"] == "prepared"
        with contextlib.redirect_stderr(io.StringIO()):
            return session.answer(b'{"id":3,"type":"census"}')

    def test_a_device_that_fails_every_call_is_lost(self) -> None:
        reply = self.counted(Poisoned())
        words = "CUDA error: an illegal memory access was encountered"
        assert reply == {"id": 3, "type": "lost", "reason": words}

    def test_one_that_goes_on_has_failed_a_case(self) -> None:
        library = Poisoned()
        library.recovers = True
        assert self.counted(library)["type"] == "failed"


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


class TestEfficientByShape:
    """The ops' schemas and the shapes of what they return, without a GPU."""

    def call(self, splits: int | None = None, copies: bool = False, **axes: Any) -> Any:
        problem = Problem.from_wire(support.wire(**axes))
        with FakeTensorMode():
            tensors = {}
            for name in inputs.TENSORS:
                tensor = torch.empty(problem.shape(name), device="cuda")
                if problem.layout == "bhsd":
                    tensor = tensor.transpose(1, 2).contiguous().transpose(1, 2)
                tensors[name] = tensor
            results = build_efficient(problem, tensors, Access(problem, copies), splits)()
        assert [tuple(result.shape) for result in results] == [
            problem.shape(name) for name in problem.results
        ]
        return results

    def test_directions(self) -> None:
        for direction in ("forward", "backward", "both"):
            self.call(direction=direction)
            self.call(direction=direction, mask=support.CAUSAL_BR, seq_q=9)
            self.call(direction=direction, varlen=RAGGED, mask=support.CAUSAL)
        self.call(mask={"left": 4, "right": 0, "align": "top-left"})

    def test_num_splits_key_reaches_backward_only(self) -> None:
        for splits in (-1, 1, 4):
            self.call(splits, direction="backward")
            with pytest.raises(Unsupported):
                self.call(splits, direction="forward")

    def test_copies_come_back_in_the_callers_layout(self) -> None:
        for result in self.call(copies=True, layout="bhsd", direction="both"):
            assert result.transpose(1, 2).is_contiguous()

    def test_grouped_heads(self) -> None:
        self.call(kv_heads=1)
        for axes in ({"kv_heads": 2}, {"kv_heads": 1, "direction": "backward"}):
            with pytest.raises(Unsupported):
                self.call(**axes)


class TestCensus:
    def test_elementwise_kernels_of_torch_that_copy_are_copies(self) -> None:
        copy = "void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda>"
        assert _copies({"name": copy})
        assert not _copies({"name": "flash_fwd_kernel"})
