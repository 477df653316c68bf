"""Answers requests, each a line of JSON, one after the other.

Independent of operators and libraries. docs/PROTOCOL.md defines the protocol.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import gc
import importlib.metadata
import json
import math
import os
import socket
import stat
import sys
import sysconfig
import traceback
import urllib.parse
from collections.abc import Callable
from types import CodeType, ModuleType
from typing import Any, BinaryIO

from regatta_worker.census import functions, tuners
from regatta_worker.census.counters import Counter, count
from regatta_worker.census.launches import CensusError
from regatta_worker.device import cpu_device
from regatta_worker.protocol import channel
from regatta_worker.protocol.channel import (
    PROTOCOL_VERSION,
    REPLY_FD,
    REQUEST_FD,
    SOCKET_VARIABLE,
    Absent,
    Failed,
    Lost,
    Message,
    Unavailable,
    Unsupported,
    Worker,
    required,
)

THRESHOLDS = gc.get_threshold()
"""The interpreter's default thresholds of garbage collection."""


def put_off_collections() -> None:
    """Disables garbage collection until a worker is open: imports create a million objects that
    stay, and each collection would examine all of them."""
    gc.set_threshold(0)


class Session:
    """Answers requests one by one; the library is loaded by the first `hello`."""

    def __init__(self, open_worker: Callable[[], Worker], library: str = "") -> None:
        self._open_worker = open_worker
        self._library = library
        self._worker: Worker | None = None
        self._counters: list[Counter] = []
        self.request_id = 0
        """The id of the request that is being answered. A measurement that was paused answers the
        last `resume`."""

    def answer(self, line: bytes) -> Message:
        """Returns the reply to one request line, even if the line is malformed."""
        try:
            request = json.loads(line)
        except ValueError as error:
            return {"id": 0, "type": "failed", "reason": f"malformed request: {error}"}
        number = request.get("id") if isinstance(request, dict) else None
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            reason = "malformed request: it is not an object with a non-negative integer `id`"
            return {"id": 0, "type": "failed", "reason": reason}
        self.request_id = number
        body = self._guarded(request)
        return {"id": self.request_id, **body}

    def pauses(
        self, send: Callable[[Message], None], requests: BinaryIO
    ) -> Callable[[Message], bool]:
        """Returns a function that pauses a measurement until `resume`, and returns its `last`."""

        def pause(members: Message) -> bool:
            send({"id": self.request_id, "type": "paused", **members})
            request = json.loads(requests.readline() or "{}")
            self.request_id = request.get("id", self.request_id)
            if request.get("type") != "resume":
                raise Failed(f"a paused measurement got {request.get('type')!r}")
            return bool(request.get("last"))

        return pause

    def _guarded(self, request: Message) -> Message:
        try:
            return self._dispatch(request)
        except (Unsupported, Failed, Unavailable, Lost) as answer:
            return {"type": type(answer).__name__.lower(), "reason": str(answer)}
        except SystemExit as error:
            walked = traceback.walk_tb(error.__traceback__)
            place = innermost([(frame.f_code, line) for frame, line in walked][::-1])
            return {"type": "failed", "reason": f"{place} called sys.exit({error.code!r})"}
        except Exception as error:
            # The harness gets the last line of the traceback, the log all of it.
            traceback.print_exc()
            reason = traceback.format_exception_only(error)[-1].strip()
            return {"type": "failed", "reason": reason}

    def _dispatch(self, request: Message) -> Message:
        match request.get("type"):
            case "hello":
                return self._hello(request)
            case "list":
                listing = self._optional("calls", "lists no calls")
                return {"type": "listed", "cases": listing(), "files": loaded()}
            case "prepare":
                return {"type": "prepared", **self._prepare(request)}
            case "measure":
                return {"type": "measured", **self._ready().measure(request)}
            case "repeat":
                repeat = self._optional("repeat", "repeats no calls for the harness's clock")
                graph = bool(request.get("graph", False))
                calls, step = int(required(request, "calls")), request.get("step", "call")
                return {"type": "repeated", **repeat(calls, request.get("core"), graph, step)}
            case "census":
                return {"type": "census", **self._census(request)}
            case "peak":
                peak = self._optional("peak", "measures no peak")
                return {"type": "peak", **peak(tuple(required(request, "dtypes")))}
            case "compare":
                compare = self._optional("compare", "serves no reference")
                return {"type": "compared", **compare(request)}
            case "release":
                self._ready().release()
                return {"type": "released", "files": loaded()}
            case "shutdown":
                return {"type": "bye"}
            case other:
                raise Failed(f"malformed request: no request has the type {other!r}")

    def _hello(self, request: Message) -> Message:
        if (asked := request.get("protocol")) != PROTOCOL_VERSION:
            raise Failed(
                f"the harness speaks protocol {asked}, this worker speaks {PROTOCOL_VERSION}"
            )
        hello = {"type": "hello", "protocol": PROTOCOL_VERSION, "packages": dict(installed())}
        try:
            if self._worker is None:
                self._worker = self._open_worker()
                # Imported modules stay, so collections between calls need not examine them.
                gc.collect()
                gc.freeze()
                # Loaded code may have set its own thresholds, which are kept.
                if gc.get_threshold()[0] == 0:
                    gc.set_threshold(*THRESHOLDS)
            return hello | self._worker.hello() | {"files": loaded()}
        except Absent as reason:
            nothing = {"versions": {}, "device": cpu_device(), "variants": []}
            return hello | nothing | {"worker": self._library, "absent": str(reason)}

    def _prepare(self, request: Message) -> Message:
        worker = self._ready()
        self._counters = [
            Counter(required(wire, "name"), tuple(required(wire, "functions")))
            for wire in request.get("counters", [])
        ]
        try:
            with tuners.watched() as watch:
                prepared = worker.prepare(request)
        except (Exception, SystemExit):
            # A case whose results were not checked must not be timed. If the device is
            # broken, `release` fails too, and the first error explains more.
            with contextlib.suppress(Exception):
                worker.release()
            raise
        if chosen := watch.chosen():
            prepared["effective"] = prepared.get("effective", {}) | chosen
            prepared["tuned"] = [*prepared.get("tuned", ()), *chosen]
        return prepared

    def _census(self, request: Message) -> Message:
        """Profiles one call, then counts functions and events in further calls."""
        worker = self._ready()
        census = worker.census()
        uncounted = census.pop("uncounted", {})
        recorded: list[Message] = getattr(worker, "recorded", list)()
        census |= {"recorded": recorded} if recorded else {}
        if metrics := request.get("metrics"):
            try:
                census["counted"] = self._optional("counted", "reads no hardware counters")(metrics)
            except (CensusError, OSError, Unsupported) as error:
                uncounted["instructions"] = str(error)
        call, agreed = getattr(worker, "call", None), getattr(worker, "agreed", None)
        if call and not agreed:
            calls, parts, why = functions.count_functions(call, self._library)
            census |= {"functions": calls} if calls else {}
            census["counts"] = census["counts"] | parts
            uncounted |= why
        if call:
            counts, why = count(call, self._counters, agreed=agreed or bool)
            census["counts"] = census["counts"] | counts
            uncounted |= why
        return census | ({"uncounted": uncounted} if uncounted else {})

    def _optional(self, name: str, lacks: str) -> Any:
        """Returns a member that not every worker has. Raises Unsupported if this one lacks it."""
        member = getattr(self._ready(), name, None)
        if member is None:
            raise Unsupported(f"this worker {lacks}")
        return member

    def _ready(self) -> Worker:
        if self._worker is None:
            raise Failed("the first request must be `hello`, and it must have been answered")
        return self._worker


