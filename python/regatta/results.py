"""Results of regatta: a row for each case, the verdict, and the report."""

from __future__ import annotations

import html
import json
import math
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from regatta.executable import RegattaError, asked

ERROR = 0.10
"""Maximum probability that an interval misses the true value."""


@dataclass(frozen=True)
class Timing:
    """The time of a case on one side, in nanoseconds. On a GPU it is the device's time."""

    median_ns: float
    invocations_ns: tuple[float, ...]
    """The median of each invocation, which is a process."""
    tflops: float | None = None
    host_ns: float | None = None
    first_call_ns: float | None = None

    @property
    def interval_ns(self) -> tuple[float, float] | None:
        """The exact 90 % interval of the median over invocations, by ranks; `None` if there are
        fewer than five invocations."""
        values, number = sorted(self.invocations_ns), len(self.invocations_ns)
        outside = 2.0 ** (1 - number)
        if outside > ERROR:
            return None
        rank = 0
        while outside + 2.0 ** (1 - number) * math.comb(number, rank + 1) <= ERROR:
            rank += 1
            outside += 2.0 ** (1 - number) * math.comb(number, rank)
        return values[rank], values[-1 - rank]


@dataclass(frozen=True)
class Change:
    """A comparison of one metric between head and base."""

    word: str
    """`same`, `improved`, `regressed`, `inconclusive`."""
    base: float
    head: float
    ratio: float
    """The rule's estimate of head over base, which may differ from the ratio of the medians."""
    low: float | None
    """The lower end of the ratio's 90 % interval; `None` if there were too few invocations."""
    high: float | None
    threshold: float
    """The smallest change that counts."""
    detectable: float | None
    """The smallest change that this comparison could have detected."""
    reason: str | None = None


@dataclass(frozen=True)
class Row:
    """The result of one case."""

    case: str
    word: str
    """`same`, `improved`, `regressed`, `error`, `inconclusive`, `missing`, `new` or `skipped`."""
    reason: str | None
    head: Timing | None
    base: Timing | None
    metrics: dict[str, Change]
    """By name: `device`, `host`, `first_call`, `peak_memory`, `cpu_time`."""
    causes: tuple[str, ...]


@dataclass(frozen=True, repr=False)
class Result:
    """A result of regatta. It prints as regatta's own table; a notebook shows the report."""

    text: str
    judgement: dict[str, Any]
    """The complete result, as `--json` prints it (docs/schemas/judgement.json)."""
    page: Path
    """The report, with every sample. Without `out` it exists only as long as this object."""
    folder: Any = field(default=None, compare=False)
    """The temporary folder of the report, which is deleted with this object."""

    @property
    def outcome(self) -> str:
        """`passed`, `failed` if something is worse, or `inconclusive` if something may be."""
        return str(self.judgement["verdict"]["outcome"])

    @property
    def reasons(self) -> list[str]:
        """The reasons why it did not pass, the most serious first."""
        return list(self.judgement["verdict"]["reasons"])

    @property
    def rows(self) -> list[Row]:
        """The rows, one for each case."""
        return [_row(row) for row in self.judgement["rows"]]

    def to_pandas(self) -> Any:
        """Returns the rows as a `pandas.DataFrame`, without columns that are empty in all rows."""
        import pandas

        lines = []
        for row in self.rows:
            line: dict[str, Any] = {"case": row.case, "word": row.word, "reason": row.reason}
            for side, timing in (("head", row.head), ("base", row.base)):
                if timing is not None:
                    line[f"{side}_ns"] = timing.median_ns
                    line[f"{side}_tflops"] = timing.tflops
                    low, high = timing.interval_ns or (None, None)
                    line |= {f"{side}_low_ns": low, f"{side}_high_ns": high}
            for name, change in row.metrics.items():
                for key in ("word", "ratio", "low", "high"):
                    line[f"{name}_{key}"] = getattr(change, key)
            lines.append(line)
        return pandas.DataFrame(lines).dropna(axis="columns", how="all")

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<Result {self.outcome}: {self.judgement['verdict']['shown']}, {self.page}>"

    def _repr_html_(self) -> str:
        if not self.page.is_file():
            return f"<pre>{html.escape(self.text)}</pre>"
        report = html.escape(self.page.read_text(), quote=True)
        # The sandbox lets the report's script draw, without access to the notebook.
        return (
            f'<iframe sandbox="allow-scripts" srcdoc="{report}" '
            f'style="width: 100%; height: 40em; border: 0"></iframe>'
        )


def load(path: str | Path, *more: str | Path) -> Result:
    """Loads a stored run, gate or comparison (`reports/speed`), or the shards of a run. It is
    judged as when it was measured.

    Raises RegattaError if nothing is stored there.
    """
    # The folder contains only the JSON file.
    with tempfile.TemporaryDirectory(prefix="regatta-") as folder:
        judgement = Path(folder) / "judgement.json"
        paths = [str(one) for one in (path, *more)]
        done = asked(["report", *paths, "--output", f"json={judgement}"], progress=False)
        if not judgement.is_file():
            raise RegattaError(done.stderr.strip())
        read = json.loads(judgement.read_text())
    verdict = read["verdict"]
    text = "\n  ".join(
        [f"{verdict['outcome']}  {read['suite']}: {verdict['shown']}", *verdict["reasons"]]
    )
    return Result(text, read, Path(path) / "index.html")


def measured(
    words: Sequence[str],
    folder: Path | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    variables: dict[str, str] | None = None,
    suite: str | None = None,
) -> Result:
    """Runs a command that measures, and returns its result. `suite` is the text of a suite that the
    command names as `./suite.toml`; the command is then started in the folder of that file.

    Raises RegattaError if nothing was judged.
    """
    own = tempfile.TemporaryDirectory(prefix="regatta-")
    place = Path(own.name)
    if suite is not None:
        (place / "suite.toml").write_text(suite)
        folder = place
    reports = Path(out).absolute() if out is not None else place / "reports"
    judgement = place / "judgement.json"
    more = ["--out", str(reports), "--output", f"json={judgement}"]
    done = asked([*words, *more], folder, variables, progress=progress)
    if not judgement.exists():
        raise RegattaError(f"regatta {words[0]} judged nothing: {done.stderr.strip()}")
    read = json.loads(judgement.read_text())
    if out is not None:
        own.cleanup()
    return Result(done.stdout, read, reports / "index.html", None if out is not None else own)


def _row(row: dict[str, Any]) -> Row:
    def timing(side: dict[str, Any] | None) -> Timing | None:
        if side is None:
            return None
        optional = {key: side.get(key) for key in ("tflops", "host_ns", "first_call_ns")}
        return Timing(side["median_ns"], tuple(side["invocations_ns"]), **optional)

    def change(metric: dict[str, Any]) -> Change:
        members: dict[str, Any] = {one.name: metric.get(one.name) for one in fields(Change)}
        return Change(**members)

    causes = [f"{one['cause']}: {one['evidence']}" for one in row.get("findings", [])]
    return Row(
        case=row["case"],
        word=row["word"],
        reason=row.get("reason"),
        head=timing(row.get("head")),
        base=timing(row.get("base")),
        metrics={metric["metric"]: change(metric) for metric in row.get("metrics", [])},
        causes=tuple(causes),
    )
