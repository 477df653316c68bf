"""The timers that are known: how each gets its function, and what it returns to its caller.

A timer that is not in `ADAPTERS` is added by a line there, and where it gives something else than
these a function.
"""

from __future__ import annotations

import ast
import contextlib
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from regatta_worker.script import places

Call = Callable[[], Any]


@dataclass
class Timed:
    """The request to a timer."""

    call: Call
    name: str
    """The function that is timed, for the case's name."""
    value: Callable[[list[float]], Any] = list
    """The script's result, from times in nanoseconds."""
    given: dict[str, Any] = field(default_factory=dict)
    """Words of the script for the call, such as a label."""
    before: Call | None = None
    """Precedes each call, untimed."""
    graph: bool = False
    """Replays of a CUDA graph are timed."""
    within: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
    """Around all calls."""
    on_gpu: bool = False
    """The timer is one of a GPU's."""
    first: Call | None = None
    """The first call, where another is timed."""
    result: Callable[[Any], Any] = lambda returned: returned
    """The results that are compared, from what the first call returned."""
    where: str = ""
    """`bench.py:31`, where no frame of the script is around the call."""
    check: Callable[[], dict[str, Any]] = dict
    """The benchmark's own check of the first call's results: their errors; raises `Failed`."""


@dataclass(frozen=True)
class TimerCall:
    """A call of a timer, by the script."""

    original: Callable[..., Any]
    """The timer itself."""
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def argument(self, place: int, *names: str) -> Any:
        """An argument by its place or one of its names; None where it was left out."""
        if place < len(self.args):
            return self.args[place]
        return next((self.kwargs[name] for name in names if name in self.kwargs), None)


Read = Callable[[TimerCall], Timed | None]


@dataclass(frozen=True)
class Adapter:
    """A timer."""

    module: str
    name: str
    read: Read
    """The request to it; None: it is left to itself."""

    @property
    def title(self) -> str:
        """As its users call it."""
        if self.module == "pyperf._runner":
            return "pyperf.Runner"
        if self.name.startswith("Timer."):
            return "timeit" if self.module == "timeit" else "torch.utils.benchmark.Timer"
        return f"{self.module.removesuffix('.utils').removesuffix('.bench')}.{self.name}"


def quantile(sorted_times: list[float], share: float) -> float:
    """By linear interpolation, as torch has it."""
    place = share * (len(sorted_times) - 1)
    low, high = math.floor(place), math.ceil(place)
    return sorted_times[low] + (sorted_times[high] - sorted_times[low]) * (place - low)


def milliseconds(quantiles: Any, mode: str) -> Callable[[list[float]], Any]:
    """The result of `triton.testing.do_bench` for times."""

    def value(times: list[float]) -> Any:
        found = sorted(time / 1e6 for time in times)
        if quantiles is not None:
            several = [quantile(found, float(share)) for share in quantiles]
            return several[0] if len(several) == 1 else several
        if mode == "all":
            return [time / 1e6 for time in times]
        if mode in ("min", "max"):
            return found[0] if mode == "min" else found[-1]
        return statistics.median(found) if mode == "median" else statistics.fmean(found)

    return value


def do_bench(graph: bool) -> Read:
    """`do_bench(fn, …, grad_to_none, quantiles, return_mode)`."""

    def read(call: TimerCall) -> Timed | None:
        function = call.argument(0, "fn", "func")
        if not callable(function):
            return None
        place = 2 if graph else 3
        gradients = call.argument(place, "grad_to_none")
        quantiles = call.argument(place + 1, "quantiles", "percentiles")
        mode = call.kwargs.get("return_mode", "mean")

        def drop() -> None:
            for tensor in gradients:
                tensor.grad = None

        return Timed(
            function,
            places.callee(function),
            milliseconds(quantiles, mode),
            before=drop if isinstance(gradients, (list, tuple)) else None,
            graph=graph,
            on_gpu=True,
        )

    return read


def flashinfer(call: TimerCall) -> Timed | None:
    """`bench_gpu_time(fn, …, input_args, input_kwargs)`, which gives a list of milliseconds."""
    function, kwargs = call.argument(0, "fn"), call.kwargs
    if not callable(function):
        return None
    given, named = kwargs.get("input_args") or (), kwargs.get("input_kwargs") or {}
    graph = bool(kwargs.get("use_cuda_graph")) or call.original.__name__.endswith("cudagraph")
    return Timed(
        lambda: function(*given, **named),
        places.callee(function),
        lambda times: [time / 1e6 for time in times],
        graph=graph,
        on_gpu=True,
    )


def compiled(statement: Any, setup: Any, namespace: dict[str, Any]) -> tuple[Call, str]:
    """A call of a statement of `timeit`, after its setup, and what it calls."""
    statement = "pass" if statement is None else statement
    if callable(setup):
        setup()
    elif setup:
        exec(compile(setup, "<setup>", "exec"), namespace)
    if callable(statement):
        return statement, places.callee(statement)
    text = str(statement).strip()
    try:
        code, run = compile(text, "<stmt>", "eval"), eval
    except SyntaxError:
        code, run = compile(str(statement), "<stmt>", "exec"), exec
    return lambda: run(code, namespace), places.statement(text)


def prepares(setup: Any) -> bool:
    """True for a setup that does more than import."""
    try:
        lines = ast.parse(setup).body if isinstance(setup, str) else [setup] if setup else []
    except SyntaxError:
        return True
    return not all(isinstance(line, (ast.Import, ast.ImportFrom, ast.Pass)) for line in lines)


def timeit_init(call: TimerCall) -> None:
    """Keeps what a `timeit.Timer` is of, which it does not keep itself."""
    names = enumerate(("stmt", "setup", "timer", "globals"), 1)
    call.args[0].regatta = {name: call.argument(place, name) for place, name in names}