@functools.cache
def installed() -> dict[str, str]:
    """Returns the versions of all installed distributions by name: the environment's lock."""
    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        # Python imports the first one on the path.
        with contextlib.suppress(Exception):
            found.setdefault(distribution.name.lower().replace("_", "-"), distribution.version)
    return dict(sorted(found.items()))


def loaded() -> list[str]:
    """Returns the files of imported modules, except those of the interpreter and this worker.

    An installed package is listed as its folder or file in `site-packages`, which may be a copy
    of a checkout. If it was installed from a folder (`pip install .`), that folder is listed too.
    """
    # Cached, because each released case calls this and most cases import nothing.
    return _files(tuple(sys.modules))


@functools.lru_cache(maxsize=1)
def _files(_modules_loaded: tuple[str, ...]) -> list[str]:
    paths = set(map(_real, module_files()))
    found = {_package(path) or path for path in paths if not _is_own(path)}
    # Only packages imported from `site-packages` count, not modules of that name elsewhere.
    packages = {os.path.basename(package).partition(".")[0] for package in map(_package, paths)}
    return sorted(found | {folder for name, folder in _installed_from() if name in packages})


def module_files() -> set[str]:
    """Returns the file of each imported module, with links unresolved."""
    # Not by getattr, because some modules import attributes on access.
    modules = [vars(one) for one in list(sys.modules.values()) if isinstance(one, ModuleType)]
    files = [module.get("__file__") for module in modules]
    return {file for file in files if isinstance(file, str)}


def is_installed(path: str) -> bool:
    """True for a file of this worker, of the interpreter or of an installed package. A link in the
    interpreter's folder counts, as Debian has links there to /etc, such as `sitecustomize`."""
    folder, name = os.path.split(path)
    path = _real(path)
    return _is_own(path) or bool(_package(path)) or _is_own(os.path.join(_real(folder), name))


