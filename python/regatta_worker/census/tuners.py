"""Reports the choices that autotuners make during a call.

Relies only on the interface of `triton.autotune`: an object with `configs` and a `cache` of chosen
ones, whose `run` is called for each launch. Triton need not be installed, and is never imported.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import sys
from collections.abc import Callable, Iterator
from typing import Any

from regatta_worker.census.counters import wrapped
from regatta_worker.census.private import TRITON_RUN

LAUNCH = ("num_warps", "num_stages", "num_ctas", "maxnreg")
"""Settings of a configuration other than the kernel's own constants."""

Value = int | str


class Watch:
    """The tuners that ran, in the order of their first runs, and the configurations they used."""

    def __init__(self) -> None:
        self._ran: dict[int, tuple[Any, list[Any]]] = {}
        """Each tuner and its configurations by the tuner's `id`, unique as the tuner is kept."""

    def note(self, tuner: Any, config: Any) -> None:
        _, used = self._ran.setdefault(id(tuner), (tuner, []))
        if config is not None and not any(config is known for known in used):
            used.append(config)

    def chosen(self) -> dict[str, Value]:
        """Returns the choices of the tuners by parameter name.

        A name is that of the configuration. If several kernels have the parameter with different
        values, the name is `{kernel}_{parameter}`.
        """
        chosen: dict[str, dict[str, Value]] = {}
        for tuner, used in self._ran.values():
            # One kernel may have several tuners, for example if each call creates it again.
            for name, value in _choice(tuner, used).items():
                chosen.setdefault(name, {}).setdefault(kernel(tuner), value)
        effective: dict[str, Value] = {}
        for name, of_kernels in chosen.items():
            if len(set(of_kernels.values())) == 1:
                effective[name] = next(iter(of_kernels.values()))
            else:
                effective |= {f"{of}_{name}": value for of, value in of_kernels.items()}
        return effective


def _choice(tuner: Any, used: list[Any]) -> dict[str, Value]:
    """Returns a tuner's chosen values of the parameters in which its candidates differ.

    If the tuner chose different values for different keys, such as lengths, the values are joined
    by `+` in the order in which they were chosen.
    """
    candidates, found = [parameters(config) for config in tuner.configs], dict[str, Value]()
    for name in dict.fromkeys(name for candidate in candidates for name in candidate):
        if len({candidate[name] for candidate in candidates if name in candidate}) == 1:
            # A value that all candidates share was not chosen.
            continue
        values = list(dict.fromkeys(of[name] for of in map(parameters, used) if name in of))
        if values:
            found[name] = values[0] if len(values) == 1 else "+".join(map(str, values))
    return found


@contextlib.contextmanager
def watched() -> Iterator[Watch]:
    """Records each tuner that runs within the context."""
    watch = Watch()
    if _class() is None:
        yield watch
        # The call imported Triton, so all of its tuners are new.
        if (late := _class()) is not None:
            for tuner in [found for found in gc.get_objects() if type(found) is late]:
                for config in tuner.cache.values():
                    watch.note(tuner, config)
        return

    def noting(run: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(run)
        def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
            launched = run(self, *args, **kwargs)
            watch.note(self, getattr(self, "best_config", None))
            return launched

        return noted

    with wrapped(str(TRITON_RUN), noting):
        yield watch


def parameters(config: Any) -> dict[str, Value]:
    """Returns the integers, strings and booleans (as `yes` or `no`) that a configuration sets."""
    launch = {name: getattr(config, name, None) for name in LAUNCH}
    found: dict[str, Value] = {}
    for name, value in {**getattr(config, "kwargs", {}), **launch}.items():
        if isinstance(value, bool):
            found[name] = "yes" if value else "no"
        elif isinstance(value, (int, str)):
            found[name] = value
    return found


def kernel(tuner: Any) -> str:
    inner: Any = getattr(tuner, "base_fn", None) or getattr(tuner, "fn", None)
    while not hasattr(inner, "__name__") and hasattr(inner, "fn"):
        inner = inner.fn
    return str(getattr(inner, "__name__", "kernel"))


def _class() -> Any:
    """Returns the class of tuners, or None if Triton is not loaded."""
    module = sys.modules.get(TRITON_RUN.module)
    return getattr(module, TRITON_RUN.name.partition(".")[0], None)
