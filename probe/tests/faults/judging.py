"""Traces programs and holds `regatta diff` of them to what the table says."""

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

TOLD = 8
"""Kernels of a comparison that are kept, by growth."""


class Failed(Exception):
    """A program, or the tool that is tested, ended otherwise than it should."""


@dataclass
class Row:
    """What was said of one change."""

    program: str
    change: str
    expected: tuple[str, ...]
    """Causes of which one must come first; none of a harmless change."""
    exit: int | None = None
    """The exit code of the comparison; none where it was not made."""
    said: list[str] = field(default_factory=list)
    """Causes, in the order in which they were told."""
    evidence: list[str] = field(default_factory=list)
    """What was seen of each."""
    reasons: list[str] = field(default_factory=list)
    """Of the verdict."""
    busy_ns: tuple[float, float] | None = None
    """The time in which the device works, of both sides."""
    elapsed_ns: tuple[float, float] | None = None
    scope: str | None = None
    """What was compared: a repetition, or the whole program."""
    account: Any = None
    """Lines that add up to the change, where the comparison has them."""
    kernels: list[str] = field(default_factory=list)
    """What became of those that grew most, or fell."""
    failure: str | None = None
    """Why there is no comparison."""

    @property
    def held(self) -> bool:
        """True when what must be said was said first, or nothing of a harmless change."""
        if self.failure is not None:
            return False
        if not self.expected:
            return self.exit == 0
        return self.exit == 1 and bool(self.said) and self.said[0] in self.expected

    def shown(self) -> str:
        """The row as text: a line, and where it does not hold, why."""
        title = f"{self.program}/{self.change}"
        if self.failure is not None:
            last = "\n      ".join(self.failure.strip().splitlines()[-15:])
            return f"WRONG {title:38} not judged\n      {last}"
        times = [
            f"{word} {pair[0] / 1e6:.3f} → {pair[1] / 1e6:.3f} ms"
            for word, pair in (("busy", self.busy_ns), ("elapsed", self.elapsed_ns))
            if pair
        ]
        first = f"{self.said[0]}: {self.evidence[0]}" if self.said else "nothing"
        word = "ok" if self.held else "WRONG"
        lines = [f"{word:5} {title:38} exit {self.exit}  {first}", f"      {', '.join(times)}"]
        if not self.held:
            wanted = " or ".join(self.expected) or "nothing worse"
            lines.append(f"      expected {wanted}; of a {self.scope}; {self.reasons}")
            rest = zip(self.said[1:], self.evidence[1:], strict=True)
            lines += [f"      then {cause}: {evidence}" for cause, evidence in rest]
            lines += [f"      kernel {kernel}" for kernel in self.kernels]
        return "\n".join(lines)

    def record(self) -> str:
        """The row as a line of JSON."""
        return json.dumps({**asdict(self), "held": self.held}, ensure_ascii=False)


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
    """What `regatta diff` says of a change against the program as it should be, of which the
    traces are in `folder`. Its answer is kept beside them."""
    row = Row(change.program, change.name, change.causes)
    base, head = (folder / f"{change.program}-{name}.trace" for name in (BASE, change.name))
    command = [regatta, "diff", "--json", str(base), str(head)]
    done = subprocess.run(command, capture_output=True, text=True)
    row.exit = done.returncode
    if not done.stdout:
        row.failure = done.stderr
        return row
    (folder / f"{change.program}-{change.name}.json").write_text(done.stdout, encoding="utf-8")
    return told(row, json.loads(done.stdout))


def told(row: Row, answer: dict[str, Any]) -> Row:
    """The row with what the JSON of a comparison of two traces says."""
    findings = answer["findings"]
    row.said = [finding["cause"] for finding in findings]
    row.evidence = [finding["evidence"] for finding in findings]
    row.reasons = answer["verdict"]["reasons"]
    row.scope = answer["scope"]
    sides = [answer["sides"][side] for side in ("base", "head")]
    row.busy_ns = (sides[0]["busy_ns"], sides[1]["busy_ns"])
    row.elapsed_ns = (sides[0]["elapsed_ns"], sides[1]["elapsed_ns"])
    row.account = answer.get("account")
    kernels = answer["kernels"]
    kernels = sorted(kernels, key=lambda kernel: -abs(grown(kernel)))
    row.kernels = [shown(kernel) for kernel in kernels[:TOLD]]
    return row


def grown(kernel: dict[str, Any]) -> float:
    """By how many ns a repetition a kernel takes longer, in all its launches."""
    count, mean = kernel["count"], kernel["mean_ns"]
    took = [count[side] * (mean[side] or 0) for side in ("base", "head")]
    return float(took[1] - took[0])


def shown(kernel: dict[str, Any]) -> str:
    """`same 4 → 4 of 20.1 → 38.2 µs: flash_fwd_kernel`."""
    name, count, mean = kernel["name"], kernel["count"], kernel["mean_ns"]
    names = [str(name[side] or "")[:70] for side in ("base", "head")]
    what = names[1] if names[0] == names[1] else " → ".join(filter(None, names))
    times = " → ".join(f"{(mean[side] or 0) / 1e3:.1f}" for side in ("base", "head"))
    counts = " → ".join(f"{count[side]:g}" for side in ("base", "head"))
    changes = kernel.get("changes") or ""
    return f"{kernel['became']} {counts} of {times} µs: {what} {changes}".rstrip()
