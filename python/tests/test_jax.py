"""A conversation with a started worker, JAX on the CPU."""

from __future__ import annotations

import sys
from typing import Any
from unittest import mock

import pytest

import support
from regatta_worker.protocol.channel import Failed, Lost, Unsupported

TOLERANCE = {"f32": 1e-5, "f16": 2e-3, "bf16": 1.5e-2}


@pytest.mark.skipif(not support.installed("jax"), reason="jax is not installed")
class TestConversation(support.Conversing):
    LIBRARY = "jax"

    def right(self, reply: dict[str, Any], dtype: str = "f32") -> None:
        support.right(reply, TOLERANCE[dtype])
        assert reply["first_call_ns"] > 0
        measured = self.worker.ask("measure", **support.PLAN)
        support.right_after_timing(measured, TOLERANCE[dtype], reply)

    def test_hello(self) -> None:
        assert (self.hello["type"], self.hello["protocol"]) == ("hello", 1)
        assert self.hello["device"]["kind"] == "cpu"
        assert self.hello["device"]["memory_bytes"] > 0
        assert {"jax", "jaxlib", "python"} <= set(self.hello["versions"])
        assert [v["name"] for v in self.hello["variants"]] == ["xla", "cudnn"]
        assert not any(v["tf32"] for v in self.hello["variants"])

    @pytest.mark.parametrize("layout", ["bshd", "bhsd"])
    @pytest.mark.parametrize(
        ("direction", "results"),
        [
            ("forward", ["out"]),
            ("backward", ["dq", "dk", "dv"]),
            ("both", ["out", "dq", "dk", "dv"]),
        ],
    )
    def test_every_direction_and_layout(
        self, layout: str, direction: str, results: list[str]
    ) -> None:
        reply = self.worker.prepare("xla", layout=layout, direction=direction)
        self.right(reply)
        assert list(reply["errors"]) == results

    @pytest.mark.parametrize(
        ("left", "right", "align"),
        [
            (None, 0, "top-left"),
            (None, 0, "bottom-right"),
            (5, 0, "top-left"),
            (5, 3, "bottom-right"),
            (None, 3, "top-left"),
            (5, None, "top-left"),
        ],
    )
    def test_masks_and_grouped_heads(self, left: Any, right: Any, align: str) -> None:
        mask = {"left": left, "right": right, "align": align}
        axes: dict[str, Any] = {"seq_q": 9, "seq_k": 13, "mask": mask, "direction": "both"}
        self.right(self.worker.prepare("xla", kv_heads=2, **axes))

    @pytest.mark.parametrize("kv_heads", [1, 4])
    def test_sharing_of_heads(self, kv_heads: int) -> None:
        self.right(self.worker.prepare("xla", kv_heads=kv_heads, direction="both"))

    def test_bfloat16(self) -> None:
        self.right(self.worker.prepare("xla", dtype="bf16", direction="both"), "bf16")

    def test_probes_do_not_depend_on_the_layout(self) -> None:
        found = [self.worker.prepare("xla", layout=x)["probes"]["out"] for x in ("bshd", "bhsd")]
        for one, other in zip(*found, strict=True):
            assert one == pytest.approx(other, abs=1e-5)

    def test_what_jax_does_not_do(self) -> None:
        prepare = self.worker.prepare
        # Each version of JAX has words of its own for it.
        self.refused(prepare("cudnn", dtype="bf16"), "")
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
            assert reply["type"] == "failed", reply
            assert words in reply["reason"]

    def test_measure_census_release(self) -> None:
        self.right(self.worker.prepare("xla", direction="backward"))
        plan = {"warmup": 1, "samples": 3, "min_samples": 3, "budget_ms": 0}
        for cache in ("hot", "cold"):
            measured = self.worker.ask("measure", cache=cache, **plan)
            assert measured["type"] == "measured", measured
            assert len(measured["device_ns"]) == 3
            assert all(ns > 0 for ns in measured["device_ns"])
            assert measured["host_ns"] == []
            assert "host_reference_ns" not in measured
            assert measured["peak_bytes"] > 0
        census = self.worker.ask("census")
        assert (census["type"], census["launches"]) == ("census", [])
        assert self.worker.ask("release")["type"] == "released"
        assert self.worker.ask("measure", cache="hot", **plan)["type"] == "failed"
        assert self.worker.ask("census")["type"] == "failed"


