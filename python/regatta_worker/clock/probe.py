"""regatta's GPU clock (`crates/probe/`), called through ctypes.

The shared library does the timing; this file only names its functions. The call under
test is made by Python between `begin` and `end`, while the stream is blocked, so that
the device passes through start event, work and stop event without waiting for Python.
"""

from __future__ import annotations

import ctypes
import math
import os
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

VARIABLE = "REGATTA_PROBE"
"""Environment variable that names the shared library."""

SYNCHRONISED = 1
"""Flag of a sample whose call did not return before the stream was released by force."""


class ProbeError(RuntimeError):
    """The clock's own words."""


@dataclass(frozen=True)
class Sample:
    """Times of one call. `host_ns` is the time that Python needed to issue it."""

    device_ns: float
    host_ns: float | None = None
    """None where host and device are one."""
    clock_mhz: float | None = None
    synchronised: bool = False


class ProbeLibrary:
    """The shared library at a path; its functions are `regatta_probe_` and `prefix` and a name."""

    prefix = ""
    error: type[Exception] = ProbeError

    def __init__(self, path: str) -> None:
        self.library = ctypes.CDLL(path)
        self.library.regatta_probe_last_error.restype = ctypes.c_char_p

    def ask(self, name: str, *arguments: Any) -> None:
        """Calls a function that returns a status."""
        self.check(getattr(self.library, f"regatta_probe_{self.prefix}{name}")(*arguments))

    def check(self, status: int) -> None:
        """Raises the library's own words where a status is not 0."""
        if status != 0:
            words = self.library.regatta_probe_last_error().decode(errors="replace")
            raise self.error(words)


class Probe(ProbeLibrary):
    """A clock on one CUDA stream of the current context; stream 0 is the legacy default."""

    def __init__(self, path: str, ordinal: int = 0, stream: int = 0) -> None:
        self._handle = ctypes.c_void_p()
        super().__init__(path)
        self.library.regatta_probe_version.restype = ctypes.c_char_p
        self.version = self.library.regatta_probe_version().decode()
        self.ask("open", ctypes.c_int(ordinal), ctypes.c_void_p(stream), self._byref("handle"))
        # Looked up and converted once: these two stand around every timed call.
        self._begin = self.library.regatta_probe_sample_begin
        self._end = self.library.regatta_probe_sample_end
        self._device_ns, self._host_ns = ctypes.c_double(), ctypes.c_double()
        self._clock_mhz, self._flags = ctypes.c_double(), ctypes.c_uint32()
        self._late_ns = ctypes.c_double()
        """The time after the call's return at which its work was queued."""
        self._results = tuple(
            self._byref(name) for name in ("device_ns", "host_ns", "clock_mhz", "flags")
        )

    def _byref(self, name: str) -> Any:
        return ctypes.byref(getattr(self, f"_{name}"))

    def sample(self, cold: bool, call: Callable[[], Any], keep: list[Any] | None = None) -> Sample:
        """One sample of one call, whose result goes into `keep`, or else is dropped: its
        memory is free again."""
        self._begin_sample(cold)
        try:
            # Nearer to the call than the library's own reading, which also counts the
            # way in and out of it.
            begin = time.perf_counter_ns()
            result = call()
            host_ns = time.perf_counter_ns() - begin
        except BaseException:
            self.ask("sample_cancel", self._handle)
            raise
        self._end_sample(result)
        if keep is not None:
            keep.append(result)
        del result
        return Sample(
            device_ns=self._device_ns.value,
            host_ns=host_ns + self._late_ns.value,
            clock_mhz=known(self._clock_mhz.value),
            synchronised=bool(self._flags.value & SYNCHRONISED),
        )

    def _begin_sample(self, cold: bool) -> None:
        self.check(self._begin(self._handle, cold))

    def _end_sample(self, result: Any) -> None:
        """Reads the times of the call with this result, which the device is done with then."""
        self.check(self._end(self._handle, *self._results))


def known(value: float) -> float | None:
    """A figure of the library's, where NaN is one that is not known."""
    return None if math.isnan(value) else value


_opened: dict[int, Probe | None] = {}
"""The clock of each stream; None where it cannot be opened."""


def open_clock(stream: int, ordinal: int = 0) -> Probe | None:
    """The clock of a stream of one device of the process, or None: not named, or not usable here.

    Once it could not be opened it is not tried again: what `hello` said about the clock
    must hold for every later sample.
    """
    path = os.environ.get(VARIABLE)
    if not path:
        return None
    if stream not in _opened:
        try:
            _opened[stream] = Probe(path, ordinal, stream)
        except (OSError, AttributeError, ProbeError):
            # Into the worker's log; `hello` tells which clock is used instead.
            traceback.print_exc()
            _opened[stream] = None
    return _opened[stream]
