"""The table of faults that traces are held to, and what is made of a comparison; no GPU."""

from __future__ import annotations

import json
import re
import sys
import unittest
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "probe/tests"))

from faults import judging, table

FINDING = ROOT / "src/judge/judgement/finding.rs"


def source_of(program: str) -> str:
    """What can tell one of its changes from another."""
    folder = ROOT / "probe/tests/faults"
    files = (folder / f"programs/{program}.py", folder / "around.py", folder / "main.py")
    return "".join(path.read_text(encoding="utf-8") for path in files)


class Table(unittest.TestCase):
    """What is in it can be run, and can be said."""

    def test_there_are_thirty_faults_and_twenty_harmless_changes(self) -> None:
        self.assertGreaterEqual(len(table.FAULTS), 30)
        self.assertGreaterEqual(len(table.HARMLESS), 20)
        titles = [change.title for change in table.CHANGES]
        self.assertEqual(sorted(titles), sorted(set(titles)))

    def test_every_program_is_there_and_has_faults(self) -> None:
        folder = ROOT / "probe/tests/faults/programs"
        files = {path.stem for path in folder.glob("*.py")} - {"__init__"}
        self.assertEqual(files, set(table.PROGRAMS))
        self.assertEqual({change.program for change in table.FAULTS}, set(table.PROGRAMS))
        self.assertLessEqual({change.program for change in table.HARMLESS}, set(table.PROGRAMS))

    def test_faults_name_causes_that_there_are(self) -> None:
        causes = set(re.findall(r'^    [A-Z]\w+ = "([a-z-]+)",$', FINDING.read_text(), re.M))
        self.assertIn("kernel-replaced", causes)
        for change in table.FAULTS:
            with self.subTest(change.title):
                self.assertTrue(change.causes)
                self.assertLessEqual(set(change.causes), causes)
        for change in table.HARMLESS:
            self.assertEqual(change.causes, (), change.title)

    def test_every_change_is_made_by_its_program(self) -> None:
        for change in table.CHANGES:
            # Nothing has to be done for this one.
            if change.name == "same-again":
                continue
            with self.subTest(change.title):
                self.assertIn(f'"{change.name}"', source_of(change.program))

    def test_a_misspelt_change_does_not_run_as_the_program_that_it_should_be(self) -> None:
        self.assertIsNone(table.find("llama", table.BASE))
        found = table.find("llama", "item")
        assert found
        self.assertEqual(found.title, "llama/item")
        with self.assertRaisesRegex(KeyError, "llama has no change itme: there are eager"):
            table.find("llama", "itme")
        with self.assertRaisesRegex(KeyError, "no program lama: there are step"):
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


class Rows(unittest.TestCase):
    """A row holds when what must be said was said first, and not otherwise."""

    def row(self, code: int, *causes: str, harmless: bool = False) -> judging.Row:
        expected = () if harmless else ("copies-added", "launches-added")
        row = judging.Row("llama", "clone", expected, exit=code)
        return judging.told(row, answer(*causes))

    def test_a_fault_holds_by_its_first_cause_and_exit_code(self) -> None:
        self.assertTrue(self.row(1, "launches-added", "gaps").held)
        self.assertFalse(self.row(1, "gaps", "launches-added").held)
        self.assertFalse(self.row(0, "launches-added").held)
        self.assertFalse(self.row(1).held)

    def test_a_harmless_change_holds_by_its_exit_code(self) -> None:
        self.assertTrue(self.row(0, "gaps", harmless=True).held)
        self.assertFalse(self.row(1, harmless=True).held)
        failed = judging.Row("llama", "same-again", (), failure="no device")
        self.assertFalse(failed.held)
        self.assertIn("no device", failed.shown())

    def test_what_does_not_hold_is_shown_with_what_the_kernels_did(self) -> None:
        shown = self.row(1, "gaps", "launches-added").shown()
        self.assertIn("WRONG llama/clone", shown)
        self.assertIn("busy 2.000 → 3.000 ms", shown)
        self.assertIn("expected copies-added or launches-added", shown)
        self.assertIn("then launches-added: of launches-added", shown)
        first = shown.index("kernel same 4 → 4 of 20.0 → 40.0 µs: flash")
        self.assertLess(first, shown.index("kernel removed 4 → 4 of 0.5 → 0.0 µs: add"))
        self.assertNotIn("kernel", self.row(1, "launches-added").shown())

    def test_a_record_says_what_was_expected_and_said(self) -> None:
        record = json.loads(self.row(1, "gaps", "launches-added").record())
        self.assertEqual(record["said"], ["gaps", "launches-added"])
        self.assertEqual(record["expected"], ["copies-added", "launches-added"])
        self.assertEqual((record["exit"], record["held"]), (1, False))


if __name__ == "__main__":
    unittest.main()
