"""Two functions beside each other: measured in turn by `regatta compare`, and shown."""

from __future__ import annotations

import html
import inspect
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regatta.executable import RegattaError, asked

Problem = Mapping[str, Any]
"""A `[[sweep]]` of a suite: `{"seq": [1024, 4096], "head_dim": 64, "dtype": "bf16"}`."""

WITHIN = "REGATTA_COMPARES"
"""Set for workers, so that a script which compares when it is imported is refused."""


@dataclass(frozen=True)
class Compared:
    """The result: printed it is regatta's own table."""

    text: str
    judgement: dict[str, Any]
    """As `regatta compare --json` has it (docs/FORMAT.md)."""
    page: Path
    """The report, with every sample."""

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A case each: `case`, `word`, `reason`, `base`, `head`, `metrics`."""
        return list(self.judgement["rows"])

    @property
    def outcome(self) -> str:
        """`passed`, `failed` where the second function is slower or otherwise worse in a case,
        or `inconclusive` where it may be."""
        return str(self.judgement["verdict"]["outcome"])

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.text)}</pre>"


def compare(
    base: Callable[..., Any],
    head: Callable[..., Any],
    problem: Problem | Sequence[Problem],
    *words: str,
    out: str | os.PathLike[str] | None = None,
) -> Compared:
    """Measures two functions in turn on the same problems, and judges the second by the first.

    Both lie in files, which the workers import: in a notebook, `%%writefile` makes one.
    `words` are further arguments of `regatta compare`, `out` is the folder of the reports.

    Raises RegattaError where functions or problems cannot be measured.
    """
    if os.environ.get(WITHIN):
        raise RegattaError(
            "this file compares while a worker imports it; put that behind "
            '`if __name__ == "__main__":`'
        )
    folder = Path(tempfile.mkdtemp(prefix="regatta-"))
    reports = Path(out).absolute() if out is not None else folder / "reports"
    (folder / "compare.toml").write_text(suite(base, head, problem))
    sides = ["--base", f"base/{base.__name__}", "--head", f"head/{head.__name__}"]
    judgement = folder / "judgement.json"
    more = ["--quiet", "--out", str(reports), "--output", f"json={judgement}", *words]
    done = asked(["compare", "./compare.toml", *sides, *more], folder, {WITHIN: "1"})
    if not judgement.exists():
        raise RegattaError(f"regatta compare judged nothing: {done.stderr.strip()}")
    return Compared(done.stdout, json.loads(judgement.read_text()), reports / "index.html")


def suite(
    base: Callable[..., Any], head: Callable[..., Any], problem: Problem | Sequence[Problem]
) -> str:
    lines = [f"description = {_toml(f'{base.__name__} and {head.__name__}')}"]
    for side, function in (("base", base), ("head", head)):
        lines.append(f"workers.{side} = {_toml(_code(function))}")
    variants = [f"base/{base.__name__}", f"head/{head.__name__}"]
    for sweep in [problem] if isinstance(problem, Mapping) else problem:
        lines += ["[[sweep]]", f"variants = {_toml(variants)}"]
        lines += [f"{key} = {_toml(value)}" for key, value in sweep.items()]
    return "\n".join([*lines, ""])


def _code(function: Callable[..., Any]) -> str:
    """`FILE:NAME`, by which a worker imports the function."""
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
    """A value as TOML has it: JSON's way, but for tables."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, (list, tuple, range)):
        return "[" + ", ".join(_toml(inner) for inner in value) + "]"
    return json.dumps(value, ensure_ascii=False)
