"""Workers of torch and JAX on the CPU: conversations, refusals, devices that are lost, and inputs
that change."""

import contextlib
import io
from typing import Any, ClassVar
from unittest import mock

import pytest

import support
from regatta_worker.case import CaseWorker
from regatta_worker.problem.arrays import Arrays
from regatta_worker.protocol.channel import Unavailable, Unsupported
from regatta_worker.protocol.refusals import refusal

TOLERANCE = {"f32": 1e-5, "f16": 2e-3, "bf16": 1.5e-2}
RAGGED = {"q": [24, 3], "k": [24, 3]}
RESULTS = {"forward": ["out"], "backward": ["dq", "dk", "dv"], "both": ["out", "dq", "dk", "dv"]}
BROKEN = "CUDA error: an illegal memory access was encountered"

needs_jax = pytest.mark.skipif(not support.installed("jax"), reason="JAX is not installed")
needs_torch = pytest.mark.skipif(not support.installed("torch"), reason="torch is not installed")


class Framework(support.Conversing):
    VARIANTS: tuple[str, ...]
    """Those that run on a CPU."""
    PARAMS: ClassVar[tuple[dict[str, Any], ...]] = ({},)
    EVERY: tuple[str, ...]
    REFUSED: tuple[tuple[str, dict[str, Any], str], ...]
    """Variant, axes and words."""
    HALVES: tuple[str, ...] = ("f16", "bf16")

    def right(self, variant: str, params: Any = None, dtype: str = "f32", **axes: Any) -> Any:
        """Prepares and measures a case, whose results are right."""
        reply = self.worker.prepare(variant, params, dtype=dtype, **axes)
        support.right(reply, TOLERANCE[dtype])
        assert reply["first_call_ns"] > 0
        measured = self.worker.ask("measure", **support.PLAN)
        support.right_after_timing(measured, TOLERANCE[dtype], reply)
        return reply

    def test_hello(self) -> None:
        hello = self.worker.hello
        assert (hello["type"], hello["protocol"]) == ("hello", 1)
        assert hello["device"]["kind"] == "cpu"
        assert hello["device"]["memory_bytes"] > 0
        assert {self.LIBRARY, "python"} <= set(hello["versions"])
        assert tuple(variant["name"] for variant in hello["variants"]) == self.EVERY
        assert not any(variant["tf32"] for variant in hello["variants"])

    @pytest.mark.parametrize("layout", ["bshd", "bhsd"])
    @pytest.mark.parametrize("direction", RESULTS)
    def test_every_direction_and_layout(self, layout: str, direction: str) -> None:
        for variant in self.VARIANTS:
            for params in self.PARAMS:
                reply = self.right(variant, params, layout=layout, direction=direction, kv_heads=1)
                assert list(reply["errors"]) == RESULTS[direction]
                assert reply["effective"] == params

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
        self.right(self.VARIANTS[0], kv_heads=2, **axes)

    def test_half_types(self) -> None:
        for dtype in self.HALVES:
            self.right(self.VARIANTS[0], dtype=dtype, direction="both")

    def test_refusals_are_the_librarys(self) -> None:
        for variant, axes, words in self.REFUSED:
            self.refused(self.worker.prepare(variant, **axes), words)

    def test_mistakes_are_failures(self) -> None:
        variant = self.VARIANTS[0]
        for reply, words in (
            (self.worker.prepare("nope"), "no variant `nope`"),
            (self.worker.prepare(variant, {"num_splits_key": 3}), "num_splits_key"),
            (self.worker.prepare(variant, dtype="f8"), "dtype"),
            (self.worker.ask("prepare", variant=variant, seed=1), "`problem`"),
            (self.worker.ask("hello", protocol=7), "protocol 7"),
            (self.worker.send(b"{nonsense"), "malformed"),
        ):
            self.refused(reply, words, "failed")

    def test_measure_census_release(self) -> None:
        self.right(self.VARIANTS[0], direction="backward")
        for cache in ("hot", "cold"):
            measured = self.worker.ask("measure", **support.PLAN | {"cache": cache})
            assert measured["type"] == "measured", measured
            assert len(measured["device_ns"]) == 3
            assert all(ns > 0 for ns in measured["device_ns"])
            assert measured["host_ns"] == []
            assert "host_reference_ns" not in measured
            assert measured["peak_bytes"] > 0
        assert self.worker.hello["repeats"]
        assert self.worker.ask("repeat", calls=3, core=0)["type"] == "repeated"
        self.refused(self.worker.ask("repeat", calls=16, graph=True), "graph")
        census = self.worker.ask("census")
        assert (census["type"], census["launches"]) == ("census", [])
        assert self.worker.ask("release")["type"] == "released"
        assert self.worker.ask("measure", **support.PLAN)["type"] == "failed"
        assert self.worker.ask("census")["type"] == "failed"


