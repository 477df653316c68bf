"""The GPU clock's Python side, with a library that notes what it is asked."""

from __future__ import annotations

import contextlib
import io
import os
import unittest
from typing import Any
from unittest import mock

import support  # noqa: F401  (puts the worker's package on the path)

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


class OfTheLibrary(unittest.TestCase):
    def setUp(self) -> None:
        self.library = FakeLibrary()
        patch = mock.patch("ctypes.CDLL", return_value=self.library)
        patch.start()
        self.addCleanup(patch.stop)
        none: dict[int, probe.Probe | None] = {}
        opened = mock.patch.object(probe, "_opened", none)
        opened.start()
        self.addCleanup(opened.stop)

    def test_the_call_stands_between_begin_and_end(self) -> None:
        clock = probe.Probe("fake")
        sample = clock.sample(True, lambda: self.library.trace.append("the call"))
        self.assertEqual(self.library.trace, ["open", "sample_begin", "the call", "sample_end"])
        self.assertEqual((sample.device_ns, sample.clock_mhz), (5000.0, 1980.0))
        self.assertFalse(sample.synchronised)
        self.assertGreater(sample.host_ns, 0)

    def test_a_call_that_fails_is_given_up(self) -> None:
        clock = probe.Probe("fake")
        with self.assertRaises(ZeroDivisionError):
            clock.sample(True, lambda: 1 / 0)
        self.assertEqual(self.library.trace[-2:], ["sample_begin", "sample_cancel"])

    def test_failures_are_in_the_librarys_words(self) -> None:
        for fails in ("sample_begin", "sample_end"):
            clock = probe.Probe("fake")
            self.library.fails = fails
            with self.assertRaisesRegex(probe.ProbeError, "words of the library"):
                clock.sample(False, lambda: None)
            self.library.fails = None

    def test_a_clock_that_is_not_known_is_left_out(self) -> None:
        self.library.clock_mhz = float("nan")
        sample = probe.Probe("fake").sample(True, lambda: None)
        self.assertIsNone(sample.clock_mhz)
        self.assertNotIn("clock_mhz", timing.of_samples([sample]))

    def test_a_synchronised_sample_says_so(self) -> None:
        clock = probe.Probe("fake")
        honest = clock.sample(True, lambda: None)
        self.library.flags = probe.SYNCHRONISED
        forced = clock.sample(True, lambda: None)
        self.assertTrue(forced.synchronised)
        self.assertNotIn("synchronised", timing.of_samples([honest]))
        self.assertTrue(timing.of_samples([honest, forced])["synchronised"])

    def test_one_clock_a_stream(self) -> None:
        with mock.patch.dict(os.environ, {probe.VARIABLE: "fake"}):
            first = probe.of_stream(7)
            self.assertIs(probe.of_stream(7), first)
            self.assertIsNot(probe.of_stream(8), first)
        self.assertEqual(self.library.trace, ["open", "open"])

    def test_a_clock_that_cannot_be_opened_is_not_tried_again(self) -> None:
        self.library.fails = "open"
        with (
            mock.patch.dict(os.environ, {probe.VARIABLE: "fake"}),
            contextlib.redirect_stderr(io.StringIO()) as log,
        ):
            self.assertIsNone(probe.of_stream(0))
            self.library.fails = None
            self.assertIsNone(probe.of_stream(0))
        self.assertIn("words of the library", log.getvalue())
        self.assertEqual(self.library.trace, ["open"])

    def test_without_the_variable_there_is_none(self) -> None:
        with mock.patch.dict(os.environ):
            os.environ.pop(probe.VARIABLE, None)
            self.assertIsNone(probe.of_stream(0))
        self.assertEqual(self.library.trace, [])


if __name__ == "__main__":
    unittest.main()
