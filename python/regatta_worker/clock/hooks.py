"""Checks that a call leaves no profiling, tracing or monitoring function installed."""

from __future__ import annotations

import sys
from typing import Any

from regatta_worker.protocol.channel import Failed

_monitoring: Any = getattr(sys, "monitoring", None)
TOOLS = range(6)
"""Tool ids of `sys.monitoring`, which Python has from 3.12 on."""


def _tools() -> tuple[Any, ...]:
    return tuple(_monitoring.get_tool(tool) for tool in TOOLS) if _monitoring else ()


_before = sys.getprofile(), sys.gettrace(), _tools()


def none_left() -> None:
    """Raises Failed if a call left such a function installed: it would run outside timed calls."""
    if (sys.getprofile(), sys.gettrace(), _tools()) != _before:
        sys.setprofile(_before[0])
        sys.settrace(_before[1])
        raise Failed(
            "the call left a function on by sys.setprofile, sys.settrace or sys.monitoring, which "
            "works outside of the times: take it off before the function returns"
        )
