"""Imports the code that a suite names, finds its functions, and serves them by framework."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import os
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from regatta_worker.beginnings import import_libraries
from regatta_worker.callables import intact
from regatta_worker.callables.function import Function, begins_with_tensors, read
from regatta_worker.callables.operators.function import OperatorFunction, read_operator
from regatta_worker.callables.operators.functions import Functions, operator_worker
from regatta_worker.protocol.channel import Failed, Lost, Message, Unavailable, Unsupported, Worker


@dataclass(frozen=True)
class Target:
    """The code that `workers.NAME` of a suite names."""

    name: str
    """The worker's name."""
    file: str | None = None
    module: str | None = None
    function: str | None = None

    @property
    def code(self) -> str:
        """The file or module, for messages."""
        return self.file or self.module or ""

    @property
    def folder(self) -> str:
        """The folder that is searched first for modules."""
        return os.getcwd() if self.file is None else str(Path(self.file).resolve().parent)

    def where(self, function: str) -> str:
        return f"{self.code}:{function}"


@functools.cache
def imported(target: Target) -> ModuleType:
    """Imports the code, once for this process and its forks.

    Raises Failed, with the place of the error, for any exception in the code.
    """
    try:
        if target.file is not None:
            return _from_file(target, Path(target.file))
        # Found as by `python -m`: from the folder in which regatta was started.
        sys.path.insert(1, target.folder)
        sys.path.append(os.path.abspath("src"))
        return importlib.import_module(target.code)
    except (Failed, KeyboardInterrupt):
        raise
    except BaseException as error:
        traceback.print_exc()
        raise Failed(not_imported(target, error)) from error


def _from_file(target: Target, path: Path) -> ModuleType:
    if not path.is_file():
        raise Failed(
            f"{path} does not exist; `workers.{target.name}` is a path from the folder of the "
            f"file that says it"
        )
    name = path.stem
    if other := _of_that_name(name, path):
        raise Failed(
            f"{path} has the name of the module `{name}` of {other}, which it would hide from "
            f"all that import it; call the file something else"
        )
    # As Python does for a script, but after this package.
    sys.path.insert(1, target.folder)
    # After installed packages, so that a project's own packages need no installation.
    sys.path += [os.getcwd(), os.path.abspath("src")]
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise Failed(f"{path} cannot be imported: it does not end in `.py`")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _of_that_name(name: str, path: Path) -> str:
    """Returns the origin of another module named `name`; empty if there isn't one."""
    if name == "__main__" or name in sys.builtin_module_names:
        return "Python itself"
    if not name.isidentifier() or (found := importlib.util.find_spec(name)) is None:
        return ""
    origin = found.origin
    if origin is None or (Path(origin).is_file() and Path(origin).samefile(path)):
        return ""
    return origin


def not_imported(target: Target, error: BaseException) -> str:
    """Returns a message with the reason why the code cannot be imported, and the fix."""
    words = f"{target.code} cannot be imported: {placed(target.file, error)}"
    if isinstance(error, ModuleNotFoundError) and error.name:
        package = error.name.partition(".")[0]
        if target.module is not None and package == target.module.partition(".")[0]:
            return (
                f"{target.code} is not a module of {os.getcwd()} or its `src`, and not installed "
                f"for {sys.executable}: start regatta in the folder that has `{package}`, or add "
                f"its folder to `paths` of the suite's environment table"
            )
        return (
            f"{words}. Install it with `{sys.executable} -m pip install {package}`, or name an "
            f"interpreter that has it in the suite's environment table"
        )
    if isinstance(error, SystemExit):
        return f'{words}. Put what a script does behind `if __name__ == "__main__":`'
    return words


def placed(file: str | None, error: BaseException) -> str:
    """Returns an exception as one line, with the last line of `file` in its traceback."""
    # Only the first line, as messages with notes may be of any length.
    first = next(iter(str(error).strip().splitlines()), "")
    words = f"{type(error).__name__}: {first}".removesuffix(": ")
    if isinstance(error, SyntaxError):
        return f"{Path(error.filename or '').name}:{error.lineno}: {words}"
    frames = traceback.extract_tb(error.__traceback__)
    path = None if file is None else Path(file).resolve()
    own = [frame for frame in frames if path and Path(frame.filename) == path]
    if not own:
        return words
    last = own[-1]
    inside = "" if last.name == "<module>" else f", in {last.name}"
    return f"line {last.lineno}{inside}: {words}"


