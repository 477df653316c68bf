"""Readers of files that declare benchmarks and call no timer.

A reader gives the benchmarks of a module that has been run, or None where the module is not of its
form. Each benchmark is a case, like a call of a timer.
"""

from __future__ import annotations

import argparse
import inspect
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from regatta_worker.protocol.channel import Failed
from regatta_worker.script import places
from regatta_worker.script.places import Place, Value
from regatta_worker.script.timers import Timed


@dataclass(frozen=True)
class Benchmark:
    """A benchmark that a file declares."""

    place: Place
    opened: Callable[[], AbstractContextManager[Timed]]
    """Sets it up, untimed, and takes it down. `NotImplementedError` leaves the benchmark out."""


Reader = Callable[[ModuleType, Sequence[str]], Iterator[Benchmark] | None]
"""The benchmarks of a module, as the script's arguments choose them."""


def location(function: Any) -> str:
    """`bench.py:12`: the line of a function or a class, for messages."""
    function = inspect.unwrap(function)
    try:
        path, line = inspect.getsourcefile(function), inspect.getsourcelines(function)[1]
    except (OSError, TypeError):
        return "a file of a library"
    return f"{os.path.basename(path or '')}:{line}"


def words(name: str, values: Sequence[Any]) -> list[Value]:
    """The values of a parameter as a case's name has them; by their places where they have no
    words, or none of their own."""
    found: list[Value] = []
    for number, value in enumerate(values):
        word = places.simplified(name, value, set())
        if word is None and " at 0x" not in repr(value):
            word = places.word(repr(value)[: places.LONGEST])
        found.append(f"no.{number}" if word is None or word in found else word)
    return found


def options(arguments: Sequence[str], has_own: bool = False) -> argparse.Namespace:
    """`--benchmark PATTERN`, as often as one likes, and `--kernel NAME`. They have names, since a
    word alone could be a secret, which no message repeats. A script that `has_own` arguments gets
    the others."""
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False, allow_abbrev=False)
    parser.add_argument("--benchmark", action="append", default=[])
    parser.add_argument("--kernel")
    try:
        asked, others = parser.parse_known_args(arguments)
    except argparse.ArgumentError as error:
        raise Failed(f"arguments of the script: {error}") from error
    if others and not has_own:
        raise Failed(f"`{others[0]}`: choose benchmarks by `-- --benchmark PATTERN`")
    return asked


def any_of(patterns: Sequence[str]) -> re.Pattern[str]:
    """Matches what one of the patterns matches; everything without patterns."""
    try:
        return re.compile("|".join(patterns))
    except re.error as error:
        words = " ".join(patterns)
        raise Failed(f"`{words}` is not a pattern of benchmark names: {error}") from error


def chosen(
    benchmarks: list[Benchmark], patterns: Sequence[str], module: ModuleType
) -> Iterator[Benchmark]:
    """Those whose name a pattern matches, as `asv run --bench` has it; all without patterns."""
    either = any_of(patterns)
    kept = [each for each in benchmarks if either.search(str(each.place))]
    if not kept:
        raise none_matches([each.place for each in benchmarks], patterns, str(module.__file__))
    return iter(kept)


def none_matches(known: Iterable[Place], patterns: Sequence[str], path: str) -> Failed:
    """The failure of patterns that match none of the benchmarks of a file."""
    names = ", ".join(dict.fromkeys(place.name for place in known))
    file = os.path.basename(path)
    return Failed(f"no benchmark of {file} matches {' or '.join(patterns)}; it has {names}")


def raised(part: str, where: str, error: Exception, advice: str) -> Failed:
    """The failure of a part of a benchmark that is not its timed call."""
    path, trace = where, error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if places.is_users(frame.f_code.co_filename, frame.f_globals.get("__name__", "")):
            path = os.path.realpath(frame.f_code.co_filename)
        trace = trace.tb_next
    return Failed(f"{where}: {part} raised {places.raised_at(error, path)}: {advice}")
