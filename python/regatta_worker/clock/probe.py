"""Calls regatta's GPU clock (`crates/probe/`) through ctypes.

The shared library does the timing; this module only binds its functions. Python makes the call
under test between `begin` and `end`, while the stream is blocked. The device therefore runs the
start event, the work and the stop event without waiting for Python.
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
"""Flag of a sample: the stream was released by force because the call had not returned."""


class ProbeError(RuntimeError):
    """An error with the clock's own message."""


@dataclass(frozen=True)
class Sample:
    """Times of one call. `host_ns` is the time that Python took to issue it."""

    device_ns: float
    host_ns: float | None = None
    """None if the host is the device."""
    clock_mhz: float | None = None
    synchronised: bool = False


class ProbeLibrary:
    """The shared library at `path`. Its functions are called `regatta_probe_{prefix}{name}`."""

    prefix = ""
    error: type[Exception] = ProbeError

    def __init__(self, path: str) -> None:
        self.library = ctypes.CDLL(path)
        self.library.regatta_probe_last_error.restype = ctypes.c_char_p

    def ask(self, name: str, *arguments: Any) -> None:
        """Calls the function `name`, which returns a status; raises `error` if it fails."""
        self.check(getattr(self.library, f"regatta_probe_{self.prefix}{name}")(*arguments))

    def check(self, status: int) -> None:
        """Raises `error` with the library's own message if `status` is not 0."""
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
        # Looked up once, because both run around every timed call.
        self._begin = self.library.regatta_probe_sample_begin
        self._end = self.library.regatta_probe_sample_end
        self._device_ns, self._host_ns = ctypes.c_double(), ctypes.c_double()
        self._clock_mhz, self._flags = ctypes.c_double(), ctypes.c_uint32()
        self._late_ns = ctypes.c_double()
        """Time in ns from the call's return until its work was queued."""
        self._results = tuple(
            self._byref(name) for name in ("device_ns", "host_ns", "clock_mhz", "flags")
        )

    def _byref(self, name: str) -> Any:
        return ctypes.byref(getattr(self, f"_{name}"))

    def sample(self, cold: bool, call: Callable[[], Any], keep: list[Any] | None = None) -> Sample:
        """Takes one sample of `call`. The result is appended to `keep`; without `keep` it is
        dropped, which frees its memory."""
        self._begin_sample(cold)
        try:
            # Measured here, as the library's own reading also includes the time to enter and
            # leave the library.
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
        """Ends the sample: waits until the device has computed `result`, and reads the times."""
        self.check(self._end(self._handle, *self._results))


def known(value: float) -> float | None:
    """Returns a figure of the library, or None if it is NaN, which stands for unknown."""
    return None if math.isnan(value) else value


_opened: dict[int, Probe | None] = {}
"""The clock of each stream; None if it cannot be opened."""


def open_clock(stream: int, ordinal: int = 0) -> Probe | None:
    """Returns the clock of `stream` on the device `ordinal` of this process.

    None if `REGATTA_PROBE` names no library or the clock cannot be opened. A failed attempt is
    not repeated, because the clock that `hello` reported must hold for every later sample.
    """
    path = os.environ.get(VARIABLE)
    if not path:
        return None
    if stream not in _opened:
        try:
            _opened[stream] = Probe(path, ordinal, stream)
        except (OSError, AttributeError, ProbeError):
            # Goes into the worker's log; `hello` reports which clock is used instead.
            traceback.print_exc()
            _opened[stream] = None
    return _opened[stream]
