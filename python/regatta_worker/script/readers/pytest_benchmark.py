"""pytest-benchmark and pytest-codspeed: tests that take the fixture `benchmark`, or have the mark.

pytest runs them, with a fixture of our own: each call of it is a case, named by its test and the
test's parameters. A test that is marked and does not take the fixture is timed whole, as
pytest-codspeed has it. pytest has to be installed, and neither plugin.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import inspect
import os
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FrameType
from typing import Any

from regatta_worker.protocol.channel import Failed
from regatta_worker.script import places
from regatta_worker.script.endings import last_printed, not_installed
from regatta_worker.script.timers import Timed

OPTIONS = (
    *("-q", "--capture=no", "--color=no", "-o", "addopts="),
    # They have the fixture, write files, run tests elsewhere or in another order, or trace calls.
    *(f"-pno:{name}" for name in ("benchmark", "codspeed", "cacheprovider", "faulthandler")),
    *(f"-pno:{name}" for name in ("xdist", "randomly", "random_order", "cov")),
)

NAMES = ("benchmark", "codspeed_benchmark", "benchmark_weave")
"""The names of the fixture and the mark."""

MARKS = {f"{mark}.{name}" for mark in ("pytest.mark", "mark") for name in NAMES}

Stop = Callable[[Timed, FrameType], list[float]]


def declares(path: str) -> bool:
    """True for a file with a test that takes `benchmark`, or with its mark."""
    nodes = ast.walk(places.syntax(path) or ast.Module([], []))
    return any(
        (
            isinstance(node, ast.FunctionDef)
            and node.name.startswith("test")
            and _takes_benchmark(argument.arg for argument in node.args.args)
        )
        or (isinstance(node, ast.Attribute) and ast.unparse(node) in MARKS)
        for node in nodes
    )


def _takes_benchmark(names: Iterable[str]) -> bool:
    return not set(NAMES).isdisjoint(names)


def run(path: str, arguments: Sequence[str], stop: Stop) -> None:
    """Has pytest run the tests of a file, with these arguments of its own.

    Raises Failed where a test fails, or none was chosen.
    """
    try:
        import pytest
    except ImportError as error:
        raise Failed(
            f"{os.path.basename(path)} has tests that take `benchmark`, and this Python has no "
            f"pytest: {sys.executable} -m pip install pytest"
        ) from error

    failed: list[str] = []
    chosen: list[str] = []

    class Plugin:
        """The fixture, and what becomes of the tests."""

        @pytest.fixture
        def benchmark(self, request: Any) -> Iterator[Benchmark]:
            chosen.append(request.node.nodeid)
            with contextlib.ExitStack() as undo:
                yield Benchmark(request.node, stop, undo)

        @pytest.fixture
        def codspeed_benchmark(self, benchmark: Benchmark) -> Benchmark:
            return benchmark

        @pytest.fixture
        def benchmark_weave(self, benchmark: Benchmark) -> Callable[..., None]:
            # A method would be a value of the case, as arguments of a test are.
            return functools.partial(benchmark.weave)

        @pytest.hookimpl(tryfirst=True)
        def pytest_pyfunc_call(self, pyfuncitem: Any) -> bool | None:
            """Times a test that is marked alone."""
            if _takes_benchmark(pyfuncitem.fixturenames):
                return None
            chosen.append(pyfuncitem.nodeid)
            names = inspect.signature(pyfuncitem.obj).parameters
            given = pyfuncitem.funcargs
            arguments = {name: given[name] for name in names if name in given}
            Benchmark(pyfuncitem, stop, contextlib.ExitStack()).whole(pyfuncitem, arguments)
            return True

        def pytest_addhooks(self, pluginmanager: Any) -> None:
            """Lets a `conftest.py` have the hooks of pytest-benchmark, which are not called."""
            with contextlib.suppress(ImportError):
                pluginmanager.add_hookspecs(importlib.import_module("pytest_benchmark.hookspec"))

        def pytest_configure(self, config: Any) -> None:
            for name in NAMES:
                config.addinivalue_line("markers", f"{name}: a test that is timed, or its options")

        def pytest_collection_modifyitems(self, items: list[Any]) -> None:
            def is_benchmark(item: Any) -> bool:
                marks = map(item.get_closest_marker, NAMES)
                return _takes_benchmark(item.fixturenames) or any(marks)

            items[:] = filter(is_benchmark, items)

        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.failed:
                crash = getattr(report.longrepr, "reprcrash", None)
                words = crash.message if crash else report.longreprtext
                failed.append(f"{report.nodeid} failed: {' '.join(words.split())[:300]}")

        def pytest_collectreport(self, report: Any) -> None:
            if report.failed:
                words = " ".join(report.longreprtext.strip().splitlines()[-1:])[:300]
                advice = f". {not_installed()}" if "No module named" in words else ""
                failed.append(f"{report.nodeid} cannot be collected: {words}{advice}")

    code = pytest.main([path, *OPTIONS, *arguments], plugins=[Plugin()])
    if failed:
        raise Failed(failed[0])
    if code == pytest.ExitCode.USAGE_ERROR:
        why = last_printed(r"E |ERROR|.*: error: ") or "see the log"
        raise Failed(f"pytest cannot run {os.path.basename(path)}: {why}")
    if not chosen:
        raise Failed(f"{os.path.basename(path)}: no test that takes `benchmark` was chosen")


class Stats(dict[str, float]):
    """The times of the calls in seconds, as `benchmark.stats` of pytest-benchmark has them."""

    def __init__(self, times: list[float]) -> None:
        seconds = [time / 1e9 for time in times]
        super().__init__(
            min=min(seconds),
            max=max(seconds),
            mean=statistics.fmean(seconds),
            median=statistics.median(seconds),
            stddev=statistics.pstdev(seconds),
            rounds=len(seconds),
        )

    @property
    def stats(self) -> Stats:
        return self

    def __getattr__(self, name: str) -> float:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class Benchmark:
    """The fixture `benchmark`."""

    enabled, disabled = True, False

    def __init__(self, node: Any, stop: Stop, undo: contextlib.ExitStack) -> None:
        """`undo` is closed when the test ends."""
        self._stop, self.name, self._undo = stop, node.name, undo
        self.stats: Stats | None = None
        self.extra_info: dict[str, Any] = {}
        self.group = self.param = None
        spec: Any = getattr(node, "callspec", None)
        self.params: dict[str, Any] = dict(spec.params) if spec else {}
        self._given = dict(self.params)
        simple = [places.simplified(name, value, set()) for name, value in self.params.items()]
        if None in simple:
            # A parameter without words has pytest's.
            self._given["case"] = spec.id

    def __call__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self._timed(function, lambda: (args, kwargs), sys._getframe(1))

    def pedantic(
        self,
        target: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        setup: Callable[[], Any] | None = None,
        **counts: Any,
    ) -> Any:
        """The same, with `setup` before each call; how often is left to the harness."""
        given = (tuple(args), kwargs or {})
        before = (lambda: setup() or given) if setup else None
        return self._timed(target, before or (lambda: given), sys._getframe(1), bool(setup))

    def weave(self, target: Any, **options: Any) -> None:
        """Times each call of a function that other code makes, until the test ends."""
        try:
            aspectlib = importlib.import_module("aspectlib")
        except ImportError as error:
            raise Failed(
                f"`benchmark.weave` replaces a function by aspectlib, which this Python does not "
                f"have: {sys.executable} -m pip install aspectlib"
            ) from error

        within = False

        def aspect(function: Callable[..., Any]) -> Callable[..., Any]:
            def timed(*args: Any, **kwargs: Any) -> Any:
                nonlocal within
                if within:
                    return function(*args, **kwargs)
                within = True
                try:
                    return self._timed(function, lambda: (args, kwargs), sys._getframe(1))
                finally:
                    within = False

            return timed

        self._undo.callback(aspectlib.weave(target, aspect, **options).rollback)

    patch = weave

    def whole(self, test: Any, arguments: dict[str, Any]) -> None:
        """Times a test itself."""
        path, line, name = test.location
        timed = Timed(
            lambda: test.obj(**arguments),
            name.partition("[")[0],
            given=self._given,
            where=f"{os.path.basename(path)}:{line + 1}",
        )
        self._stop(timed, sys._getframe())

    def _timed(
        self,
        function: Callable[..., Any],
        arguments: Callable[[], tuple[Any, Any]],
        frame: FrameType,
        each: bool = False,
    ) -> Any:
        args, kwargs = arguments()

        def renew() -> None:
            nonlocal args, kwargs
            args, kwargs = arguments()

        timed = Timed(
            lambda: function(*args, **kwargs),
            places.callee(function),
            given=self._given,
            before=renew if each else None,
        )
        self.stats = Stats(self._stop(timed, frame))
        if each:
            renew()
        return function(*args, **kwargs)
