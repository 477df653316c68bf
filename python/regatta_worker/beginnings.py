"""Imports the libraries with which a file begins, for processes that are kept across its edits.

A user's file mostly begins with imports of libraries. A process that has done only these imports,
and is forked for each answer, imports the rest of the file in its current state. No code of the
user's ran before the fork, so the result is the same as without a fork.
"""

from __future__ import annotations

import ast
import glob
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from regatta_worker.serving import is_installed, module_files


def import_libraries(code: bytes) -> bool:
    """Runs the leading imports of libraries in a module, up to the first other statement. If that
    imports a user's module, its leading imports run too. True if all were imports of libraries."""
    try:
        statements = ast.parse(code).body
    except (SyntaxError, ValueError):
        # The real import will report this.
        return False
    return all(map(_imports_libraries, statements))


def _imports_libraries(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(value=ast.Constant(value=str())) | ast.ImportFrom(module="__future__"):
            return True
        case ast.ImportFrom(module=str() as name, level=0):
            return _imports_library(name, statement)
        case ast.Import(names=names):
            own = [ast.copy_location(ast.Import([name]), statement) for name in names]
            return all(_imports_library(one.names[0].name, one) for one in own)
    return False


def _imports_library(name: str, statement: ast.stmt) -> bool:
    top, *inner = name.split(".")
    try:
        spec = importlib.util.find_spec(top)
        places = [spec.origin, *(spec.submodule_search_locations or ())] if spec else []
        own = [place for place in places if not _is_installed(place)]
        if spec and not own:
            exec(compile(ast.Module([statement], []), name, "exec"), {})
            return True
        file = Path(spec.origin) if spec and spec.origin else None
        while file and import_libraries(file.read_bytes()) and inner:
            place = file.parent / inner.pop(0)
            file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    except Exception:
        return False
    return False


def _is_installed(place: str | None) -> bool:
    """True for a file or folder of a library or of the interpreter."""
    return place in (None, "built-in", "frozen") or is_installed(str(place))


def code_of_user() -> str:
    """Returns an imported file of the user's, such as a `sitecustomize`; empty without one."""
    return next((file for file in module_files() if not is_installed(file)), "")


class Imported:
    """A record of the files and folders that determine what this process has imported. `folders`
    are searched for code as well as `sys.path`."""

    def __init__(self, began_ns: int, folders: tuple[str, ...] = ()) -> None:
        with open("/proc/self/maps") as maps:
            mapped = [line.split(maxsplit=5)[5].strip() for line in maps if "/" in line]
        self._names = {name.partition(".")[0] for name in sys.modules}
        self._files = {*module_files(), *mapped, sys.executable}
        self._folder, self._folders = os.getcwd(), folders
        self._state = self._look()
        # A file that changed after `began_ns` may have changed while it was imported.
        late = (path for path, state in self._state.items() if began_ns < state[-1])
        self._late = next(late, "")

    def changed(self) -> str:
        """Names a file or folder that has changed since; empty if all are unchanged."""
        now = self._look()
        differ = (path for path in {**self._state, **now} if now.get(path) != self._state.get(path))
        path = next(differ, self._late)
        return path and f"{path} changed"

    def _look(self) -> dict[str, tuple[Any, ...]]:
        state: dict[str, tuple[Any, ...]] = {path: _facts(path) for path in sorted(self._files)}
        # If the working folder was replaced, this process no longer finds files in it.
        state[self._folder] = (*_facts(self._folder)[:2], 0)
        for folder in filter(os.path.isdir, {*sys.path, *self._folders}):
            if is_installed(os.path.join(folder, "a module")):
                # Shows packages that were added or removed, and changed `.pth` files.
                paths = [folder, *glob.glob(os.path.join(folder, "*.pth"))]
                state |= {path: _facts(path) for path in paths}
            else:
                # Shows modules that would shadow those of a library.
                names = {name.partition(".")[0] for name in os.listdir(folder)}
                state[f"{folder} with another module"] = (*sorted(names & self._names), 0)
        return state


def _facts(path: str) -> tuple[int, ...]:
    try:
        facts = os.stat(path)
    except OSError:
        return (0,)
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns
