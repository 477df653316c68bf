"""Reports which line of the code under test ended its process, as no exception or status does."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from types import FrameType

from regatta_worker.serving import innermost

_OWN = os.path.join(os.path.dirname(os.path.realpath(__file__)), "")


def nothing(status: int, frame: FrameType) -> None:
    """Does nothing before the process leaves."""


def announced(
    case: Callable[[], str] = str, first: Callable[[int, FrameType], None] = nothing
) -> None:
    """Replaces `os._exit` so that it first calls `first`, and prints its caller and the case to
    this process's log. In child processes it works as before."""
    leave, process = os._exit, os.getpid()

    @functools.wraps(leave)
    def announcing(status: int) -> None:
        frame = sys._getframe(1)
        if os.getpid() == process and (place := caller(frame)):
            first(status, frame)
            during = f" in the case {name}" if (name := case()) else ""
            print(f"error: {place} called os._exit({status}){during}", file=sys.stderr, flush=True)
        leave(status)

    os._exit = announcing  # type: ignore[assignment]


def caller(frame: FrameType | None) -> str:
    """Returns the innermost line of the code under test, such as `bench.py:7: softmax`, or else of
    a library that this worker calls; empty if this worker made the call."""
    places = []
    while frame is not None and not os.path.realpath(frame.f_code.co_filename).startswith(_OWN):
        places.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return innermost(places)