def functions(target: Target) -> tuple[dict[str, Function], dict[str, OperatorFunction]]:
    """Returns functions called with q, k and v, and those that may compute a declared operator.
    They are the named function, or all public ones that the module itself defines."""
    # JAX's backend reads the variable when it starts, which importing the code may cause: see
    # libraries/jax.py.
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    module, name = imported(target), target.function
    own = {
        name: thing
        for name, thing in vars(module).items()
        if callable(thing) and getattr(thing, "__module__", None) == module.__name__
    }
    there = f"there are {', '.join(own)}" if own else "it has none"
    if name is not None and getattr(module, name, None) is None:
        raise Failed(f"{target.code} has no function `{name}`; {there}")
    # A case's id can only contain ASCII.
    public = {name: thing for name, thing in own.items() if name.isascii() and name[0] != "_"}
    chosen = public if name is None else {name: getattr(module, name)}
    native, operators = {}, {}
    if name is not None and isinstance(chosen[name], type):
        raise Failed(
            f"{target.where(name)} is a class: name a function, or an instance that can be called"
        )
    for key, thing in chosen.items():
        where, why = target.where(key), ""
        if name is not None or begins_with_tensors(thing):
            try:
                native[key] = read(where, thing)
            except Failed as error:
                why = str(error)
        if function := read_operator(where, thing, why):
            operators[key] = function
        elif why:
            raise Failed(why)
    if not native and not operators:
        raise Failed(f"{target.code} has no public function that can be called; {there}")
    return native, operators


def framework(found: Iterable[Function | OperatorFunction]) -> str:
    """Returns the framework of the functions' arrays: the annotated one, or else the first of
    CuPy, torch and JAX that importing the code imported, or else NumPy."""
    annotated = {function.framework: function.where for function in found if function.framework}
    if len(annotated) > 1:
        listed = " and ".join(f"{where} takes {name}" for name, where in annotated.items())
        raise Failed(
            f"{listed}, and a worker has arrays of one; give each a `workers.NAME` of its own"
        )
    if annotated:
        return str(next(iter(annotated)))
    return next((name for name in ("cupy", "torch", "jax") if name in sys.modules), "numpy")


def open_worker(target: Target) -> Worker:
    native, operators = functions(target)
    name = framework([*native.values(), *operators.values()])
    try:
        made = None
        if native:
            module = importlib.import_module(f"regatta_worker.callables.{name}_functions")
            intact.note()
            made = functools.partial(module.WORKER, target, native)
        if not operators:
            return cast("Worker", made and made())
        worker = operator_worker(name) if made is None else None
    except ModuleNotFoundError as error:
        # Only an annotated framework can be missing: an imported one is installed.
        raise Failed(not_imported(target, error)) from error
    # The framework is imported by now, so its types are known.
    operators = {key: function.on(name) for key, function in operators.items()}

    def served() -> Any:
        return (worker or operator_worker(name))(target, operators)

    return cast("Worker", Functions(operators, made, served))


def begin(target: Target) -> None:
    """Imports the libraries with which the code begins, but no code of the user's."""
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    path = None if target.file is None else Path(target.file)
    sys.path.insert(1, target.folder)
    try:
        import_libraries(path.read_bytes() if path else f"import {target.code}".encode())
    except OSError:
        # The real import will report this.
        pass
    finally:
        # The search for the code must later work as without this call.
        sys.path.remove(target.folder)
    if (name := framework(())) in sys.modules:
        _import_framework(name)


def preload(target: Target) -> None:
    """Imports the code and its framework for workers that are forked later."""
    native, operators = functions(target)
    name = framework([*native.values(), *operators.values()])
    if native:
        _import_framework(name)
    else:
        operator_worker(name)


def _import_framework(name: str) -> None:
    module = importlib.import_module(f"regatta_worker.callables.{name}_functions")
    if hasattr(module, "preload"):
        module.preload()


WATCHED_S = 0.05
"""Seconds for which threads are watched between two calls, if Python has other threads."""

