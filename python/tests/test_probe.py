"""The GPU clock's Python side, with a library that notes what it is asked."""

from __future__ import annotations

from typing import Any

import pytest

from regatta_worker.clock import probe, timing


class Function:
    """One function of the fake library; ctypes sets `restype` on it."""

    def __init__(self, library: FakeLibrary, name: str) -> None:
        self._library, self._name = library, name
        self.restype: Any = None

    def __call__(self, *arguments: Any) -> Any:
        return self._library.asked(self._name, arguments)


class FakeLibrary:
    """Answers as the library does: figures through its out-pointers, then a status."""

    def __init__(self) -> None:
        self.trace: list[str] = []
        self.fails: str | None = None
        self.flags = 0
        self.clock_mhz = 1980.0
        self.figures: dict[str, tuple[float, ...]] = {}
        """What further functions write through their out-pointers."""

    def __getattr__(self, name: str) -> Function:
        function = Function(self, name.removeprefix("regatta_probe_"))
        setattr(self, name, function)
        return function

    def asked(self, name: str, arguments: tuple[Any, ...]) -> Any:
        if name == "version":
            return b"0.2"
        if name == "last_error":
            return b"the words of the library"
        self.trace.append(name)
        if name == self.fails:
            return 2
        if name == "sample_end":
            self.figures[name] = (5000.0, 0.0, self.clock_mhz, self.flags)
        if figures := self.figures.get(name):
            for pointer, figure in zip(arguments[1:], figures, strict=True):
                pointer._obj.value = figure
        return 0


class TestOfTheLibrary:
    @pytest.fixture(autouse=True)
    def fake(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.library = FakeLibrary()
        monkeypatch.setattr("ctypes.CDLL", lambda path: self.library)
        monkeypatch.setattr(probe, "_opened", {})
        monkeypatch.setenv(probe.VARIABLE, "fake")

    def test_the_call_stands_between_begin_and_end(self) -> None:
        clock = probe.Probe("fake")
        sample = clock.sample(True, lambda: self.library.trace.append("the call"))
        assert self.library.trace == ["open", "sample_begin", "the call", "sample_end"]
        assert (sample.device_ns, sample.clock_mhz) == (5000.0, 1980.0)
        assert not sample.synchronised
        assert sample.host_ns > 0

    def test_a_call_that_fails_is_given_up(self) -> None:
        clock = probe.Probe("fake")
        with pytest.raises(ZeroDivisionError):
            clock.sample(True, lambda: 1 / 0)
        assert self.library.trace[-2:] == ["sample_begin", "sample_cancel"]

    def test_failures_are_in_the_librarys_words(self) -> None:
        for fails in ("sample_begin", "sample_end"):
            clock = probe.Probe("fake")
            self.library.fails = fails
            with pytest.raises(probe.ProbeError, match="words of the library"):
                clock.sample(False, lambda: None)
            self.library.fails = None

    def test_a_clock_that_is_not_known_is_left_out(self) -> None:
        self.library.clock_mhz = float("nan")
        sample = probe.Probe("fake").sample(True, lambda: None)
        assert sample.clock_mhz is None
        assert "clock_mhz" not in timing.of_samples([sample])

    def test_a_synchronised_sample_says_so(self) -> None:
        clock = probe.Probe("fake")
        honest = clock.sample(True, lambda: None)
        self.library.flags = probe.SYNCHRONISED
        forced = clock.sample(True, lambda: None)
        assert forced.synchronised
        assert "synchronised" not in timing.of_samples([honest])
        assert timing.of_samples([honest, forced])["synchronised"]

    def test_one_clock_a_stream(self) -> None:
        first = probe.of_stream(7)
        assert probe.of_stream(7) is first
        assert probe.of_stream(8) is not first
        assert self.library.trace == ["open", "open"]

    def test_a_clock_that_cannot_be_opened_is_not_tried_again(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.library.fails = "open"
        assert probe.of_stream(0) is None
        self.library.fails = None
        assert probe.of_stream(0) is None
        assert "words of the library" in capsys.readouterr().err
        assert self.library.trace == ["open"]

    def test_without_the_variable_there_is_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv(probe.VARIABLE)
        assert probe.of_stream(0) is None
        assert self.library.trace == []
