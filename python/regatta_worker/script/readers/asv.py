"""Airspeed velocity: `time_*` functions and methods, `setup`, `teardown`, `params`, `setup_cache`.

Read as asv reads them. `number` and `repeat` are left to the harness; but `number = 1` says that
`setup` precedes each call. `timeraw_*`, `track_*`, `mem_*` and `peakmem_*` are not timed.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import re
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

from regatta_worker.protocol.channel import Failed
from regatta_worker.script import places
from regatta_worker.script.places import Place
from regatta_worker.script.readers import Benchmark, chosen, location, options, raised, words
from regatta_worker.script.readers.returning import Returning
from regatta_worker.script.timers import Timed

TIMED = re.compile(r"(Time[A-Z_].+)|(time_.+)")
OTHERS = re.compile(r"(timeraw|track|mem|peakmem)_.+")
FORM = "`params` is a list of values, or a list of such lists with a name each in `param_names`"


def read(module: ModuleType, arguments: Sequence[str]) -> Iterator[Benchmark] | None:
    """Each `time_*` of the module and of its own classes, with each combination of parameters."""
    functions = list(_functions(module))
    caches: dict[Any, Any] = {}
    timed = (each for each in functions if TIMED.fullmatch(each[2]))
    found = [each for one in timed for each in _benchmarks(module, *one, caches)]
    if others := ", ".join(title for title, _, name in functions if OTHERS.fullmatch(name)):
        print(f"not timed: {others} measure for themselves")
        if not found and "." in others:
            raise Failed(f"there is nothing to time: {others} measure for themselves")
    return chosen(found, options(arguments).benchmark, module) if found else None


def _functions(module: ModuleType) -> Iterator[tuple[str, Any, str]]:
    for name, value in list(vars(module).items()):
        if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
            continue
        if inspect.isfunction(value):
            # `time_it(call)` is a helper: it has no `params`.
            given = {"params", "setup_cache"} & {*vars(module), *vars(value)}
            if given or not value.__code__.co_argcount:
                yield name, lambda: module, name
        elif inspect.isclass(value) and not inspect.isabstract(value):
            for method, _ in inspect.getmembers(value, inspect.isroutine):
                yield f"{name}.{method}", value, method


def _benchmarks(
    module: ModuleType, title: str, owner: Any, name: str, caches: dict[Any, Any]
) -> Iterator[Benchmark]:
    try:
        function = getattr(one := owner(), name)
    except Exception as error:
        raise raised(f"{title}()", location(owner), error, "asv gives it no arguments") from error
    if getattr(function, "skip_benchmark", False):
        return
    where, sources = location(function), (function, one, module)
    params, names, skipped = (
        _attribute(sources, each, []) for each in ("params", "param_names", "skip_params")
    )
    many = isinstance(params, (list, tuple))
    params = [params] if many and params and not isinstance(params[0], (list, tuple)) else params
    names = [re.sub(r"\W", "_", str(each)) for each in names][: len(params)] if many else []
    names += [f"param{place + 1}" for place in range(len(names), len(params))] if many else []
    right = many and all(isinstance(each, (list, tuple)) for each in params)
    if not right or len(set(names)) < len(names):
        raise Failed(f"{where}: {title}: params {params!r:.60}, param_names {names}: {FORM}")
    columns = [words(each, values) for each, values in zip(names, params, strict=True)]
    for given, said in zip(itertools.product(*params), itertools.product(*columns), strict=True):
        if given not in skipped:
            place = Place(places.plain(title), dict(zip(names, said, strict=True)), where)
            opened = functools.partial(_opened, module, owner, name, given, caches, place)
            yield Benchmark(place, opened)


def _attribute(sources: Sequence[Any], name: str, default: Any = None) -> Any:
    return next((getattr(each, name) for each in sources if hasattr(each, name)), default)


@contextlib.contextmanager
def _opened(
    module: Any, owner: Any, name: str, given: tuple[Any, ...], caches: dict[Any, Any], place: Place
) -> Iterator[Timed]:
    one = owner()
    function = getattr(one, name)
    sources = [function, one] if one is module else [function, one, module]
    setups = [each.setup for each in reversed(sources) if hasattr(each, "setup")]
    if (cached := _attribute(sources, "setup_cache")) is not None:
        key = getattr(cached, "__func__", cached)
        caches[key] = caches[key] if key in caches else cached()
        given = (caches[key], *given)

    def setup() -> None:
        for each in setups:
            each(*given)

    try:
        setup()
    except NotImplementedError:
        raise
    except Exception as error:
        advice = (
            "raise NotImplementedError where it cannot run, or choose by `-- --benchmark PATTERN`"
        )
        raise raised(f"setup of {place}", place.where, error, advice) from error
    first = Returning(function, given, {} if one is module else vars(one))
    timed = Timed(functools.partial(function, *given), name, first=first.call, result=first.results)
    timed.before = setup if _attribute(sources, "number") == 1 else None
    yield timed
    for teardown in [each.teardown for each in sources if hasattr(each, "teardown")]:
        teardown(*given)
