"""The GPU clock on XLA's stream: the marker on a CPU, and the samples on a fake library."""

import shutil
import subprocess
from typing import Any
from unittest import mock

import pytest

import support
from regatta_worker.clock import probe, timing

pytest.importorskip("jax")

import jax
import jax.numpy as jnp

from regatta_worker import on_jax

SOURCE = support.ROOT / "crates" / "probe" / "src" / "lib.rs"


def two_results(a: Any, b: Any) -> Any:
    return a @ b, a - b


@pytest.mark.skipif(
    not (SOURCE.exists() and shutil.which("rustc")), reason="no source or no Rust compiler"
)
class TestMarkerOnCpu:
    """XLA's own code for the processor: it registers and calls the real handler."""

    library: Any
    inputs: list[Any]

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def compiled(cls, tmp_path_factory: pytest.TempPathFactory) -> None:
        path = tmp_path_factory.mktemp("probe") / "libregatta_probe.so"
        options = ["--edition", "2024", "--crate-type", "cdylib", "--crate-name", "regatta_probe"]
        subprocess.run(["rustc", *options, str(SOURCE), "-o", str(path)], check=True)
        # XLA asks the handler for its metadata here, and refuses what it does not know.
        cls.library = on_jax.register(str(path), platform="cpu")
        keys = jax.random.split(jax.random.key(42))
        cls.inputs = [jax.random.normal(key, (16, 16)) for key in keys]

    def test_the_results_are_the_same(self) -> None:
        plain = jax.jit(two_results)(*self.inputs)
        marked = jax.jit(on_jax.marked(two_results))(*self.inputs)
        assert len(marked) == 2
        for one, other in zip(plain, marked, strict=True):
            assert jnp.array_equal(one, other)
        marked = jax.jit(on_jax.marked(lambda a, b: {"sum": a + b, "rest": (a, [b])}))
        assert jnp.array_equal(marked(*self.inputs)["rest"][1][0], self.inputs[1])

    def test_the_marker_reads_every_result_and_gives_none(self) -> None:
        lowered = jax.jit(on_jax.marked(two_results)).lower(*self.inputs)
        entry = lowered.compile().as_text().split("ENTRY")[1]
        calls = [line for line in entry.splitlines() if on_jax.TARGET in line]
        assert len(calls) == 1, entry
        assert "= () custom-call(" in calls[0]
        operands = calls[0].split("custom-call(")[1].split(")")[0]
        assert operands.count("%") == 2, calls[0]
        assert "custom_call_has_side_effect=true" in calls[0]
        assert "copy(" not in entry
        # With an effect, JAX would call the computation through its slow path.
        assert not jax.make_jaxpr(on_jax.marked(two_results))(*self.inputs).effects

    def test_a_processor_has_no_stream_and_xla_says_so(self) -> None:
        with pytest.raises(probe.ProbeError, match="no GPU clock: .*context"):
            on_jax.stream_of(self.library, jax.devices("cpu")[0])


class TestSamples:
    @pytest.fixture(autouse=True)
    def fake(self, library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.library = library
        monkeypatch.setattr(on_jax, "register", lambda path: self.library)
        monkeypatch.setattr(on_jax, "stream_of", lambda library, device: 7)
        self.library.figures["xla_end"] = (5000.0, 300.0, 1980.0, 0)
        self.device = mock.Mock(local_hardware_id=0)
        self.clock = on_jax.XlaProbe("fake", self.device)
        self.gpu = mock.Mock()
        self.gpu.state.return_value = {"sm_mhz": 1980}

    def measure(self, call: Any, warmup: int = 0) -> Any:
        plan = timing.Plan(warmup, samples=3, min_samples=3, budget_ms=0, cold=True)
        return on_jax.measure(call, plan, self.clock, self.gpu)

    def test_what_was_queued_after_the_return_is_host_time_too(self) -> None:
        sample = self.clock.sample(True, lambda: self.library.trace.append("the call"))
        assert self.library.trace == ["open", "xla_begin", "the call", "xla_end"]
        assert sample.host_ns and sample.host_ns > 300.0

    def test_a_computation_that_fails_says_why(self) -> None:
        self.library.fails = "xla_end"
        with pytest.raises(probe.ProbeError, match="words of the library"):
            self.clock.sample(True, lambda: None)
        broken = mock.Mock()
        broken.block_until_ready.side_effect = RuntimeError("out of memory")
        with pytest.raises(RuntimeError, match="out of memory"):
            self.clock.sample(True, lambda: broken)

    def test_measure_warms_up_and_asks_whether_the_call_waits(self) -> None:
        measured = self.measure(lambda: self.library.trace.append("call"), warmup=2)
        assert measured["device_ns"] == [5000.0] * 3
        assert measured["state"] == {"sm_mhz": 1980}
        references = measured["host_reference_ns"]
        assert len(references) == 3 and min(references) > 0
        assert self.library.trace[1:4] == ["call", "call", "xla_begin"]
        assert self.library.trace.count("call") == 2 + 1 + 3
        self.library.figures["xla_end"] = (5e7, 0.0, 1980.0, probe.SYNCHRONISED)
        assert self.measure(lambda: None) is None

    def test_without_a_cpu_backend_host_time_has_no_reference(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        absent = mock.Mock(side_effect=RuntimeError("unknown backend: cpu"))
        monkeypatch.setattr(jax, "devices", absent)
        assert on_jax.host_reference() is None
        assert "host_reference_ns" not in self.measure(lambda: None)

    def test_a_clock_that_cannot_be_opened_is_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert isinstance(on_jax.open_clock(self.device), on_jax.XlaProbe)
        broken = mock.Mock(side_effect=probe.ProbeError("no stream"))
        monkeypatch.setattr(on_jax, "stream_of", broken)
        assert on_jax.open_clock(self.device) is None
        monkeypatch.delenv(probe.VARIABLE)
        assert on_jax.open_clock(self.device) is None
