"""The GPU clock's Python side, with a library that notes what it is asked."""

from __future__ import annotations

import math
from typing import Any

import pytest

from regatta_worker.clock import probe, timing
from regatta_worker.problem.input_sets import Inputs


def test_the_call_stands_between_begin_and_end(library: Any) -> None:
    sample = probe.Probe("fake").sample(True, lambda: library.trace.append("the call"))
    assert library.trace == ["open", "sample_begin", "the call", "sample_end"]
    assert (sample.device_ns, sample.clock_mhz) == (5000.0, 1980.0)
    assert not sample.synchronised
    assert sample.host_ns and sample.host_ns > 0


def test_a_call_that_fails_is_given_up(library: Any) -> None:
    with pytest.raises(ZeroDivisionError):
        probe.Probe("fake").sample(True, lambda: 1 / 0)
    assert library.trace[-2:] == ["sample_begin", "sample_cancel"]


def taken(samples: list[probe.Sample]) -> dict[str, Any]:
    """What `measured` has of these samples."""
    plan, rest = timing.Plan(0, len(samples), len(samples), 0, cold=False), iter(samples)
    return timing.take_samples(plan, Inputs(), lambda keep: next(rest))


@pytest.mark.parametrize("fails", ["sample_begin", "sample_end"])
def test_failures_are_in_the_librarys_words(library: Any, fails: str) -> None:
    clock = probe.Probe("fake")
    library.fails = fails
    with pytest.raises(probe.ProbeError, match="words of the library"):
        clock.sample(False, lambda: None)


def test_a_clock_that_is_not_known_is_left_out(library: Any) -> None:
    library.figures["sample_end"] = (5000.0, 0.0, math.nan, 0)
    sample = probe.Probe("fake").sample(True, lambda: None)
    assert sample.clock_mhz is None
    measured = taken([sample])
    assert "clock_mhz" not in measured and "host_reference_ns" not in measured


def test_a_synchronised_sample_says_so(library: Any) -> None:
    clock = probe.Probe("fake")
    honest = clock.sample(True, lambda: None)
    library.figures["sample_end"] = (5000.0, 0.0, 1980.0, probe.SYNCHRONISED)
    forced = clock.sample(True, lambda: None)
    assert "synchronised" not in taken([honest])
    assert taken([honest, forced])["synchronised"]


def test_one_clock_a_stream(library: Any) -> None:
    first = probe.open_clock(7)
    assert probe.open_clock(7) is first
    assert probe.open_clock(8) is not first
    assert library.trace == ["open", "open"]


def test_a_clock_that_cannot_be_opened_is_not_tried_again(
    library: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    library.fails = "open"
    assert probe.open_clock(0) is None
    library.fails = None
    assert probe.open_clock(0) is None
    assert "words of the library" in capsys.readouterr().err
    assert library.trace == ["open"]


def test_without_the_variable_there_is_none(library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(probe.VARIABLE)
    assert probe.open_clock(0) is None
    assert library.trace == []