GLANCED_S = 0.01
"""Seconds for which threads are watched if none of the others are Python's."""

WORKING = 0.02
"""Share of a core above which a Python thread counts as working."""

SPINNING = 0.5
"""The same share for other threads: thread pools of libraries spin for a while after a call."""

SETTLED_S = 0.3
"""Seconds after which such thread pools have stopped spinning."""


def working_thread() -> str:
    """Returns the name of a thread that works while no call is made; empty if none does."""
    named = {thread.native_id: thread.name for thread in threading.enumerate()}
    watched_s = WATCHED_S if len(named) > 1 else GLANCED_S
    for number, share in _shares(watched_s).items():
        if number in named and share > WORKING:
            return named[number]
        if share > SPINNING:
            time.sleep(SETTLED_S)
            if _shares(watched_s).get(number, 0.0) > SPINNING:
                return named.get(number, f"thread {number}")
    return ""


def _shares(watched_s: float) -> dict[int, float]:
    """Watches for `watched_s` seconds. Returns each other thread's share of a core by native id."""
    own = threading.get_native_id()
    with contextlib.suppress(OSError):
        # The CPU clock of a thread by its id, as Linux's `MAKE_THREAD_CPUCLOCK` forms it.
        numbers = [int(name) for name in os.listdir("/proc/self/task")]
        clocks = {number: ~number << 3 | 6 for number in numbers if number != own}
        before = {number: _seconds(clock) for number, clock in clocks.items()}
        if before:
            time.sleep(watched_s)
        after = {number: _seconds(clock) for number, clock in clocks.items()}
        return {number: (after[number] - before[number]) / watched_s for number in clocks}
    return {}


def _seconds(clock: int) -> float:
    """Returns the CPU time of a thread in seconds; 0 if it has ended."""
    with contextlib.suppress(OSError):
        return time.clock_gettime(clock)
    return 0.0


class Guarded:
    """A mixin, to precede a worker among base classes. Serves a user's functions, and reports an
    error in one with the line of the user's code."""

    _variant: str
    """The function of the prepared case, for messages."""

    def __init__(self, target: Target, functions: Any, *given: Any) -> None:
        """`given` are the arguments of the worker's constructor."""
        super().__init__(*given)
        self.NAME, self.TESTED = target.name, target.code
        self._target, self.functions = target, functions

    def prepare(self, request: Message) -> Message:
        """Prepares the case by the worker, which makes the first call."""
        worker: Any = super()
        where = self._target.where(request.get("variant", ""))
        try:
            with self._placed(where):
                prepared: Message = worker.prepare(request)
        except NotImplementedError as error:
            raise Unsupported(str(error) or type(error).__name__) from error
        self._variant = where
        return prepared

    @contextlib.contextmanager
    def _placed(self, where: str) -> Iterator[None]:
        """Raises Failed, with the place of the error, for an exception of the code."""
        try:
            yield
        except (Failed, Lost, Unavailable, Unsupported, NotImplementedError):
            raise
        except Exception as error:
            traceback.print_exc()
            raise Failed(f"{where}: {placed(self._target.file, error)}") from error

    def measure(self, request: Message) -> Message:
        """Takes samples by the worker. Raises Failed if the code replaced parts that time and check
        it, or works between calls."""
        worker: Any = super()
        with self._placed(self._variant):
            measured: Message = worker.measure(request)
        self.check_intact()
        if name := working_thread():
            raise Failed(
                f"{self._variant}: a thread of the function ({name}) works between the calls, "
                f"outside of the time: have it end, or wait for work, before the function returns"
            )
        return measured

    def repeat(self, calls: int, core: int | None, graph: bool, step: str = "call") -> Message:
        """Makes calls by the worker. After `check`, also checks the parts that time them."""
        worker: Any = super()
        repeated: Message = worker.repeat(calls, core, graph, step)
        if "errors" in repeated:
            self.check_intact()
        return repeated

    def check_intact(self) -> None:
        """Raises Failed if the code replaced parts that time and check it."""
        if name := intact.replaced(imported(self._target).__file__):
            raise Failed(f"{self._variant} replaced {name}, by which it is timed and checked")
