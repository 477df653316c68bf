"""The end of a script, in words that say what helps."""

from __future__ import annotations

import atexit
import contextlib
import functools
import glob
import importlib.util
import io
import os
import re
import resource
import stat
import sys
import traceback
from typing import Any

from regatta_worker.protocol.channel import Failed
from regatta_worker.script.places import installed_below, is_users
from regatta_worker.serving import is_installed

NO_INPUT = "the script asks for input, but has no input; give it as an argument"


class NoInput(io.RawIOBase):
    """An empty standard input that knows if it was read."""

    asked = False

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 0

    def readinto(self, buffer: object) -> int:
        self.asked = True
        return 0

    def advice(self) -> str:
        return f"{NO_INPUT[0].upper()}{NO_INPUT[1:]}. " if self.asked else ""


class Children:
    """Processes that a script starts; some were started before it."""

    def __init__(self) -> None:
        self._before = self._page_faults()

    @staticmethod
    def _page_faults() -> int:
        """The page faults of all that have ended."""
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt

    def advice(self) -> str:
        if self._page_faults() == self._before:
            return ""
        return "Timers that other processes call are not seen: call them in the script's own. "


class Exits:
    """Functions that the script registers by `atexit`: `os._exit`, which ends it, calls none."""

    def __init__(self) -> None:
        self._functions: list[functools.partial[object]] = []
        self._register, self._unregister = atexit.register, atexit.unregister
        atexit.register = self.register  # type: ignore[assignment]
        atexit.unregister = self.unregister

    def register(self, function: Any, *arguments: Any, **named: Any) -> Any:
        frame = sys._getframe(1)
        if not is_users(frame.f_code.co_filename, frame.f_globals.get("__name__", "")):
            return self._register(function, *arguments, **named)
        self._functions.append(functools.partial(function, *arguments, **named))
        return function

    def unregister(self, function: Any) -> None:
        self._functions = [each for each in self._functions if each.func != function]
        self._unregister(function)

    def call(self) -> None:
        """Calls them, the last first, and the others where one raises, as Python does."""
        while self._functions:
            try:
                self._functions.pop()()
            except Failed:
                raise
            except Exception:
                traceback.print_exc()


def last_printed(beginning: str = r"\s*\S") -> str:
    """The last line in the log of this process that begins so, such as argparse's of a missing
    argument; empty where standard error is not a file."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
        if not stat.S_ISREG(os.fstat(2).st_mode):
            return ""
        with open("/proc/self/fd/2", "rb") as log:
            log.seek(max(0, os.fstat(2).st_size - 2000))
            lines = log.read().decode(errors="replace").splitlines()
        matching = (line for line in reversed(lines) if re.match(beginning, line))
        return " ".join(next(matching, "").split())[:300]
    return ""


def advised(words: str, error: BaseException, given: NoInput) -> str:
    """The words of an exception, with what helps."""
    if given.asked or isinstance(error, EOFError):
        return f"{words}: {NO_INPUT}"
    if isinstance(error, NameError) and error.name == "get_ipython":
        return f"{words}: only IPython has it: time by `timeit.timeit` in place of `%timeit`"
    if isinstance(error, ModuleNotFoundError):
        package, _, module = str(error.name).partition(".")
        spec = importlib.util.find_spec(package) if module else None
        places = (spec and spec.submodule_search_locations) or []
        if folder := next((place for place in places if not is_installed(f"{place}/")), ""):
            last, others = module.rpartition(".")[2], installed_below(os.getcwd())
            inside = os.path.join(package, *module.split(".")[:-1])
            for other in (os.path.join(other, inside) for other in others):
                if glob.glob(f"{glob.escape(other)}/{last}.*"):
                    return (
                        f"{words}. {other} has it, and {folder}, which Python finds first, does "
                        "not: put the script into a folder of its own, such as benchmarks"
                    )
            return (
                f"{words}. If a build makes it in {folder}, as an extension in place, give that "
                "build to a suite ([build] and this script), which builds a revision, too"
            )
        return f"{words}. {not_installed()}"
    return words


def not_installed() -> str:
    """The fix where a module is not there."""
    return (
        f"Is it installed for {sys.executable}? Another Python is named in REGATTA_PYTHON or "
        f"[environments.default]; a folder in `paths` there"
    )
