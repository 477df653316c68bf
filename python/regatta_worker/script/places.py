"""The name of a timer's call: its place in the script, and simple values around it.

A name has no line number, so that a case stays the same when lines are added above it.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import enum
import functools
import inspect
import itertools
import os
import re
import shlex
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from regatta_worker.census.functions import COMPREHENSIONS

MOST_VALUES = 24
"""The most values in a name."""

LONGEST = 40
"""Characters of a word that is a value; longer ones describe nothing."""

LARGEST = 1 << 40
"""Whole numbers above it are times or addresses."""

OF_A_PROCESS = re.compile(
    rf"(?i)[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-|^[0-9a-f]{{16,}}$|^{re.escape(tempfile.gettempdir())}/"
)
"""Words that differ between processes: a UUID, a token, a temporary file."""

HERE = os.path.join(os.path.realpath(os.curdir), "")
"""The folder in which the worker was started; the base has another one."""

Value = int | str


@dataclass(frozen=True)
class Place:
    """A call of a timer."""

    name: str
    """The enclosing function and the timed function: `main.softmax`."""
    values: dict[str, Value]
    """Arguments and loop variables around it, from the inside out."""
    where: str
    """`bench.py:31`, for messages."""

    @property
    def key(self) -> tuple[str, frozenset[tuple[str, Value]]]:
        return self.name, frozenset(self.values.items())

    def __str__(self) -> str:
        values = ",".join(f"{name}={value}" for name, value in sorted(self.values.items()))
        return f"{self.name}:{values}" if values else self.name


def place(
    frame: FrameType | None, timed: str, given: dict[str, Any], returned: set[float]
) -> Place:
    """The place of a call in `frame` that times the function `timed`. `given` are values that the
    timer itself was given, and `returned` times that timers gave before, which name nothing."""
    frames = list(users(frame))
    values: dict[str, Value] = {}
    for name, value in itertools.chain(given.items(), *map(around, frames)):
        simple = None if name in values else simplified(name, value, returned)
        if simple is not None and len(values) < MOST_VALUES:
            values[name] = simple
    if not frames:
        return Place(plain(timed), values, "a file of a library")
    inner = frames[0]
    if not values:
        for name, value in inner.f_locals.items() if inner.f_code.co_name != "<module>" else ():
            simple = simplified(name, value, returned)
            if simple is not None and len(values) < MOST_VALUES:
                values[name] = simple
    path = inner.f_code.co_filename
    named = next(each.f_code for each in frames if each.f_code.co_name not in COMPREHENSIONS)
    function = re.sub(r".*<locals>\.", "", getattr(named, "co_qualname", named.co_name))
    if function == "<module>":
        function = "" if timed else os.path.splitext(os.path.basename(path))[0]
    name = ".".join(part for part in (function, timed) if part)
    return Place(plain(name), values, f"{os.path.basename(path)}:{inner.f_lineno}")


def plain(name: str) -> str:
    """The same as can name a variant."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.")
    return name[:60] or "call"


def users(frame: FrameType | None) -> Iterator[FrameType]:
    """The frames of the script and of its project, the innermost first."""
    while frame is not None:
        if is_users(frame.f_code.co_filename, frame.f_globals.get("__name__", "")):
            yield frame
        frame = frame.f_back


@functools.cache
def _foreign() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    folders = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    own = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    folders |= {os.path.realpath(folder) for folder in folders} | {own}
    return tuple(os.path.join(folder, "") for folder in folders)


TIMING = ("flash_attn.utils.benchmark", "tilelang.", "flashinfer.testing", "triton.", "torch.")
"""Modules that only pass a call on, wherever they lie."""


def is_users(path: str, module: str) -> bool:
    if path.startswith("<") or module.startswith(TIMING):
        return False
    path = os.path.abspath(path)
    foreign = path.startswith(_foreign()) or "/site-packages/" in path
    return not foreign and "/dist-packages/" not in path


def around(frame: FrameType) -> Iterator[tuple[str, Any]]:
    """The arguments of the frame's function, and the variables of the loops around its line."""
    code, here = frame.f_code, frame.f_locals
    loops = loops_around(code.co_filename, position(frame))
    if code.co_name != "<module>":
        # A list that a loop runs over names no call in it: its variable does, and keeps its value
        # where the list gets one more.
        over = {name for loop in loops for name in names_in(header(loop))}
        for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
            value = here.get(name)
            if name in here and not (name in over and isinstance(value, (list, tuple, dict))):
                yield from parts(name, value)
    for name in dict.fromkeys(name for loop in loops for name in loop_variables(loop)):
        if name in here:
            yield from parts(name, here[name])
            yield from options(here[name])