@pytest.mark.skipif(not support.installed("jax"), reason="jax is not installed")
class TestSets:
    """In this process, to look at addresses and to put a library in place that keeps results."""

    worker: Any

    @classmethod
    def setup_class(cls) -> None:
        from regatta_worker.libraries import jax as jax_worker

        cls.worker = jax_worker.JaxWorker()

    def prepared(self, **axes: Any) -> dict[str, Any]:
        request = {"variant": "xla", "seed": 42, "params": {}, "input_sets": 3}
        prepared: dict[str, Any] = self.worker.prepare(request | {"problem": support.wire(**axes)})
        return prepared

    def test_inputs_are_those_of_every_worker_and_lie_where_they_lay(self) -> None:
        import numpy as np

        from regatta_worker.problem import inputs
        from regatta_worker.problem.arrays import Arrays
        from regatta_worker.problem.attention import Problem

        for axes in ({"dtype": "bf16"}, {"layout": "bhsd", "kv_heads": 2}):
            axes = {"direction": "backward", "head_dim": 8, **axes}
            self.prepared(**axes)
            case, problem = self.worker.prepared(), Problem.from_wire(support.wire(**axes))
            # The first arrays may be the host's own memory, which is not written into.
            case.put(2)
            before = {name: x.unsafe_buffer_pointer() for name, x in case.arrays.items()}
            case.put(1)
            for name, array in case.arrays.items():
                assert array.unsafe_buffer_pointer() == before[name]
                wanted = inputs.whole(Arrays.for_numpy(), problem, name, 43, array.dtype)
                logical = np.asarray(array)
                assert (problem.turned(logical) == wanted).all(), name

    def test_changing_the_inputs_compiles_once_for_all_that_they_fit(self) -> None:
        from jax._src import compiler

        compile_one, compiled = compiler.compile_or_get_cached, []

        def counted(*given: Any, **named: Any) -> Any:
            compiled.append(given)
            return compile_one(*given, **named)

        for direction, most in (("both", 1), ("backward", 0), ("forward", 0)):
            self.prepared(direction=direction, seq_q=29)
            with mock.patch.object(compiler, "compile_or_get_cached", counted):
                self.worker.measure(support.PLAN)
            assert len(compiled) == most, direction
            compiled.clear()

    def test_results_that_are_kept_are_wrong_after_timing(self) -> None:
        for direction in ("forward", "backward", "both"):
            prepared = self.prepared(direction=direction)
            case = self.worker.prepared()
            kept, analysis = case.call(), case.compiled.memory_analysis()
            case.compiled = mock.Mock(return_value=kept)
            case.compiled.memory_analysis.return_value = analysis
            checked = self.worker.measure(support.PLAN)["checked"]
            assert checked["seed"] == 43
            assert checked["probes"] == prepared["probes"]
            for name, error in checked["errors"].items():
                assert error["relative_l2"] > 0.5, name

    def test_without_sets_nothing_is_said_of_them(self) -> None:
        request = {"variant": "xla", "seed": 42, "params": {}, "problem": support.wire()}
        self.worker.prepare(request)
        measured = self.worker.measure(support.PLAN)
        assert not {"checked", "input_sets"} & set(measured)

    def test_where_memory_is_short_the_only_set_is_checked(self) -> None:
        self.prepared(direction="backward")
        case = self.worker.prepared()
        arranged, calls = case.arranged, []

        def short(held: Any) -> Any:
            calls.append(held)
            if len(calls) == 1:
                raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory")
            return arranged(held)

        case.arranged = short
        measured = self.worker.measure(support.PLAN)
        assert (measured["input_sets"], measured["checked"]["seed"]) == (1, 42)
        assert "Out of memory" in measured["input_sets_reason"]
        for name, error in measured["checked"]["errors"].items():
            assert error["relative_l2"] < TOLERANCE["f32"], name


@pytest.mark.skipif(not support.installed("jax"), reason="jax is not installed")
@pytest.mark.parametrize(
    ("words", "by_xla", "kind"),
    [
        ("head_dim must be a multiple of 8", False, Unsupported),
        ("CUDA error: an illegal memory access was encountered", False, RuntimeError),
        ("RESOURCE_EXHAUSTED: Out of memory", True, Failed),
        ("UNIMPLEMENTED: cuDNN fusion", True, Unsupported),
        ("INTERNAL: No valid engine configs for Matmul_MUL_Reduction", True, Unsupported),
        ("INTERNAL: Failed to load in-memory CUBIN: CUDA_ERROR_NOT_SUPPORTED", True, RuntimeError),
        ("INTERNAL: ptxas exited with non-zero error code 65280", True, RuntimeError),
        ("FAILED_PRECONDITION: DNN library initialization failed", True, RuntimeError),
        ("UNKNOWN: the compiler process ended", True, RuntimeError),
    ],
)
def test_a_compilation_that_broke_is_no_refusal(
    words: str, by_xla: bool, kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    import jax

    from regatta_worker.libraries import jax as jax_worker

    worker = jax_worker.JaxWorker()
    error = jax.errors.JaxRuntimeError(words) if by_xla else RuntimeError(words)
    broken = mock.Mock(lower=mock.Mock(side_effect=error))
    monkeypatch.setattr(worker, "jitted", lambda function: broken)
    request = {"variant": "xla", "seed": 1, "params": {}, "problem": support.wire()}
    with pytest.raises(kind, match=words):
        worker.prepare(request)


@pytest.mark.skipif(not support.installed("jax"), reason="jax is not installed")
@pytest.mark.parametrize(("recovers", "kind"), [(False, Lost), (True, RuntimeError)])
def test_a_device_that_fails_every_call_is_lost(
    recovers: bool, kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    from regatta_worker.libraries import jax as jax_worker

    worker, words = jax_worker.JaxWorker(), "CUDA error: an illegal memory access was encountered"
    worker.prepare({"variant": "xla", "seed": 1, "params": {}, "problem": support.wire()})
    monkeypatch.setattr(worker.prepared(), "compiled", mock.Mock(side_effect=RuntimeError(words)))
    waits = [RuntimeError(words), None if recovers else RuntimeError(words)]
    monkeypatch.setattr(worker, "wait", mock.Mock(side_effect=waits))
    with pytest.raises(kind, match=words):
        worker.call()


class TestEnding:
    def test_a_missing_library_is_absent_in_hello(self) -> None:
        # -S leaves the installed packages out, so neither library is there.
        for library in ("jax", "torch"):
            worker = support.StartedWorker(library, "-S")
            reply = worker.ask("hello", protocol=1)
            assert (reply["type"], reply["variants"]) == ("hello", [])
            assert f"`{library}`" in reply["absent"]
            assert "pip install" in reply["absent"]
            assert worker.exit_status() == 0, "the end of requests is a good end"
            assert b"Traceback" in worker.log

    def test_started_by_hand_it_says_so(self) -> None:
        import subprocess

        command = [sys.executable, str(support.WORKER), "--library", "jax"]
        done = subprocess.run(command, capture_output=True, text=True, close_fds=True)
        assert done.returncode == 1
        assert "descriptor 3 is not open" in done.stderr