@needs_torch
class TestTorch(Framework):
    LIBRARY = "torch"
    VARIANTS = ("sdpa-math", "sdpa-flash")
    PARAMS = ({"access": "views"}, {"access": "copies"})
    EVERY = (
        *("sdpa-math", "sdpa-flash", "sdpa-efficient", "sdpa-cudnn"),
        *("efficient", "flash", "flex", "varlen"),
    )
    REFUSED = (
        ("sdpa-flash", {"head_dim_v": 8}, "the same last dimension"),
        ("sdpa-cudnn", {}, "backend"),
        ("sdpa-math", {"varlen": RAGGED}, "ragged"),
        ("efficient", {}, "aten::_efficient_attention_forward"),
        ("flash", {}, "aten::_flash_attention_forward"),
    )

    def test_parameters(self) -> None:
        variants = {variant["name"]: variant for variant in self.worker.hello["variants"]}
        assert variants["efficient"]["parameters"]["num_splits_key"] == "integer"
        for params in ({"num_splits_key": "many"}, {"access": "sideways"}):
            assert self.worker.prepare("efficient", params)["type"] == "failed"


@needs_jax
class TestJax(Framework):
    LIBRARY = "jax"
    VARIANTS = ("xla",)
    EVERY = ("xla", "cudnn")
    # XLA has no f16 on a CPU.
    HALVES = ("bf16",)
    REFUSED = (
        # Each version of JAX has words of its own for it.
        ("cudnn", {"dtype": "bf16"}, ""),
        ("xla", {"head_dim_v": 8}, "value shape should be"),
        ("xla", {"seq_q": 9, "seq_k": 5, "mask": support.CAUSAL_BR}, "sees no key"),
        ("xla", {"varlen": RAGGED}, "ragged"),
    )


class JaxRuntimeError(RuntimeError):
    """As XLA's errors are known, by their name."""


@pytest.mark.parametrize(
    ("kind", "words", "refuses"),
    [
        (RuntimeError, BROKEN, False),
        (RuntimeError, "Triton Error [CUDA]: an illegal memory access was encountered", False),
        (RuntimeError, "CUDA driver error: invalid device context", False),
        (RuntimeError, "unspecified launch failure", False),
        (RuntimeError, "Ninja build failed. Ninja output:\nnvcc fatal: Unsupported", False),
        (RuntimeError, "CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`", False),
        (RuntimeError, "a multiple of 8", True),
        (ValueError, "a multiple of 8", True),
        (AssertionError, "a multiple of 8", True),
        (JaxRuntimeError, "UNIMPLEMENTED: cuDNN fusion", True),
        (JaxRuntimeError, "INTERNAL: No valid engine configs for Matmul_MUL_Reduction", True),
        (JaxRuntimeError, "INTERNAL: Failed to load CUBIN: CUDA_ERROR_NOT_SUPPORTED", False),
        (JaxRuntimeError, "INTERNAL: ptxas exited with non-zero error code 65280", False),
        (JaxRuntimeError, "FAILED_PRECONDITION: DNN library initialization failed", False),
        (JaxRuntimeError, "UNKNOWN: the compiler process ended", False),
    ],
)
def test_what_broke_is_no_refusal(kind: type[Exception], words: str, refuses: bool) -> None:
    error = kind(words)
    found = refusal(error, ["16 bits (Triggered internally at sdp.cpp:1)"])
    if refuses:
        assert isinstance(found, Unsupported)
        assert str(found) == f"{words} 16 bits"
    else:
        assert found is error