def parts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The fields of a dataclass and the items of a dictionary, as some projects pass on what to
    measure; the value itself of others. Fractions in a dictionary may be results."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield field.name, getattr(value, field.name, None)
    elif isinstance(value, dict):
        words = ((key, each) for key, each in value.items() if not isinstance(each, float))
        yield from ((key, each) for key, each in words if isinstance(key, str))
    else:
        yield name, value


UNNAMED = {"routine", "backends", "refcheck", "allow_output_mismatch", "generate_repro_command"}
"""Options of FlashInfer's testlists that the case's name has already, or that change no call."""


def options(line: Any) -> Iterator[tuple[str, Any]]:
    """The options of a line of a list of command lines, such as FlashInfer's testlist: `--m 16
    --causal` are `m=16` and `causal=yes`."""
    if not isinstance(line, str) or not line.startswith("--"):
        return
    with contextlib.suppress(ValueError):
        for part in re.split(r"(?:^| )--", shlex.join(shlex.split(line))):
            name, *values = [word for word in shlex.split(part) if word != "-vv"] or [""]
            if name and name not in UNNAMED:
                yield name, values[0] if len(values) == 1 else values or True


Loop = ast.For | ast.AsyncFor | ast.While | ast.comprehension


Position = tuple[int, int]
"""A line and a column in bytes; -1 for a column that is not known."""


def position(frame: FrameType) -> Position:
    """The place in its file of the call that a frame makes."""
    # Python 3.10 has the line alone.
    positions = getattr(frame.f_code, "co_positions", lambda: ())()
    place = next(itertools.islice(positions, frame.f_lasti // 2, None), None)
    if place is None or place[0] is None or place[2] is None:
        return frame.f_lineno, -1
    return place[0], place[2]


def loops_around(path: str, place: Position) -> list[Loop]:
    """The loops around a place in a file, within its function, the innermost first."""
    found: list[Loop] = []
    node: ast.AST | None = syntax(path)
    while node is not None:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            found.clear()
        if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
            found.extend([] if _spans(header(node), place) else [node])
        found.extend(getattr(node, "generators", []))
        node = next((child for child in _children(node) if _spans(child, place)), None)
    return found[::-1]


def header(loop: Any) -> ast.expr:
    """The expression that a loop runs over, or that its condition is."""
    expression: ast.expr = loop.test if isinstance(loop, ast.While) else loop.iter
    return expression


def loop_variables(loop: Loop) -> list[str]:
    """The names that a loop sets, without the index of `enumerate`, which another value moves; of a
    `while` loop, those that its condition reads."""
    if isinstance(loop, ast.While):
        inside = (each for line in loop.body for each in ast.walk(line))
        names = (each for each in inside if isinstance(each, ast.Name))
        changed = {each.id for each in names if isinstance(each.ctx, ast.Store)}
        return [name for name in names_in(header(loop)) if name in changed]
    targets: list[ast.AST] = [loop.target]
    if called(loop.iter) == "enumerate" and isinstance(loop.target, ast.Tuple):
        targets = list(loop.target.elts[1:])
    return [name for target in targets for name in names_in(target)][::-1]


def names_in(node: ast.AST) -> list[str]:
    return [each.id for each in ast.walk(node) if isinstance(each, ast.Name)]


def _children(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if hasattr(child, "lineno"):
            yield child
        else:
            # Cases of a `match` and arguments have no lines of their own.
            yield from _children(child)


def _spans(node: Any, place: Position) -> bool:
    line, column = place
    end = node.end_lineno or node.lineno
    if column < 0 or node.end_col_offset is None:
        return bool(node.lineno <= line <= end)
    return bool((node.lineno, node.col_offset) <= place < (end, node.end_col_offset))


def package(path: str) -> tuple[str, str] | None:
    """The folder and the name of the package that a file is part of, as `python -m` has it and asv
    imports it; None for a file in none."""
    folder, package = os.path.dirname(path), ""
    while os.path.exists(os.path.join(folder, "__init__.py")):
        folder, name = os.path.split(folder)
        package = f"{name}.{package}".rstrip(".")
    return (folder, package) if package else None


def installed_below(here: str) -> list[str]:
    """The folders of `paths` that lie in this one, where a build installs packages."""
    inside = os.path.join(os.path.realpath(here), "")
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    own = (inside, os.path.join(inside, "src", ""))
    folders = ((path, os.path.join(os.path.realpath(path), "")) for path in paths if path)
    return [path for path, real in folders if real.startswith(inside) and real not in own]


def imports_relatively(path: str) -> bool:
    """True for a file with `from . import`."""
    nodes = ast.walk(syntax(path) or ast.Module([], []))
    return any(isinstance(node, ast.ImportFrom) and node.level for node in nodes)


@functools.cache
def syntax(path: str) -> ast.AST | None:
    """The syntax of a file; None where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return None


def simplified(name: str, value: Any, returned: set[float]) -> Value | None:
    """A value as a case's name has it; None for what names nothing."""
    if name.startswith("_") or name == "self" or not re.fullmatch(r"[A-Za-z][\w-]{0,63}", name):
        return None
    if type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0:
        value = value.item()
    if isinstance(value, enum.Enum):
        value = value.name
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return int(value) if abs(value) < LARGEST else None
    if isinstance(value, float):
        # A time or a rate has more digits than anybody writes; 0.1 + 0.2 has them by rounding.
        return word(f"{value:g}") if value not in returned and len(f"{value:.14g}") <= 7 else None
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, str):
        inside = value.removeprefix(HERE)
        if OF_A_PROCESS.search(inside):
            return None
        return word(inside) or word(os.path.basename(inside))
    if isinstance(value, (tuple, list)) and 1 <= len(value) <= 6:
        parts = [simplified(name, each, returned) for each in value]
        return None if None in parts else word("x".join(map(str, parts)))
    if re.fullmatch(r"dtype.*|\w*DType|_ScalarMeta", type(value).__name__):
        return word(str(getattr(value, "name", value)).removeprefix("torch."))
    if isinstance(value, type) or inspect.isroutine(value) or hasattr(value, "arg_names"):
        inner = callee(value)
        return word(inner) if inner and inner != name else None
    return None


def word(text: str) -> Value | None:
    """The text as can stand in a case's id."""
    text = re.sub(r"[^A-Za-z0-9_./+-]+", "-", text.strip()).strip("-")
    if re.fullmatch(r"[+-]?[0-9]{1,15}", text):
        return int(text)
    # `auto` is what a case says of a parameter that it does not have.
    return text if 1 <= len(text) <= LONGEST and text != "auto" else None


def callee(function: Any) -> str:
    """The name of a function, or the first function that a lambda calls; empty for none."""
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__name__", "") or type(function).__name__
    if name != "<lambda>":
        return str(name)
    code: CodeType | None = getattr(function, "__code__", None)
    tree = syntax(code.co_filename) if code else None
    if code is None or tree is None:
        return ""
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Lambda))
    here = [called(node.body) for node in nodes if node.lineno == code.co_firstlineno]
    # The one of several in a line whose code has the name.
    names = {*code.co_names, *code.co_freevars}
    name = next((name for name in here if name in names), "" if len(here) != 1 else here[0])
    if name in code.co_freevars and not is_users(code.co_filename, str(function.__module__)):
        # A variable of a library, such as perfplot's `kernel`: what it has is the script's.
        return callee(function.__closure__[code.co_freevars.index(name)].cell_contents)
    return name


