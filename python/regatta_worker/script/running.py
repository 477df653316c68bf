"""Runs a script as `python script.py` does, and answers requests where it calls a timer.

The script stops in the first call of a timer, and there says hello. It continues when another call
must be prepared, and stops in that one. So both sides of a pair stop at the same call
and are timed in turn. `list` has it run to its end, and gives all calls.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import io
import json
import os
import random
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType, ModuleType
from typing import Any, BinaryIO

from regatta_worker.exits import announced
from regatta_worker.protocol import channel
from regatta_worker.protocol.channel import Failed, Message
from regatta_worker.script import places
from regatta_worker.script.endings import Children, Exits, NoInput, advised, last_printed
from regatta_worker.script.hooks import Hooks
from regatta_worker.script.places import Place
from regatta_worker.script.readers import (
    Reader,
    asv,
    cases,
    flash_linear_attention,
    hugging_face,
    pytest_benchmark,
)
from regatta_worker.script.readers.returning import poisoned
from regatta_worker.script.results import outputs
from regatta_worker.script.timers import ADAPTERS, Timed
from regatta_worker.script.timing import ScriptCase, quick
from regatta_worker.serving import Session, number_or_null

Key = tuple[str, frozenset[tuple[str, Any]]]

READERS: tuple[Reader, ...] = (
    cases.read,
    hugging_face.read,
    flash_linear_attention.read,
    asv.read,
)

EXIT = os._exit
"""Ends this process; the script runs in another one."""

LONGEST_LIST = 10_000
"""Calls of a script that are cases."""


@dataclass(frozen=True)
class Target:
    """A script as the request names it."""

    name: str
    """The name of its worker."""
    path: str
    arguments: tuple[str, ...]

    @property
    def file(self) -> str:
        return os.path.basename(self.path)


class Script:
    """A running script, and the case of its last call."""

    def __init__(
        self,
        target: Target,
        open_session: Callable[[Script], Session],
        requests: BinaryIO,
        replies: BinaryIO,
    ) -> None:
        self.target, self._requests, self._replies = target, requests, replies
        self.path = os.path.realpath(target.path)
        self._input, self._children, self._exits = NoInput(), Children(), Exits()
        self._session = open_session(self)
        self.hooks = Hooks(self.stop, lambda: self._seed(len(self.calls)))
        self._pending: bytes | None = None
        """A request that the next call or the end of the script will answer."""
        self.call: ScriptCase | None = None
        """The call at which the script has stopped; None before the first and after the end."""
        self._listing: Place | None = None
        """The call that runs once, to list what it returns."""
        self.calls: list[Message] = []
        """All calls so far, as `listed` has them."""
        self._seen: dict[Key, int] = {}
        self._returned: set[float] = set()
        self.ended = ""
        """The end of the script, in words; empty while it runs."""
        self.raised = False
        """It ended by an exception, or by `sys.exit` with an error."""
        self.declares = False
        """It calls no timer; a reader finds the benchmarks that it declares."""
        self._numbers: Any = None
        """numpy's `default_rng`, once it uses our seed when none is given."""

    def run(self) -> None:
        """Runs the script, and answers requests until there are no more."""
        channel.on_pause(self._session.pauses(self._send, self._requests))
        self._pending = self._requests.readline()
        announced(lambda: str(self._listing or ""), self._exited)
        self._begin()
        try:
            if pytest_benchmark.declares(self.path):
                self._run_tests()
            else:
                self._execute()
                if not self._seen:
                    self._declared(sys.modules["__main__"])
                self._exits.call()
        except Failed as error:
            # It says all.
            self.raised = self.declares = True
            self.ended = str(error)
        except BaseException as error:
            traceback.print_exc()
            self.raised = True
            self.ended = advised(places.raised_at(error, self.path), error, self._input)
        self.call = None
        self._serve()

    def _begin(self) -> None:
        """Sets up the state that Python gives a script when it starts one."""
        here, folder = os.getcwd(), os.path.dirname(self.path)
        sys.argv = [self.target.path, *self.target.arguments]
        # The project's own packages before those that are installed: of another revision too; what
        # a build of this revision installed before its sources.
        source = os.path.join(here, "src")
        first = [folder, *places.installed_below(here), here]
        sys.path[0:1] = [*first, *filter(os.path.isdir, [source])]
        if package := places.package(self.path):
            # `from benchmarks.common import …`, as asv's files have it.
            sys.path.insert(len(first), package[0])
        sys.stdin = io.TextIOWrapper(io.BufferedReader(self._input))
        os.environ.setdefault("TRITON_CACHE_AUTOTUNING", "1")
        os.environ.setdefault("MPLBACKEND", "Agg")
        # Both sides of a pair have memory on the device.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        self.hooks.install()
        self._seed(0)

    def _execute(self) -> None:
        module = ModuleType("__main__")
        vars(module).update({"__file__": self.path, "__builtins__": builtins})
        try:
            with open(self.path, "rb") as file:
                code = compile(file.read(), self.path, "exec")
        except OSError as error:
            raise Failed(f"{self.target.path} cannot be read: {error.strerror}") from error
        sys.modules["__main__"] = module
        package = places.package(self.path)
        if package and places.imports_relatively(self.path):
            folder, name = package
            vars(module)["__package__"] = name
            sys.path.insert(0, folder)
        self.ended = f"{self.target.file} ended"
        try:
            exec(code, vars(module))
        except SystemExit as error:
            at = places.line_of(error, self.path)
            self.ended = f"{self.target.file}{at} ended by sys.exit({error.code!r})"
            # Without a call of a timer it may lack its arguments.
            self.raised = bool(self._seen) and error.code not in (None, 0)
            if error.code and not self._seen and (line := last_printed()):
                self.ended += f" (it printed: {line})"

    def _exited(self, status: int, frame: FrameType) -> None:
        """Answers further requests if the script calls `os._exit`, as some do because libraries
        hang in Python's normal exit. A call that exits gives no answer."""
        if self.call is None and self._listing is None:
            frame_of_user = next(places.users(frame), None)
            at = f":{frame_of_user.f_lineno}" if frame_of_user else ""
            self.ended = f"{self.target.file}{at} ended by os._exit({status})"
            self.raised = bool(self._seen) and status != 0
            self._serve()

    def _run_tests(self) -> None:
        """Stops in each call of the fixture `benchmark`."""
        self.ended = f"{self.target.file} ended"
        try:
            pytest_benchmark.run(self.path, self.target.arguments, self.stop)
            if not self._seen:
                raise Failed(f"{self.target.file}: no test called `benchmark`")
        finally:
            self.declares = True

    def _declared(self, module: ModuleType) -> None:
        """Stops in each benchmark that the file declares, if a reader knows its form."""
        self.declares = True
        found = (reader(module, self.target.arguments) for reader in READERS)
        benchmarks = next((each for each in found if each is not None), None)
        if benchmarks is None:
            self.declares = False
            return
        self.hooks.within = 1
        while True:
            # Each is drawn alike whatever precedes it: others are left out or added.
            self._seed(0)
            with poisoned():
                benchmark = next(benchmarks, None)
            if benchmark is None:
                return
            place = benchmark.place
            kind, asked = self._asked()
            if kind == "prepare" and asked != place.key:
                continue
            self._seed(0)
            try:
                with contextlib.ExitStack() as opened:
                    with poisoned():
                        timed = opened.enter_context(benchmark.opened())
                    self._stopped(timed, place)
            except NotImplementedError as error:
                print(f"{place.where}: {place} is left out: {error}")

    def _seed(self, number: int) -> None:
        """Seeds the random generators: both sides draw the same numbers until the next call,
        however often this call's function ran."""
        random.seed(number)
        if drawing := sys.modules.get("numpy.random"):
            with contextlib.suppress(Exception):
                drawing.seed(number)
                self._numbers = _numbered(drawing, self._numbers, number)
        if torch := sys.modules.get("torch"):
            with contextlib.suppress(Exception):
                torch.manual_seed(number)

    # A call of a timer.

    def stop(self, timed: Timed, frame: FrameType) -> list[float]:
        """The times of a call in nanoseconds: as many as the harness requests, or a few."""
        place = places.place(frame, timed.name, timed.given, self._returned)
        if timed.where:
            place = Place(place.name, place.values, timed.where)
        number = self._seen.get(place.key, 0) + 1
        self._seen[place.key] = number
        if number > 1:
            # A second call at the same place with the same values.
            place = Place(f"{place.name}.{number}", place.values, place.where)
        self.hooks.within += 1
        try:
            with timed.within():
                times = self._stopped(timed, place)
        finally:
            self.hooks.within -= 1
        self._seed(len(self.calls))
        given = timed.value(times)
        flat = given if isinstance(given, (list, tuple)) else [given]
        self._returned.update(value for value in flat if isinstance(value, float))
        return times

    def _stopped(self, timed: Timed, place: Place) -> list[float]:
        case = ScriptCase(place, timed)
        self.call = case
        self._serve()
        self.call = None
        listed: Message = {
            "variant": place.name,
            "params": place.values,
            "place": place.where,
        }
        if self._asked()[0] == "list":
            if len(self.calls) >= LONGEST_LIST:
                raise Failed(f"{place.where}: the script makes more than {LONGEST_LIST} calls")
            self._listing = place
            listed["outputs"] = self._first(case)
            self._listing = None
        self.calls.append(listed)
        return case.times or (quick(case) if not self.declares else [])

    def _first(self, case: ScriptCase) -> list[Message]:
        try:
            return outputs(case.first())
        except Failed:
            raise
        except Exception:
            if not self.declares:
                raise
            # The case has an error of its own when it is measured, and the others have none.
            traceback.print_exc()
            return []

    # Requests.

    def _asked(self) -> tuple[str, Key | None]:
        """The type of the pending request, and its case."""
        try:
            request = json.loads(self._pending or b"{}")
        except ValueError:
            return "", None
        return str(request.get("type", "")), wanted(request)

    def _serve(self) -> None:
        """Answers requests until one names another call."""
        while True:
            if self._pending is None:
                with self._own_descriptors():
                    self._pending = self._requests.readline()
            if not self._pending:
                self._leave()
            kind, asked = self._asked()
            elsewhere = self.call is None or asked != self.call.place.key
            if self.call is not None and (kind == "list" or (kind == "prepare" and elsewhere)):
                return
            line, self._pending = self._pending, None
            reply = self._session.answer(line)
            self._send(reply)
            if reply["type"] == "bye":
                self._leave()

    @contextlib.contextmanager
    def _own_descriptors(self) -> Iterator[None]:
        """Ends the process with a message if the script closed the channel to the harness."""
        try:
            yield
        except OSError as error:
            if error.errno != errno.EBADF:
                raise
            print(
                f"{self.target.file} closed a file descriptor that is regatta's: close those alone "
                f"that the script opened, and no range such as `os.closerange(3, ...)`",
                file=sys.stderr,
            )
            sys.stderr.flush()
            EXIT(1)

    def _send(self, reply: Message) -> None:
        text = json.dumps(number_or_null(reply), allow_nan=False)
        with self._own_descriptors():
            self._replies.write(text.encode() + b"\n")
            self._replies.flush()

    def _leave(self) -> None:
        """Ends the process at once: the script's threads and torch delay a normal exit."""
        sys.stdout.flush()
        sys.stderr.flush()
        EXIT(0)

    # The message if the script stopped in no call.

    def no_timer(self) -> str:
        """The reason for which no call of a timer was seen."""
        if self.hooks.thread:
            return self.hooks.thread
        if self.raised:
            return self.ended if self.declares else f"before it called a timer: {self.ended}"
        if self.declares:
            return f"{self.ended}: each of its benchmarks raises NotImplementedError (see the log)"
        if replaced := self.hooks.replaced():
            return f"{self.target.file}: {replaced}"
        imported = ", ".join(self.hooks.imported()) or "none"
        known = ", ".join(sorted({each.title for each in ADAPTERS}))
        return (
            f"{self.ended} and called no timer that is known ({known}); it imported {imported}. "
            f"{self._input.advice()}{self._children.advice()}Does it need arguments (after `--`)? "
            f"Else time what it measures by one of these, or write `def cases()`, which yields "
            f"names and functions"
        )

    def not_reached(self, asked: Key | None) -> str:
        """The reason for which the script did not stop at the requested call."""
        name, values = asked or ("", frozenset())
        call = str(Place(name, dict(values), ""))
        if self.hooks.thread:
            return self.hooks.thread
        if self.raised:
            return f"{self.ended}, before the call {call}"
        if any(wanted(each) == asked for each in self.calls):
            return (
                f"{self.target.file} came to {call} earlier than when its calls were listed: they "
                f"come in another order in each process; have the script call its timers in one "
                f"order, and draw with a seed"
            )
        if replaced := self.hooks.replaced():
            return f"{self.target.file}: {replaced}"
        why = "which calls it makes differs from process to process, as by times that it measured"
        alike = [each["params"].items() for each in self.calls if each["variant"] == name]
        if nearest := max(alike, key=lambda params: len(params & values), default=None):
            for key, _ in sorted(nearest - values)[:1]:
                why = (
                    f"it made {Place(name, dict(nearest), '')}; if {key} differs from process to "
                    f"process, call it `_{key}`, which a case's name leaves out"
                )
        return (
            f"{self.ended} without the call {call}, which it made when its calls were listed: {why}"
        )


def _numbered(drawing: Any, known: Any, number: int) -> Any:
    """Makes `numpy.random.default_rng()` use our seed, the same on both sides."""
    if known is None:
        original = drawing.default_rng

        def known(seed: Any = None) -> Any:
            known.drawn += 1
            return original(known.drawn if seed is None else seed)

        drawing.default_rng = known
    known.drawn = number << 20
    return known


def wanted(message: Message) -> Key:
    """The call that a message is about."""
    params = message.get("params") or {}
    return str(message.get("variant", "")), frozenset(params.items())
