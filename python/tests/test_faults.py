"""The table of faults whose causes are checked on a GPU: what can be checked of it without one."""

from __future__ import annotations

import re

import pytest

import support
from faults import table

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
