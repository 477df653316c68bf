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

from regatta.executable import RegattaError, asked, document

Problem = Mapping[str, Any]
"""A `[[sweep]]` of a suite: `{"seq": [1024, 4096], "head_dim": 64, "dtype": "bf16"}`."""

WITHIN = "REGATTA_COMPARES"
"""Set for workers, so that a script which compares when it is imported is told so."""

WIDTH, ROW, LEFT = 640, 34, 260
"""Of the plot, in pixels; what is left of the dots is the case's."""


@dataclass(frozen=True)
class Compared:
    """What came out. Printed it is regatta's own table; in a notebook with a plot."""

    text: str
    judgement: dict[str, Any]
    """As `regatta diff --json` has it (docs/FORMAT.md)."""
    page: Path
    """The report, with every sample."""

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A case each: `case`, `word`, `base`, `head`, `change`."""
        return list(self.judgement.get("rows", []))

    @property
    def worse(self) -> bool:
        """True where the second function is slower or otherwise worse in a case."""
        return self.judgement.get("exit_code") == 1

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.text)}</pre>{plot(self.rows)}"


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
    more = ["--quiet", "--out", str(reports), *words]
    environment = {WITHIN: "1"}
    text = asked(["compare", "./compare.toml", *sides, *more], folder, environment).stdout
    pair = [str(reports / "base"), str(reports / "head")]
    judgement = document(asked(["diff", *pair, "--json"], folder, environment))
    return Compared(text, judgement, reports / "index.html")


def suite(
    base: Callable[..., Any], head: Callable[..., Any], problem: Problem | Sequence[Problem]
) -> str:
    """The suite of both functions on the problems."""
    lines = ["schema = 1", f"description = {_toml(f'{base.__name__} and {head.__name__}')}"]
    for side, function in (("base", base), ("head", head)):
        lines += [f"[workers.{side}]", f"python = {_toml(_code(function))}"]
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


def plot(rows: Sequence[Mapping[str, Any]]) -> str:
    """A figure: of each case the invocations of both sides, as shares of the base's median."""
    shown = [row for row in rows if row.get("base") and row.get("head")]
    shares = [
        (row, side, ns / row["base"]["median_ns"])
        for row in shown
        for side in ("base", "head")
        for ns in row[side]["invocations_ns"]
    ]
    if not shares:
        return ""
    least = float(min(1.0, *(share for _, _, share in shares)))
    most = float(max(1.0, *(share for _, _, share in shares)))
    scale = (WIDTH - LEFT - 20) / max(most - least, 1e-9)
    places = {id(row): ROW * number for number, row in enumerate(shown)}
    height = ROW * len(shown) + 24

    def x(share: float) -> float:
        return LEFT + 10 + (share - least) * scale

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" role="img" '
        f'aria-label="times of each invocation" font-family="sans-serif" font-size="12">',
        f'<line x1="{x(1.0):.1f}" x2="{x(1.0):.1f}" y1="0" y2="{height - 20}" stroke="#888"/>',
    ]
    for row in shown:
        case = html.escape(str(row["case"]).partition(":")[2])
        word = html.escape(str(row["word"]))
        parts.append(f'<text x="0" y="{places[id(row)] + 20}" fill="#888">{case}: {word}</text>')
    for row, side, share in shares:
        y = places[id(row)] + (10 if side == "base" else 22)
        # Told apart by place and form too, not by colour alone.
        colour, fill = ("#0072b2", "none") if side == "base" else ("#d55e00", "#d55e00")
        parts.append(
            f'<circle cx="{x(share):.1f}" cy="{y}" r="4" stroke="{colour}" fill="{fill}"/>'
        )
    parts.append(
        f'<text x="{LEFT + 10}" y="{height - 4}" fill="#888">time of an invocation, of the '
        f"base's median: {least:.2f} to {most:.2f}; hollow: base</text></svg>"
    )
    return "".join(parts)
