"""The worker's axes against the harness's one table of them (tests/vectors/axes.json)."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from regatta_worker.problem.attention import LAYOUTS, Mask, Problem
from regatta_worker.problem.numbers import DIRECTIONS, DTYPE_BYTES
from regatta_worker.problem.projection import KINDS

TABLE: dict[str, Any] = json.loads(
    (Path(__file__).resolve().parents[2] / "tests/vectors/axes.json").read_text()
)
AXES = {axis["name"]: axis for axis in TABLE["axes"]}


class TestAxes:
    """A row that was added to the table, and not here, fails one of these."""

    def test_a_problem_has_every_axis(self) -> None:
        ours = {field.name for field in dataclasses.fields(Problem)}
        of_projections = {
            name
            for name, axis in AXES.items()
            if name == "projection" or axis["unset"] == {"with": "projection"}
        }
        assert ours == set(AXES) - of_projections

    def test_words_are_those_of_the_table(self) -> None:
        for name, words in (
            ("dtype", tuple(DTYPE_BYTES)),
            ("layout", LAYOUTS),
            ("direction", DIRECTIONS),
            ("projection", KINDS),
        ):
            assert list(words) == AXES[name]["words"], name
        choices = {name for name, axis in AXES.items() if axis["form"] == "choice"}
        assert choices == {"dtype", "layout", "direction", "projection"}

    def test_a_problem_on_the_wire_is_read_axis_by_axis(self) -> None:
        problem = Problem.from_wire(TABLE["wire"])
        for name, axis in AXES.items():
            if axis["form"] in ("number", "choice") and axis["example"] is not None:
                assert str(getattr(problem, name)) == axis["example"], name
        assert problem.mask == Mask(3, 1, "bottom-right")
        assert problem.varlen is None
