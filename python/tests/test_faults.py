"""The table of faults whose causes are checked on a GPU: what can be checked of it without one."""

from __future__ import annotations

import re

import pytest

import support
from faults import table
from trace_faults import judge

FAULTS = support.ROOT / "crates/probe/tests/faults"
JUDGE = support.ROOT / "crates/judge/src"


def test_every_program_is_there_and_has_faults_and_harmless_changes() -> None:
    files = {path.stem for path in (FAULTS / "programs").glob("*.py")} - {"__init__"}
    assert files == set(table.PROGRAMS)
    assert {change.program for change in table.FAULTS} == files
    assert {change.program for change in table.HARMLESS} == files
    titles = [change.title for change in table.CHANGES]
    assert len(titles) == len(set(titles))


def test_faults_name_causes_that_there_are() -> None:
    sources = "".join(path.read_text() for path in JUDGE.rglob("*.rs"))
    causes = set(re.findall(r'^    [A-Z]\w+ = "([a-z-]+)",$', sources, re.M))
    for change in table.FAULTS:
        assert change.causes
        assert set(change.causes) <= causes, change.title


@pytest.mark.parametrize("change", table.CHANGES, ids=lambda change: change.title)
def test_every_change_is_made_by_its_program(change: table.Change) -> None:
    # Nothing has to be done for this one.
    if change.name == "same-again":
        return
    files = (f"programs/{change.program}.py", "main.py")
    assert any(f'"{change.name}"' in (FAULTS / file).read_text() for file in files)


def test_a_misspelt_change_does_not_run_as_the_program_that_it_should_be() -> None:
    assert table.find("llama", table.BASE) is None
    with pytest.raises(KeyError, match="llama has no change itme: there are eager"):
        table.find("llama", "itme")
    with pytest.raises(KeyError, match="no program lama: there are step"):
        table.find("lama", "item")


@pytest.mark.parametrize(
    ("code", "causes", "harmless", "right"),
    [
        (1, ["launches-added", "gaps"], False, True),
        (1, ["gaps", "launches-added"], False, False),
        (0, ["launches-added"], False, False),
        (1, [], False, False),
        (0, ["gaps"], True, True),
        (1, [], True, False),
    ],
)
def test_a_row_is_right_by_its_exit_code_and_first_cause(
    code: int, causes: list[str], harmless: bool, right: bool
) -> None:
    expected = () if harmless else ("copies-added", "launches-added")
    findings = [{"cause": cause, "evidence": f"of {cause}"} for cause in causes]
    answer = {"findings": findings, "verdict": {"reasons": ["longer"]}}
    found, row = judge(table.Change("llama", "clone", "", expected), code, answer)
    assert found == right
    assert ("WRONG" in row) != right
