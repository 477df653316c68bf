"""The table of faults that traces are held to, and what is made of a comparison; no GPU."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

import support
from faults import judging, table

FINDING = support.ROOT / "src/judge/judgement/finding.rs"


def source_of(program: str) -> str:
    """What can tell one of its changes from another."""
    folder = support.ROOT / "probe/tests/faults"
    files = (folder / f"programs/{program}.py", folder / "around.py", folder / "main.py")
    return "".join(path.read_text(encoding="utf-8") for path in files)


class TestTable:
    """What is in it can be run, and can be said."""

    def test_there_are_thirty_faults_and_twenty_harmless_changes(self) -> None:
        assert len(table.FAULTS) >= 30
        assert len(table.HARMLESS) >= 20
        titles = [change.title for change in table.CHANGES]
        assert sorted(titles) == sorted(set(titles))

    def test_every_program_is_there_and_has_faults(self) -> None:
        folder = support.ROOT / "probe/tests/faults/programs"
        files = {path.stem for path in folder.glob("*.py")} - {"__init__"}
        assert files == set(table.PROGRAMS)
        assert {change.program for change in table.FAULTS} == set(table.PROGRAMS)
        assert {change.program for change in table.HARMLESS} <= set(table.PROGRAMS)

    def test_faults_name_causes_that_there_are(self) -> None:
        causes = set(re.findall(r'^    [A-Z]\w+ = "([a-z-]+)",$', FINDING.read_text(), re.M))
        assert "kernel-replaced" in causes
        for change in table.FAULTS:
            assert change.causes
            assert set(change.causes) <= causes
        for change in table.HARMLESS:
            assert change.causes == (), change.title

    def test_every_change_is_made_by_its_program(self) -> None:
        for change in table.CHANGES:
            # Nothing has to be done for this one.
            if change.name == "same-again":
                continue
            assert f'"{change.name}"' in source_of(change.program)

    def test_a_misspelt_change_does_not_run_as_the_program_that_it_should_be(self) -> None:
        assert table.find("llama", table.BASE) is None
        found = table.find("llama", "item")
        assert found
        assert found.title == "llama/item"
        with pytest.raises(KeyError, match="llama has no change itme: there are eager"):
            table.find("llama", "itme")
        with pytest.raises(KeyError, match="no program lama: there are step"):
            table.find("lama", "item")


def answer(*causes: str) -> dict[str, Any]:
    """Of `regatta diff --json`, as far as it is read."""
    side = {"busy_ns": 2e6, "elapsed_ns": 3e6}
    kernel = {
        "became": "same",
        "name": {"base": "flash", "head": "flash"},
        "count": {"base": 4, "head": 4},
        "mean_ns": {"base": 2e4, "head": 4e4},
        "changes": [],
    }
    small = {**kernel, "became": "removed", "name": {"base": "add", "head": ""}}
    small["mean_ns"] = {"base": 500.0, "head": None}
    return {
        "scope": "repetition",
        "findings": [{"cause": cause, "evidence": f"of {cause}"} for cause in causes],
        "verdict": {"reasons": ["the device works 1.5x longer"]},
        "sides": {"base": side, "head": {**side, "busy_ns": 3e6}},
        "kernels": [small, kernel],
    }


class TestRows:
    """A row holds when what must be said was said first, and not otherwise."""

    def row(self, code: int, *causes: str, harmless: bool = False) -> judging.Row:
        expected = () if harmless else ("copies-added", "launches-added")
        row = judging.Row("llama", "clone", expected, exit=code)
        return judging.told(row, answer(*causes))

    def test_a_fault_holds_by_its_first_cause_and_exit_code(self) -> None:
        assert self.row(1, "launches-added", "gaps").held
        assert not self.row(1, "gaps", "launches-added").held
        assert not self.row(0, "launches-added").held
        assert not self.row(1).held

    def test_a_harmless_change_holds_by_its_exit_code(self) -> None:
        assert self.row(0, "gaps", harmless=True).held
        assert not self.row(1, harmless=True).held
        failed = judging.Row("llama", "same-again", (), failure="no device")
        assert not failed.held
        assert "no device" in failed.shown()

    def test_what_does_not_hold_is_shown_with_what_the_kernels_did(self) -> None:
        shown = self.row(1, "gaps", "launches-added").shown()
        assert "WRONG llama/clone" in shown
        assert "busy 2.000 → 3.000 ms" in shown
        assert "expected copies-added or launches-added" in shown
        assert "then launches-added: of launches-added" in shown
        first = shown.index("kernel same 4 → 4 of 20.0 → 40.0 µs: flash")
        assert first < shown.index("kernel removed 4 → 4 of 0.5 → 0.0 µs: add")
        assert "kernel" not in self.row(1, "launches-added").shown()

    def test_a_record_says_what_was_expected_and_said(self) -> None:
        record = json.loads(self.row(1, "gaps", "launches-added").record())
        assert record["said"] == ["gaps", "launches-added"]
        assert record["expected"] == ["copies-added", "launches-added"]
        assert (record["exit"], record["held"]) == (1, False)
