"""Puts hooks on the timers that benchmark scripts call, when the script imports them.

Nothing is imported that the script does not import: a hook is put on a module as soon as it has
been executed.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType
from typing import Any

from regatta_worker.script.places import users
from regatta_worker.script.timers import ADAPTERS, Adapter, Timed, TimerCall

TUNING = (
    *("triton.runtime", "triton.backends", "torch._inductor", "torch._dynamo"),
    *("torch.utils.benchmark", "tilelang.autotuner", "flashinfer.autotuner"),
)
"""Modules whose own calls of timers are no cases: they tune, or pass a call on."""

DRAWING = ("numpy", "numpy.random", "torch")
"""Modules whose seeds are set once they are imported."""

SHOWING = ("matplotlib", "pandas")
"""The modules that `perf_report` imports to show its times."""

Stop = Callable[[Timed, FrameType], list[float]]
"""Has a call measured, and gives times of it in nanoseconds."""


class Hooks(MetaPathFinder):
    """The hooks of a script."""

    def __init__(self, stop: Stop, seed: Callable[[], None] = lambda: None) -> None:
        """`seed` is called when a module has been imported that draws numbers."""
        self._stop, self._seed = stop, seed
        self._process = os.getpid()
        self._looking: set[str] = set()
        self._put: list[tuple[Any, str, Any, str]] = []
        """The replacement: the owner, the attribute, the hook, and the timer's title."""
        self.within = 0
        """Above 0 while a case's own call is made, or the script is between two of them."""
        self.thread = ""
        """The place where a timer was called outside of the main thread."""

    def install(self) -> None:
        """Puts hooks on what is imported, and on what will be."""
        sys.meta_path.insert(0, self)
        for name in {adapter.module for adapter in ADAPTERS} & set(sys.modules):
            self.put(sys.modules[name])

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module as the next finder has it, with hooks put on it once it is executed."""
        wanted = name in DRAWING or any(adapter.module == name for adapter in ADAPTERS)
        if name in self._looking or not wanted:
            return None
        self._looking.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._looking.discard(name)
        loader: Any = spec and spec.loader
        if loader is None:
            return spec
        execute = loader.exec_module

        def executed(module: ModuleType) -> None:
            execute(module)
            self.put(module)
            if name in DRAWING:
                self._seed()

        loader.exec_module = executed
        return spec

    def put(self, module: ModuleType) -> None:
        """Puts the hooks of a module on it; what another version does not have has none."""
        if module.__name__ == "triton.testing" and hasattr(module, "Mark"):
            reports_without_plots(module.Mark)
        for adapter in ADAPTERS:
            if adapter.module != module.__name__:
                continue
            owner: Any = module
            *classes, name = adapter.name.split(".")
            for each in classes:
                owner = getattr(owner, each, None)
            original = getattr(owner, name, None)
            if original is not None and not hasattr(original, "regatta_hook"):
                hook = self.hook(original, adapter)
                setattr(owner, name, hook)
                self._put.append((owner, name, hook, adapter.title))

    def hook(self, original: Callable[..., Any], adapter: Adapter) -> Callable[..., Any]:
        @functools.wraps(original)
        def timer(*args: Any, **kwargs: Any) -> Any:
            frame = sys._getframe(1)
            caller = frame.f_globals.get("__name__", "")
            if self.within or os.getpid() != self._process or caller.startswith(TUNING):
                return original(*args, **kwargs)
            timed = adapter.read(TimerCall(original, args, kwargs))
            if timed is None:
                return original(*args, **kwargs)
            if threading.current_thread() is not threading.main_thread():
                name = threading.current_thread().name
                own = next(users(frame), frame)
                where = f"{os.path.basename(own.f_code.co_filename)}:{own.f_lineno}"
                self.thread = (
                    f"{where} calls {adapter.title} in a thread ({name}): call it in the main "
                    f"thread, where the other side stops at the same call"
                )
                raise RuntimeError(self.thread)
            return timed.value(self._stop(timed, frame))

        timer.regatta_hook = adapter  # type: ignore[attr-defined]
        return timer

    def replaced(self) -> str:
        """A timer whose hook the script's project has replaced, with the line of what stands
        there; empty for none."""
        for owner, name, hook, title in self._put:
            now = vars(owner).get(name)
            if now is not hook:
                code = getattr(now, "__code__", None)
                by = f" by {code.co_filename}:{code.co_firstlineno}" if code else ""
                return (
                    f"{title} was replaced{by}, so that its calls are not seen: have the script "
                    f"call the timer itself"
                )
        return ""

    def imported(self) -> list[str]:
        """The timers that the script imported."""
        return sorted({title for *_, title in self._put})


def reports_without_plots(mark: Any) -> None:
    """Has `triton.testing.perf_report` make its calls where what it shows them by is lacking."""
    run = mark._run

    @functools.wraps(run)
    def runs(self: Any, bench: Any, *args: Any, **kwargs: Any) -> Any:
        lacking = [name for name in SHOWING if importlib.util.find_spec(name) is None]
        if not lacking:
            return run(self, bench, *args, **kwargs)
        print(f"{bench.plot_name} without a plot: {', '.join(lacking)} is not installed")
        known = ("save_path", "show_plots", "print_data", "diff_col", "save_precision")
        given = {name: value for name, value in kwargs.items() if name not in known}
        for x in bench.x_vals:
            values = x if isinstance(x, (list, tuple)) else [x] * len(bench.x_names)
            named = dict(zip(bench.x_names, values, strict=True))
            for line in bench.line_vals:
                got = self.fn(**named, **{bench.line_arg: line}, **bench.args, **given)
                print(named, line, got)
        return None

    mark._run = runs
