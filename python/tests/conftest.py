"""No test sees a GPU, in this process or in a worker that it starts."""

import gc
import json
import os
import sys
from typing import Any

import pytest

os.environ |= {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
# Threads that spin for cores which others use take many times as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_finish() -> None:
    """Imported modules stay, as in a worker: a release of a case need not look at it."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fails a run that skips more tests than `REGATTA_TEST_SKIPS` allows."""
    allowed = os.environ.get("REGATTA_TEST_SKIPS")
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if allowed is None or reporter is None:
        return
    skipped = len(reporter.stats.get("skipped", []))
    if skipped > int(allowed):
        print(f"\n{skipped} tests are skipped, and REGATTA_TEST_SKIPS allows {allowed}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture
def no_other_framework(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions without annotations take the arrays of a framework that is imported."""
    for name in ("cupy", "torch", "jax"):
        monkeypatch.delitem(sys.modules, name, raising=False)


class FakeProbe:
    """regatta's GPU library, which notes what it is asked.

    It answers as the library does: figures and texts through out-pointers, then a status.
    """

    def __init__(self) -> None:
        self.trace: list[str] = []
        self.fails: str | None = None
        self.figures: dict[str, tuple[float, ...]] = {"sample_end": (5000.0, 0.0, 1980.0, 0)}
        self.texts: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        short = name.removeprefix("regatta_probe_")

        def function(*arguments: Any) -> Any:
            if short in ("version", "last_error"):
                return b"0.2" if short == "version" else b"the words of the library"
            self.trace.append(short)
            if short == self.fails:
                return 2
            if short in self.texts:
                arguments[0]._obj.value = json.dumps(self.texts[short]).encode()
            if figures := self.figures.get(short):
                for pointer, figure in zip(arguments[1:], figures, strict=True):
                    pointer._obj.value = figure
            return 0

        setattr(self, name, function)
        return function


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> FakeProbe:
    """The library that `REGATTA_PROBE` names."""
    from regatta_worker.clock import probe

    fake = FakeProbe()
    monkeypatch.setattr("ctypes.CDLL", lambda path: fake)
    monkeypatch.setattr(probe, "_opened", {})
    monkeypatch.setenv(probe.VARIABLE, "fake")
    return fake