def innermost(lines: list[tuple[CodeType, int]]) -> str:
    """Returns a line as `bench.py:7: softmax`. `lines` begin with the innermost; the first one in
    the user's code is taken, or else the first of all. Empty if `lines` is empty."""
    own = (line for line in lines if not is_installed(line[0].co_filename))
    code, line = next(own, lines[0] if lines else (None, 0))
    if code is None:
        return ""
    function = getattr(code, "co_qualname", code.co_name).rpartition("<locals>.")[2]
    return f"{os.path.basename(code.co_filename)}:{line}: {function}"


_real = functools.cache(os.path.realpath)


def _is_own(path: str) -> bool:
    """True for a file of this worker or of the interpreter, but not of an installed package."""
    worker, *interpreter = _own_places()
    if path.startswith(worker):
        return True
    return not _package(path) and path.startswith(tuple(interpreter))


@functools.cache
def _own_places() -> tuple[str, ...]:
    worker = os.path.dirname(os.path.realpath(__file__))
    interpreter = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib")]
    return tuple(os.path.join(os.path.realpath(place), "") for place in (worker, *interpreter))


def _package(path: str) -> str:
    """Returns the entry of `site-packages` that contains or is the file; empty for other files."""
    parts = path.split(os.sep)
    for at, part in enumerate(parts[:-1]):
        if part in ("site-packages", "dist-packages"):
            return os.sep.join(parts[: at + 2])
    return ""


@functools.cache
def _installed_from() -> list[tuple[str, str]]:
    """Returns the top-level names and folder of each package installed from one, not editable."""
    found = []
    for distribution in importlib.metadata.distributions():
        with contextlib.suppress(Exception):
            origin = json.loads(distribution.read_text("direct_url.json") or "{}")
            parts = urllib.parse.urlsplit(origin.get("url", ""))
            if parts.scheme != "file" or origin.get("dir_info", {}).get("editable"):
                continue
            folder = os.path.realpath(urllib.parse.unquote(parts.path))
            tops = {str(file).partition("/")[0] for file in distribution.files or ()}
            found += [(top.partition(".")[0], folder) for top in tops]
    return found


def number_or_null(value: Any) -> Any:
    """Replaces each float that JSON cannot represent (NaN, infinities) by `None`."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: number_or_null(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [number_or_null(inner) for inner in value]
    return value


def serve(session: Session, requests: BinaryIO, replies: BinaryIO) -> None:
    """Answers each line of `requests` until `shutdown` or the end of the stream."""

    def send(reply: Message) -> None:
        replies.write(json.dumps(number_or_null(reply), allow_nan=False).encode() + b"\n")
        replies.flush()

    channel.on_pause(session.pauses(send, requests))
    for line in iter(requests.readline, b""):
        reply = session.answer(line)
        send(reply)
        if reply["type"] == "bye":
            return


def open_descriptors(least: int = REQUEST_FD) -> tuple[BinaryIO, BinaryIO]:
    """Opens descriptors 3 and 4 as files, renumbered to `least` or more. Ends the process if they
    are not open.

    Descriptors do not reach into a container; there, the socket that REGATTA_SOCKET names is both.

    Child processes do not inherit them. Otherwise a compiler process that a library
    leaves behind would hold the channel open after the worker has died.
    """
    path = os.environ.pop(SOCKET_VARIABLE, "")
    if path and not any(map(_is_open, (REQUEST_FD, REPLY_FD))):
        _connect(path)
    for descriptor in (REQUEST_FD, REPLY_FD):
        try:
            os.set_inheritable(descriptor, False)
        except OSError:
            sys.exit(
                f"descriptor {descriptor} is not open: this program is started by regatta, "
                "not by hand (try `regatta worker check`)"
            )
    given = [REQUEST_FD, REPLY_FD]
    if least > REQUEST_FD:
        with contextlib.suppress(OSError, ValueError):
            given = [fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, least) for one in given]
            os.closerange(REQUEST_FD, REPLY_FD + 1)
    requests, replies = os.fdopen(given[0], "rb"), os.fdopen(given[1], "wb")
    if stat.S_ISSOCK(os.fstat(given[1]).st_mode):
        # Sent before any code under test is imported: the message identifies this process, and
        # the harness accepts replies of no other.
        replies.write(b"\n")
        replies.flush()
    return requests, replies


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _connect(path: str) -> None:
    """Connects descriptors 3 and 4 to the socket at `path`; ends the process if that fails."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(path)
    except OSError as error:
        sys.exit(
            f"no connection to {path}, as {SOCKET_VARIABLE} names it: {error.strerror}; a "
            "container needs its folder under the same path"
        )
    number = connection.detach()
    for descriptor in (REQUEST_FD, REPLY_FD):
        os.dup2(number, descriptor)
    if number > REPLY_FD:
        os.close(number)