WAITS = {"block_until_ready", "device_get", "synchronize"}
"""Functions that only wait for what another one computes."""


def called(node: ast.AST) -> str:
    """The name of the outermost function that an expression calls; where that only waits for what
    another one computes, of that one."""
    names = []
    for each in ast.walk(node):
        if isinstance(each, ast.Call):
            function: Any = each.func
            while isinstance(function, (ast.Subscript, ast.Call)):
                function = function.value if isinstance(function, ast.Subscript) else function.func
            names.append(str(getattr(function, "attr", "") or getattr(function, "id", "")))
    return next((name for name in names if name not in WAITS), names[0] if names else "")


def statement(text: str) -> str:
    """The function that a statement calls; empty for none."""
    try:
        return called(ast.parse(text.strip()))
    except SyntaxError:
        return ""


def raised_at(error: BaseException, path: str) -> str:
    """`bench.py:12: ValueError: …`: where the error came from in the script."""
    words = str(error).strip().partition("\n")[0]
    text = f"{type(error).__name__}: {words}" if words else type(error).__name__
    return f"{os.path.basename(path)}{line_of(error, path)}: {text}"


def line_of(error: BaseException, path: str) -> str:
    """`:12`: the innermost line of the script that an error came through; empty for none."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if os.path.realpath(trace.tb_frame.f_code.co_filename) == path:
            line = trace.tb_lineno
        trace = trace.tb_next
    if not line and isinstance(error, SyntaxError):
        line = error.lineno or 0
    return f":{line}" if line else ""