def test_mistakes_of_the_worker_itself_are_no_refusals() -> None:
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


@pytest.mark.parametrize(
    ("fails", "waits", "answer"),
    [
        (RuntimeError(f"{BROKEN}\nMore."), (True, True), {"type": "lost", "reason": BROKEN}),
        # The first wait may only report what has failed before it.
        (RuntimeError(BROKEN), (True, False), {"type": "failed"}),
        (ValueError("a mistake"), (True, True), {"type": "failed"}),
    ],
)
def test_a_device_that_fails_every_call_is_lost(
    fails: Exception, waits: tuple[bool, ...], answer: dict[str, str]
) -> None:
    worker: Any = CaseWorker(Arrays.for_numpy())
    worker.case = mock.Mock(call=mock.Mock(side_effect=fails))
    worker.wait = mock.Mock(side_effect=[RuntimeError(BROKEN) if fail else None for fail in waits])
    worker.measure = lambda request: worker.call()
    with contextlib.redirect_stderr(io.StringIO()):
        reply = support.answer(worker, "measure")
    assert answer.items() <= reply.items()


@needs_torch
@pytest.mark.parametrize("varies", [False, True])
def test_what_each_call_makes_anew_is_no_graphs(varies: bool) -> None:
    from regatta_worker.on_torch.case import Call
    from regatta_worker.on_torch.library import Library, Row, TorchWorker

    def build(case: Any) -> Any:
        return Call(lambda: (case.tensors["v"] * 2,), varies=varies)

    row = Row(summary="v", dtypes=("f32",), build=build, on_gpu=False)
    worker = TorchWorker(Library("one", rows={"v": row}))
    worker.prepare(support.request("v"))
    with pytest.raises(Unsupported) as refused:
        worker.measure(support.PLAN | {"graph": True})
    assert ("each call is to make its own" in str(refused.value)) == varies


@needs_jax
class TestJaxInProcess:
    """To look at addresses, and to put in place a library that keeps results or breaks."""

    worker: Any

    @classmethod
    def setup_class(cls) -> None:
        from regatta_worker.libraries import jax as jax_worker

        cls.worker = jax_worker.JaxWorker()

    def prepared(self, **axes: Any) -> dict[str, Any]:
        prepared: dict[str, Any] = self.worker.prepare(support.request("xla", **axes))
        return prepared

    def test_inputs_are_those_of_every_worker_and_lie_where_they_lay(self) -> None:
        import numpy as np

        from regatta_worker.problem import inputs
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

    @pytest.mark.parametrize(
        ("words", "kind"),
        [
            ("head_dim must be a multiple of 8", Unsupported),
            (BROKEN, RuntimeError),
            ("RESOURCE_EXHAUSTED: Out of memory", Unavailable),
        ],
    )
    def test_a_compilation_that_broke_is_no_refusal(
        self, words: str, kind: type[Exception], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        broken = mock.Mock(lower=mock.Mock(side_effect=RuntimeError(words)))
        monkeypatch.setattr(self.worker, "jitted", lambda function: broken)
        with pytest.raises(kind, match=words):
            self.prepared()


def test_a_missing_library_is_absent_in_hello() -> None:
    # -S leaves the installed packages out, so neither library is there.
    for library in ("jax", "torch"):
        worker = support.StartedWorker(library, "-S")
        assert (worker.hello["type"], worker.hello["variants"]) == ("hello", [])
        assert f"`{library}`" in worker.hello["absent"]
        assert "pip install" in worker.hello["absent"]
        assert worker.exit_status() == 0, "the end of requests is a good end"
        assert b"Traceback" in worker.log
