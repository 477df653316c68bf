"""Measures functions and suites: `bench`, `compare`, `run` and `gate`."""

from __future__ import annotations

import inspect
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from regatta.executable import RegattaError
from regatta.results import Result, measured

Problem = Mapping[str, Any]
"""A `[[sweep]]` of a suite: `{"seq": [1024, 4096], "head_dim": 64, "dtype": "bf16"}`."""

WITHIN = "REGATTA_COMPARES"
"""Variable that is set for workers, so that a file which measures when imported is refused."""


def bench(
    function: Callable[..., Any],
    problem: Problem | Sequence[Problem] | str | None = None,
    /,
    *words: str,
    out: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    **axes: Any,
) -> Result:
    """Measures a function in several processes, and checks its results. `row.head` of each row has
    the time, with its interval.

    `problem` is a mapping of axes or a list of these; keywords set axes too: `bench(flash,
    seq=1024, head_dim=64)`. `words` are further arguments of `regatta run`.

    Raises RegattaError if the function or a problem cannot be measured.
    """
    if isinstance(problem, str):
        words, problem = (problem, *words), None
    problems = [{**one, **axes} for one in _problems(problem or {})]
    text = suite({"mine": function}, problems)
    return _of_functions(["run", "./suite.toml", *words], text, out, progress)


def compare(
    base: Callable[..., Any],
    head: Callable[..., Any],
    problem: Problem | Sequence[Problem],
    *words: str,
    out: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> Result:
    """Measures two functions in turn on the same problems, and compares `head` with `base`.

    Both must be in files, which workers import; in a notebook, `%%writefile` creates one. `words`
    are further arguments of `regatta compare`. `out` is a folder for the reports. `progress` prints
    the progress (by default on a terminal).

    Raises RegattaError if a function or a problem cannot be measured.
    """
    text = suite({"base": base, "head": head}, problem)
    sides = ["--base", f"base/{base.__name__}", "--head", f"head/{head.__name__}"]
    return _of_functions(["compare", "./suite.toml", *sides, *words], text, out, progress)


def run(
    suite: str | os.PathLike[str],
    *words: str,
    out: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> Result:
    """Runs `regatta run SUITE`. The suite is built in, or a file whose name ends in `.toml`.

    Raises RegattaError if the suite cannot be measured.
    """
    return measured(["run", path_of(suite), *words], out=out, progress=progress)


def gate(
    suite: str | os.PathLike[str],
    *words: str,
    base: str | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> Result:
    """Runs `regatta gate SUITE` against the stored baseline or a version (`base="git:main"`).

    Raises RegattaError if the suite cannot be measured.
    """
    more = [] if base is None else ["--base", base]
    return measured(["gate", path_of(suite), *more, *words], out=out, progress=progress)


def path_of(suite: str | os.PathLike[str]) -> str:
    """Returns a suite in the program's form: a file needs a path with a folder."""
    name = os.fspath(suite)
    return f"./{name}" if name.endswith(".toml") and "/" not in name else name


def suite(functions: Mapping[str, Callable[..., Any]], problem: Problem | Sequence[Problem]) -> str:
    """Returns the text of a suite with a worker for each function and a sweep for each problem."""
    code = {worker: _code(function) for worker, function in functions.items()}
    names = " and ".join(function.__name__ for function in functions.values())
    lines = [f"description = {_toml(names)}"]
    lines += [f"workers.{worker} = {_toml(target)}" for worker, target in code.items()]
    variants = [f"{worker}/{function.__name__}" for worker, function in functions.items()]
    for sweep in _problems(problem):
        lines += ["[[sweep]]", f"variants = {_toml(variants)}"]
        lines += [f"{key} = {_toml(value)}" for key, value in sweep.items()]
    return "\n".join([*lines, ""])


def _problems(problem: Problem | Sequence[Problem]) -> list[Problem]:
    problems = [problem] if isinstance(problem, Mapping) else problem
    if isinstance(problems, (list, tuple)) and all(isinstance(one, Mapping) for one in problems):
        return list(problems)
    raise RegattaError(
        f"{problem!r} is not a problem: give a mapping of axes, {{'seq': 1024, 'head_dim': 64}}, "
        f"or a list of these; `compare` takes two functions before it"
    )


def _of_functions(
    words: Sequence[str],
    text: str,
    out: str | os.PathLike[str] | None,
    progress: bool | None,
) -> Result:
    if os.environ.get(WITHIN):
        raise RegattaError(
            "this file measures while a worker imports it; put that behind "
            '`if __name__ == "__main__":`'
        )
    variables, words = {WITHIN: "1"}, _outputs_from_here(words)
    return measured(words, out=out, progress=progress, variables=variables, suite=text)


def _outputs_from_here(words: Sequence[str]) -> list[str]:
    """Makes the paths of `--output FORMAT=PATH` in `words` absolute, because the program is started
    in another folder."""

    def word(option: str, text: str) -> str:
        pattern = "()" if option in ("-o", "--output") else "(--output=|-o)"
        found = re.fullmatch(f"{pattern}([a-z-]+=)(?!-$)(.+)", text)
        return f"{found[1]}{found[2]}{Path(found[3]).absolute()}" if found else text

    return [word(*pair) for pair in zip(["", *words], words, strict=False)]


def _code(function: Callable[..., Any]) -> str:
    """Returns `FILE:NAME`, by which a worker imports the function."""
    try:
        file = Path(inspect.getsourcefile(inspect.unwrap(function)) or "").resolve()
    except TypeError:
        file = Path()
    name = getattr(function, "__name__", "")
    if not (file.is_file() and file.suffix == ".py" and name.isidentifier()):
        raise RegattaError(
            f"{name or function!r} is in no file that a worker could import; write it into one "
            f"(in a notebook: `%%writefile bench.py`), and import it from there"
        )
    return f"{file}:{name}"


def _toml(value: Any) -> str:
    """Formats a value as TOML, which differs from JSON only in tables."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, (list, tuple, range)):
        return "[" + ", ".join(_toml(inner) for inner in value) + "]"
    if hasattr(value, "tolist"):
        # NumPy's numbers and arrays.
        return _toml(value.tolist())
    try:
        return json.dumps(value, ensure_ascii=False)
    except TypeError:
        raise RegattaError(
            f"{value!r} cannot be a value of an axis: use a number or words"
        ) from None
