"""The worker's side of the protocol: one JSON object a line, requests on 3, replies on 4.

Knows nothing of any operator or library. docs/PROTOCOL.md is the contract.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

PROTOCOL_VERSION = 1
REQUEST_FD = 3
REPLY_FD = 4
SOCKET_VARIABLE = "REGATTA_SOCKET"

Message = dict[str, Any]


class Unsupported(Exception):
    """The variant does not do this case; the text is the library's own where it has one."""


class Absent(Exception):
    """Nothing of the library can run here; the text says why, and what would help."""


class Failed(Exception):
    """The request cannot be carried out, for a reason that needs no traceback."""


class Unavailable(Exception):
    """The machine lacks what the request needs, such as memory: nothing is known of the code."""


class Lost(Exception):
    """The device is gone for this process: no request after this one could be carried out."""


def required(message: Message, field: str) -> Any:
    try:
        return message[field]
    except KeyError:
        raise Failed(f"malformed request: it has no `{field}`") from None


def positive(parameter: str, value: int) -> int:
    """The value of a parameter that counts something."""
    if value < 1:
        raise Failed(f"parameter {parameter}={value} is not a positive integer")
    return value


_pause: list[Callable[[Message], bool]] = []


def on_pause(pause: Callable[[Message], bool]) -> None:
    """Has `pause` send the members of `paused`, and tell whether the next turn is the last."""
    _pause[:] = [pause]


def pause(device_ns: list[float]) -> bool:
    """Gives the harness the times of a turn, and returns when the measurement continues: True
    where the next turn is the last.

    Raises Failed where the harness asks for something else.
    """
    return _pause[0]({"device_ns": device_ns})


class Worker(Protocol):
    """The interface of a library module. Holds at most one prepared case.

    Most have further members: `call`, one call of the case, where this process makes it;
    `agreed(own)`, what all are to do where several processes make it together; `recorded`,
    `counted` and `peak`.
    """

    def hello(self) -> Message: ...

    def prepare(self, request: Message) -> Message: ...

    def measure(self, request: Message) -> Message: ...

    def census(self) -> Message: ...

    def release(self) -> None: ...
