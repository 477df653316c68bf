"""What tuners chose while a call was made, and how they are held to a choice.

Knows `triton.autotune` by its shape alone: an object with `configs` and a `cache` of those it
chose, whose `run` is called for each launch. Triton need not be there, and is never imported.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from regatta_worker.protocol.channel import Failed

AUTOTUNER = ("triton.runtime.autotuner", "Autotuner")
"""Where Triton 2 and 3 have the class."""

LAUNCH = ("num_warps", "num_stages", "num_ctas", "maxnreg")
"""What a configuration sets beside the kernel's own constants."""

Value = int | str


@dataclass
class Ran:
    """A tuner, and what it launched its kernel with."""

    tuner: Any
    used: list[Any] = field(default_factory=list)

    def choice(self) -> dict[str, Value]:
        """What it chose, where there was something to choose from.

        One that chose otherwise for another key, such as another length, has all its choices:
        their values joined by `+`, in the order in which they were made.
        """
        values = {
            name: list(dict.fromkeys(of[name] for of in map(parameters, self.used) if name in of))
            # What all candidates have alike was not chosen.
            for name in _candidates(self.tuner)
        }
        return {
            name: found[0] if len(found) == 1 else "+".join(map(str, found))
            for name, found in values.items()
            if found
        }


@dataclass
class Watch:
    """The tuners that ran, in the order in which they first did."""

    ran: dict[int, Ran] = field(default_factory=dict)
    """By `id` of the tuner, which is kept and so keeps it."""

    def note(self, tuner: Any, config: Any) -> None:
        """A launch with this configuration."""
        ran = self.ran.setdefault(id(tuner), Ran(tuner))
        if config is not None and not any(config is used for used in ran.used):
            ran.used.append(config)

    def told(self, asked: Mapping[str, Any]) -> tuple[dict[str, Value], list[str]]:
        """What the tuners chose by the parameter's name, and the names of what nobody asked for.

        A name is the configuration's own. Where several kernels have it and differ in it, it is
        the kernel's and the configuration's, joined by `_`.
        """
        chosen: dict[str, dict[str, Value]] = {}
        for ran in self.ran.values():
            # One kernel may have several tuners, as one has that is made anew in each call.
            for name, value in ran.choice().items():
                chosen.setdefault(name, {}).setdefault(kernel(ran.tuner), value)
        effective: dict[str, Value] = {}
        for name, of_kernels in chosen.items():
            if len(set(of_kernels.values())) == 1:
                effective[name] = next(iter(of_kernels.values()))
            else:
                effective |= {f"{of}_{name}": value for of, value in of_kernels.items()}
        return effective, [name for name in effective if name not in asked]


@contextlib.contextmanager
def watched(pins: Mapping[str, Any]) -> Iterator[Watch]:
    """Notes each tuner that runs, and holds it to `pins` from its first run on.

    A tuner stays pinned until it runs under another watch: the calls that follow this one are
    of the same case.
    Raises Failed where a tuner has no configuration that is as `pins` say.
    """
    watch = Watch()
    found = _class()
    if found is None:
        yield watch
        # Triton came with the call: its tuners are all new.
        if (late := _class()) is not None:
            for tuner in _instances(late):
                for config in tuner.cache.values():
                    refuse_late(tuner, pins)
                    watch.note(tuner, config)
        return
    run = found.run

    @functools.wraps(run)
    def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
        if id(self) not in watch.ran:
            hold(self, pins)
        launched = run(self, *args, **kwargs)
        watch.note(self, getattr(self, "best_config", None))
        return launched

    found.run = noted
    try:
        yield watch
    finally:
        found.run = run


def parameters(config: Any) -> dict[str, Value]:
    """What a configuration sets, of whole numbers and words."""
    launch = {name: getattr(config, name, None) for name in LAUNCH}
    found: dict[str, Value] = {}
    for name, value in {**getattr(config, "kwargs", {}), **launch}.items():
        if isinstance(value, bool):
            found[name] = "yes" if value else "no"
        elif isinstance(value, (int, str)):
            found[name] = value
    return found


UNPINNED = "_regatta_unpinned"
"""The attribute in which a pinned tuner keeps what it chose from."""