def timeit(kind: str) -> Read:
    """`timeit.Timer(…).timeit(number)`, `repeat(repeat, number)` and `autorange()`."""

    def read(call: TimerCall) -> Timed | None:
        given = getattr(call.args[0], "regatta", {})
        statement, setup = given.get("stmt"), given.get("setup")
        variables, before = dict(given.get("globals") or {}), None
        number = call.argument(2 if kind == "repeat" else 1, "number") or 1_000_000
        if number == 1 and prepares(setup):
            # A list that each call sorts, for example, is made again for each.
            before, setup = compiled(setup, None, variables)[0], None
        function, name = compiled(statement, setup, variables)
        repeats = call.argument(1, "repeat") or 5
        # `time.perf_counter_ns` and its kin give whole nanoseconds, other clocks seconds.
        is_whole = getattr(given.get("timer"), "__name__", "").endswith("_ns")
        unit, kept = (1.0, round) if is_whole else (1e9, float)

        def value(times: list[float]) -> Any:
            shown = sorted(time / unit for time in times)
            if kind == "timeit":
                return kept(statistics.median(shown) * number)
            if kind == "autorange":
                loops = max(1, math.ceil(0.2 / statistics.median(shown)))
                return loops, kept(statistics.median(shown) * loops)
            shares = [place / max(1, repeats - 1) for place in range(repeats)]
            return [kept(quantile(shown, share) * number) for share in shares]

        return Timed(function, name, value, before=before)

    return read


def torch_timer(call: TimerCall) -> Timed | None:
    """Methods of `torch.utils.benchmark.Timer`, which give a `Measurement`."""
    timer = call.args[0]
    spec = timer._task_spec
    if "CPP" in str(getattr(timer, "_language", "")).upper():
        return None
    common = sys.modules["torch.utils.benchmark.utils.common"]
    function, name = compiled(spec.stmt, spec.setup, dict(getattr(timer, "_globals", None) or {}))
    words = {name: getattr(spec, name, None) for name in ("label", "sub_label", "description")}
    if (threads := getattr(spec, "num_threads", 1)) != 1:
        words["num_threads"] = threads

    def value(times: list[float]) -> Any:
        return common.Measurement(
            number_per_run=1, raw_times=[time / 1e9 for time in times], task_spec=spec
        )

    @contextlib.contextmanager
    def within() -> Iterator[None]:
        with common.set_torch_threads(threads):
            yield

    return Timed(function, name, value, given=words, within=within)


def pyperf(call: Callable[[Any, tuple[Any, ...]], Any]) -> Read:
    """`pyperf.Runner.bench_func(name, func, *args)` and its like, whose results scripts leave
    alone; `call` makes a call of what is timed."""

    def read(asked: TimerCall) -> Timed | None:
        name = asked.argument(1, "name")
        timed = asked.argument(2, "func", "time_func", "command")
        program = os.path.basename(timed[0]) if isinstance(timed, (list, tuple)) else ""
        return Timed(
            lambda: call(timed, asked.args[3:]),
            program or places.callee(timed),
            lambda times: None,
            given={"name": name},
        )

    return read


def awaited(function: Any, given: tuple[Any, ...]) -> Any:
    """Returns what a coroutine returns, in a loop of its own."""
    import asyncio

    return asyncio.run(function(*given))


def succeeded(command: Any, _: tuple[Any, ...]) -> None:
    """Raises CalledProcessError where a command fails."""
    null = subprocess.DEVNULL
    subprocess.run(command, stdin=null, stdout=null, stderr=null, check=True)


def pyperf_timeit(call: TimerCall) -> Timed | None:
    """`pyperf.Runner.timeit(name, stmt, setup)`."""
    name, statement = call.argument(1, "name"), call.argument(2, "stmt")
    if call.kwargs.get("teardown", "pass") != "pass":
        return None
    statement = name if statement is None else statement
    function, called = compiled(
        statement, call.argument(3, "setup"), dict(call.kwargs.get("globals") or {})
    )
    return Timed(function, called, lambda times: None, given={"name": name})


ADAPTERS: tuple[Adapter, ...] = (
    Adapter("triton.testing", "do_bench", do_bench(False)),
    Adapter("triton.testing", "do_bench_cudagraph", do_bench(True)),
    Adapter("torch._inductor.utils", "do_bench_using_profiling", do_bench(False)),
    Adapter("tilelang.profiler.bench", "do_bench", do_bench(False)),
    Adapter("tilelang.profiler", "do_bench", do_bench(False)),
    *(
        Adapter("flashinfer.testing.utils", f"bench_gpu_time{end}", flashinfer)
        for end in ("", "_with_cuda_event", "_with_cudagraph", "_with_cupti")
    ),
    *(
        Adapter("torch.utils.benchmark.utils.timer", f"Timer.{name}", torch_timer)
        for name in ("timeit", "blocked_autorange", "adaptive_autorange")
    ),
    Adapter("pyperf._runner", "Runner.bench_func", pyperf(lambda f, given: f(*given))),
    # One loop, timed from outside.
    Adapter("pyperf._runner", "Runner.bench_time_func", pyperf(lambda f, given: f(1, *given))),
    Adapter("pyperf._runner", "Runner.bench_async_func", pyperf(awaited)),
    Adapter("pyperf._runner", "Runner.bench_command", pyperf(succeeded)),
    Adapter("pyperf._runner", "Runner.timeit", pyperf_timeit),
    Adapter("timeit", "Timer.__init__", timeit_init),
    Adapter("timeit", "Timer.timeit", timeit("timeit")),
    Adapter("timeit", "Timer.repeat", timeit("repeat")),
    Adapter("timeit", "Timer.autorange", timeit("autorange")),
)
