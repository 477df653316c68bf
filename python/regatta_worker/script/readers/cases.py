"""`cases()`: a generator that yields a name, values and a function to time.

def cases():
    for rows in (64, 512):
        x = np.ones(rows)
        yield "softmax", {"rows": rows}, lambda: softmax(x)
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from types import ModuleType
from typing import Any

from regatta_worker.protocol.channel import Failed
from regatta_worker.script import places
from regatta_worker.script.places import Place, Value
from regatta_worker.script.readers import (
    Benchmark,
    any_of,
    location,
    none_matches,
    options,
    raised,
)
from regatta_worker.script.timers import Timed

FORM = "yield a name, a dict of values (or none), and a function without arguments"


def read(module: ModuleType, arguments: Sequence[str]) -> Iterator[Benchmark] | None:
    """The cases of `cases()`, made one by one: the inputs of one are dropped before the next."""
    function = vars(module).get("cases")
    if not callable(function):
        return None
    patterns = options(arguments, has_own=True).benchmark
    return _made(function, patterns, str(module.__file__))


def _made(function: Any, patterns: Sequence[str], path: str) -> Iterator[Benchmark]:
    where, either = location(function), any_of(patterns)
    seen: dict[Any, Place] = {}
    try:
        yielded = iter(function())
        while (case := next(yielded, yielded)) is not yielded:
            # The generator stands in the line that yielded.
            frame = getattr(yielded, "gi_frame", None)
            line = f"{where.rpartition(':')[0]}:{frame.f_lineno}" if frame else where
            place, call = _parts(case, line)
            if place.key in seen:
                raise Failed(f"{line}: cases() yields {place} twice: give each values of its own")
            seen[place.key] = place
            if either.search(str(place)):
                opened: Any = functools.partial(nullcontext, Timed(call, place.name))
                yield Benchmark(place, opened)
            case = call = opened = None
    except Failed:
        raise
    except Exception as error:
        advice = f"it takes no arguments, and had yielded {len(seen)}"
        raise raised("cases()", where, error, advice) from error
    if not seen:
        raise Failed(f"{where}: cases() yields nothing: {FORM}")
    if not any(either.search(str(place)) for place in seen.values()):
        raise none_matches(seen.values(), patterns, path)


def _parts(case: Any, line: str) -> tuple[Place, Any]:
    name, values, call = None, None, None
    if isinstance(case, tuple) and len(case) in (2, 3):
        name, values, call = case[0], {} if len(case) == 2 else case[1], case[-1]
    if not isinstance(name, str) or not isinstance(values, dict) or not callable(call):
        raise Failed(f"{line}: cases() yields {case!r:.80}: {FORM}")
    words: dict[str, Value] = {}
    for key, value in values.items():
        if (word := places.simplified(str(key), value, set())) is None:
            raise Failed(
                f"{line}: {name}: `{key}` = {value!r:.60} names no case: a value is a number, a "
                f"word of at most {places.LONGEST} letters, or a shape"
            )
        words[str(key)] = word
    return Place(places.plain(name), words, line), call
