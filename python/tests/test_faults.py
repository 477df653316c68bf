"""The table of faults whose causes are checked on a GPU: what can be checked of it without one."""

import re

import pytest

import support
import trace_faults

PROBE = support.ROOT / "crates/probe/tests"


def test_faults_name_causes_that_there_are_and_every_change_is_made() -> None:
    judge = support.ROOT / "crates/judge/src"
    sources = "".join(path.read_text() for path in judge.rglob("*.rs"))
    known = set(re.findall(r'^ +[A-Z]\w+ = "([a-z-]+)",$', sources, re.M))
    runs = (PROBE / "trace_faults.py").read_text().partition("\ndef run")[2]
    for program, changes in trace_faults.CHANGES.items():
        code = runs + (PROBE / f"faults/{program}.py").read_text()
        for change, causes in changes.items():
            assert set(causes) <= known, change
            made = f'"{change}"' in code or change in {*trace_faults.STEPS, *trace_faults.WARM_UPS}
            assert made or change == "same-again", change
    with pytest.raises(KeyError, match="llama has no change itme: there are eager"):
        trace_faults.run("llama", "itme")
