"""What a first call is made of, on a module made for it."""

from __future__ import annotations

import sys
import time
import types
from typing import Any

import pytest

from regatta_worker.census import first_call

COMPILER = """
import time

class Compiler:
    def compile(self):
        time.sleep(0.02)
        return self

    def load(self):
        time.sleep(0.01)

def tune():
    time.sleep(0.01)
    for _ in range(2):
        Compiler().compile().load()

def fails():
    raise LookupError("as it does without being watched")
"""

WATCHED = (
    ("tuning", "made_compiler:tune"),
    ("compiling", "made_compiler:Compiler.compile"),
    ("loading", "made_compiler:Compiler.load"),
    ("loading", "made_compiler:of_another_version"),
    ("planning", "a_module_that_is_not_loaded:plan"),
    ("failing", "made_compiler:fails"),
)


class TestFirstCall:
    @pytest.fixture(autouse=True)
    def compiler(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.module: Any = types.ModuleType("made_compiler")
        exec(COMPILER, vars(self.module))
        monkeypatch.setitem(sys.modules, "made_compiler", self.module)
        monkeypatch.setattr(first_call, "WATCHED", WATCHED)

    def test_parts_are_their_own_and_add_up_to_no_more_than_the_call(self) -> None:
        tune = self.module.tune
        _, told = first_call.first_call(lambda: self.module.tune(), lambda: time.sleep(0.005))
        parts = told["first_call_parts"]
        counts = {name: part["count"] for name, part in parts.items()}
        assert counts == {"tuning": 1, "compiling": 2, "loading": 2}
        assert parts["compiling"]["ns"] >= 40000000.0
        assert parts["loading"]["ns"] >= 20000000.0
        total = sum(part["ns"] for part in parts.values())
        # The wait is in the call and in no part.
        assert total + 5000000.0 <= told["first_call_ns"]
        assert self.module.tune is tune, "as it was"

    def test_what_does_nothing_of_the_kind_has_no_part(self) -> None:
        results, told = first_call.first_call(lambda: 3, lambda: None)
        assert (results, told["first_call_parts"]) == (3, {})

    def test_what_fails_fails_as_ever(self) -> None:
        with pytest.raises(LookupError, match="without being watched"):
            first_call.first_call(lambda: self.module.fails(), lambda: None)
        assert "watched" not in repr(self.module.fails)
