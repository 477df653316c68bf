"""Traces programs and compares `regatta diff` of them with what the table expects."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from faults.around import TURN
from faults.table import BASE, Change

MAIN = Path(__file__).resolve().parent / "main.py"


class Failed(Exception):
    """A program, or the tool that is tested, ended otherwise than it should."""


@dataclass
class Row:
    """What `regatta diff` found of one change."""

    program: str
    change: str
    expected: tuple[str, ...]
    """Causes of which one must come first; none of a harmless change."""
    exit: int | None = None
    """The exit code of the comparison; none where it was not made."""
    found: list[str] = field(default_factory=list)
    """Causes, in the order in which they were printed."""
    evidence: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    """Of the verdict."""
    failure: str | None = None
    """Why there is no comparison."""

    @property
    def right(self) -> bool:
        """Whether the expected cause came first, or a harmless change passed."""
        if self.failure is not None:
            return False
        if not self.expected:
            return self.exit == 0
        return self.exit == 1 and bool(self.found) and self.found[0] in self.expected

    def shown(self) -> str:
        """The row as text: a line, and where it is wrong, why."""
        title = f"{self.program}/{self.change}"
        if self.failure is not None:
            last = "\n      ".join(self.failure.strip().splitlines()[-15:])
            return f"WRONG {title:38} inconclusive\n      {last}"
        causes = [f"{one}: {why}" for one, why in zip(self.found, self.evidence, strict=True)]
        word = "ok" if self.right else "WRONG"
        lines = [f"{word:5} {title:38} exit {self.exit}  {causes[0] if causes else 'nothing'}"]
        if not self.right:
            wanted = " or ".join(self.expected) or "nothing worse"
            lines.append(f"      expected {wanted}; {self.reasons}")
            lines += [f"      then {cause}" for cause in causes[1:]]
        return "\n".join(lines)

    def record(self) -> str:
        """The row as a line of JSON."""
        return json.dumps({**asdict(self), "right": self.right}, ensure_ascii=False)


def traced(regatta: str, program: str, change: str, folder: Path, runs: int) -> Path:
    """Traces a program with a change, in so many runs, and gives the trace.

    Raises Failed where either ends otherwise than with 0.
    """
    trace = folder / f"{program}-{change}.trace"
    if trace.exists():
        return trace
    command = [regatta, "trace", "--runs", str(runs), "--out", str(trace), "--"]
    command += [sys.executable, str(MAIN), program, change]
    environment = {**os.environ, TURN: str(folder / "turn")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        raise Failed(
            f"{program} {change}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
    return trace


def judged(regatta: str, change: Change, folder: Path) -> Row:
    """Compares a change with the program as it should be, of which the traces are in `folder`."""
    row = Row(change.program, change.name, change.causes)
    base, head = (folder / f"{change.program}-{name}.trace" for name in (BASE, change.name))
    command = [regatta, "diff", "--json", str(base), str(head)]
    done = subprocess.run(command, capture_output=True, text=True)
    row.exit = done.returncode
    if not done.stdout:
        row.failure = done.stderr
        return row
    (folder / f"{change.program}-{change.name}.json").write_text(done.stdout, encoding="utf-8")
    return filled(row, json.loads(done.stdout))


def filled(row: Row, answer: dict[str, Any]) -> Row:
    """The row with what the JSON of a comparison of two traces has."""
    row.found = [finding["cause"] for finding in answer["findings"]]
    row.evidence = [finding["evidence"] for finding in answer["findings"]]
    row.reasons = answer["verdict"]["reasons"]
    return row