def hold(tuner: Any, pins: Mapping[str, Any]) -> None:
    """Leaves a tuner the configurations that are as `pins` say, of the names that they set."""
    configs = getattr(tuner, UNPINNED, None) or tuner.configs
    asked = _asked(tuner, configs, pins)
    left = [config for config in configs if _meets(config, asked)]
    if not left:
        raise Failed(_nothing_left(tuner, configs, asked))
    if left == list(tuner.configs):
        return
    setattr(tuner, UNPINNED, configs)
    tuner.configs = left
    # What was chosen from others is not to be taken again.
    tuner.cache.clear()


def refuse_late(tuner: Any, pins: Mapping[str, Any]) -> None:
    """Raises Failed for a tuner that ran before it could be held."""
    if _asked(tuner, tuner.configs, pins):
        raise Failed(
            f"{kernel(tuner)} cannot be pinned: Triton was first imported in the call itself; "
            f"import it where the function's module is imported"
        )


def declared(namespace: Mapping[str, Any]) -> dict[str, Any]:
    """What tuners in a module's namespace choose, as parameters of a variant: `"integer"`, or
    the words that there are."""
    tuners = [value for value in namespace.values() if is_tuner(value)]
    values: dict[str, list[Value]] = {}
    for tuner in tuners:
        for name, of in _candidates(tuner).items():
            several = [other for other in tuners if name in _candidates(other)]
            names = [name, f"{kernel(tuner)}_{name}"] if len(several) > 1 else [name]
            for known in names:
                values.setdefault(known, []).extend(of)
    return {name: _kind(found) for name, found in values.items()}


def is_tuner(value: Any) -> bool:
    """Whether it is one of Triton's autotuners, by its shape."""
    configs = getattr(value, "configs", None)
    return (
        isinstance(configs, (list, tuple))
        and isinstance(getattr(value, "cache", None), dict)
        and callable(getattr(value, "run", None))
        and all(isinstance(getattr(config, "kwargs", None), dict) for config in configs)
    )


def kernel(tuner: Any) -> str:
    """The name of the function that a tuner tunes."""
    inner: Any = getattr(tuner, "base_fn", None) or getattr(tuner, "fn", None)
    while not hasattr(inner, "__name__") and hasattr(inner, "fn"):
        inner = inner.fn
    return str(getattr(inner, "__name__", "kernel"))


def _candidates(tuner: Any) -> dict[str, list[Value]]:
    """The values of what a tuner can choose, by name."""
    all_of = [parameters(config) for config in getattr(tuner, UNPINNED, None) or tuner.configs]
    names = dict.fromkeys(name for of in all_of for name in of)
    found = {name: [of[name] for of in all_of if name in of] for name in names}
    return {name: values for name, values in found.items() if len(set(values)) > 1}


def _kind(values: list[Value]) -> Any:
    if all(isinstance(value, int) for value in values):
        return "integer"
    return tuple(dict.fromkeys(map(str, values)))


def _asked(tuner: Any, configs: Any, pins: Mapping[str, Any]) -> dict[str, Any]:
    """Of the pins those that this tuner sets, by the configuration's own names."""
    names = {name for config in configs for name in parameters(config)}
    prefix = f"{kernel(tuner)}_"
    own = {name: value for name, value in pins.items() if name in names}
    for name, value in pins.items():
        if name.startswith(prefix) and name.removeprefix(prefix) in names:
            own[name.removeprefix(prefix)] = value
    return own


def _meets(config: Any, asked: Mapping[str, Any]) -> bool:
    of = parameters(config)
    return all(str(of.get(name)) == str(value) for name, value in asked.items())


def _nothing_left(tuner: Any, configs: Any, asked: Mapping[str, Any]) -> str:
    def words(of: Mapping[str, Any]) -> str:
        return " ".join(f"{name}={value}" for name, value in of.items())

    there = "; ".join(words(parameters(config)) for config in configs)
    return f"no configuration of {kernel(tuner)} has {words(asked)}; there are: {there}"


def _class() -> Any:
    module = sys.modules.get(AUTOTUNER[0])
    return getattr(module, AUTOTUNER[1], None)


def _instances(of: type) -> list[Any]:
    return [found for found in gc.get_objects() if type(found) is of]
