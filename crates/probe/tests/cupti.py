"""What CUPTI says the device did: an activity reader for the scripts that check the clock.

Reference: cupti_activity.h of CUDA 13.0. Only fields that lie alike in every record of
their kind from CUDA 11 on are read.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

COPY, FILL, PLAIN_KERNEL, KERNEL = 1, 2, 3, 10
"""CUPTI_ACTIVITY_KIND_*: MEMCPY, MEMSET, KERNEL (which serialises, and is not asked for)
and CONCURRENT_KERNEL."""

MAX_LIMIT_REACHED = 12
"""CUPTI_ERROR_MAX_LIMIT_REACHED: no further record in a buffer."""

BUFFER_BYTES = 4 << 20


@dataclass(frozen=True)
class Operation:
    """One kernel, copy or fill that ran; times in ns of the device's clock."""

    name: str
    start: int
    end: int
    bytes: int = 0
    """Of a copy or fill."""
    stream: int | None = None
    in_graph: bool = False
    """Of a kernel: launched as a node of a CUDA graph."""


class _Kernel(ctypes.Structure):
    """A prefix of CUpti_ActivityKernel10."""

    _fields_ = (
        ("kind", ctypes.c_uint32),
        ("_cache", ctypes.c_uint8 * 12),
        ("start", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("_completed", ctypes.c_uint64),
        ("device", ctypes.c_uint32),
        ("context", ctypes.c_uint32),
        ("stream", ctypes.c_uint32),
        ("_launch", ctypes.c_uint8 * 52),
        ("name", ctypes.c_char_p),
        ("_reserved", ctypes.c_uint8 * 32),
        ("graph_node", ctypes.c_uint64),
    )


class _Memory(ctypes.Structure):
    """A prefix of CUpti_ActivityMemcpy5 and of CUpti_ActivityMemset4."""

    _fields_ = (
        ("kind", ctypes.c_uint32),
        ("_how", ctypes.c_uint32),
        ("bytes", ctypes.c_uint64),
        ("start", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
    )


assert (_Kernel.name.offset, _Kernel.graph_node.offset) == (104, 144)


def _operation(address: int) -> Operation | None:
    """What a record tells; None of a kind that was not asked for."""
    kind = ctypes.c_uint32.from_address(address).value
    if kind in (PLAIN_KERNEL, KERNEL):
        kernel = _Kernel.from_address(address)
        name = (kernel.name or b"").decode(errors="replace")
        graph = kernel.graph_node != 0
        return Operation(name, kernel.start, kernel.end, stream=kernel.stream, in_graph=graph)
    if kind in (COPY, FILL):
        memory = _Memory.from_address(address)
        name = "copy" if kind == COPY else "fill"
        return Operation(name, memory.start, memory.end, bytes=memory.bytes)
    return None


_Requested = ctypes.CFUNCTYPE(
    None,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_size_t),
    ctypes.POINTER(ctypes.c_size_t),
)
_Completed = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t
)


def _load() -> ctypes.CDLL:
    """libcupti: by name, or where the CUDA wheels and the toolkit put it."""
    places = [f"{folder}/nvidia/*/lib" for folder in sys.path if folder]
    places.append("/usr/local/cuda*/extras/CUPTI/lib64")
    found = [name for place in places for name in sorted(glob.glob(f"{place}/libcupti.so.1[1-9]"))]
    for name in ("libcupti.so.13", "libcupti.so.12", *found):
        with contextlib.suppress(OSError):
            return ctypes.CDLL(name)
    raise OSError(f"no libcupti, neither by name nor in {', '.join(places)}")


class Cupti:
    """The device's operations while `recording`."""

    def __init__(self) -> None:
        self._library = _load()
        self._buffers: dict[int, ctypes.Array[ctypes.c_char]] = {}
        self._operations: list[Operation] = []
        # Held: CUPTI calls them for as long as the process lives.
        self._callbacks = (_Requested(self._requested), _Completed(self._completed))
        self._ask("RegisterCallbacks", *self._callbacks)

    def _ask(self, name: str, *arguments: object) -> None:
        if status := getattr(self._library, f"cuptiActivity{name}")(*arguments):
            raise OSError(f"cuptiActivity{name} answered {status}")

    def _requested(self, buffer: Any, size: Any, most: Any) -> None:
        held = ctypes.create_string_buffer(BUFFER_BYTES)
        self._buffers[ctypes.addressof(held)] = held
        buffer[0], size[0], most[0] = ctypes.addressof(held), BUFFER_BYTES, 0

    def _completed(self, _context: int, _stream: int, buffer: int, _size: int, valid: int) -> None:
        record = ctypes.c_void_p()
        following = self._library.cuptiActivityGetNextRecord
        arguments = (ctypes.c_void_p(buffer), ctypes.c_size_t(valid), ctypes.byref(record))
        while (status := following(*arguments)) == 0:
            if record.value and (operation := _operation(record.value)):
                self._operations.append(operation)
        if status != MAX_LIMIT_REACHED:
            print(f"cuptiActivityGetNextRecord answered {status}", file=sys.stderr)
        del self._buffers[buffer]

    @contextlib.contextmanager
    def recording(self) -> Iterator[list[Operation]]:
        """Gives a list that holds, at the end, the operations of the time between, by start."""
        found: list[Operation] = []
        self._operations.clear()
        for kind in (KERNEL, COPY, FILL):
            self._ask("Enable", ctypes.c_int(kind))
        try:
            yield found
        finally:
            self._ask("FlushAll", ctypes.c_uint32(1))
            for kind in (KERNEL, COPY, FILL):
                self._ask("Disable", ctypes.c_int(kind))
            found.extend(sorted(self._operations, key=lambda operation: operation.start))
