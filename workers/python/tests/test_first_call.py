"""What a first call is made of, on a module made for it."""

from __future__ import annotations

import sys
import time
import types
import unittest
import unittest.mock
from typing import Any

import support  # noqa: F401

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


class FirstCall(unittest.TestCase):
    def setUp(self) -> None:
        self.module: Any = types.ModuleType("made_compiler")
        exec(COMPILER, vars(self.module))
        sys.modules["made_compiler"] = self.module
        self.addCleanup(sys.modules.pop, "made_compiler")
        watched = unittest.mock.patch.object(first_call, "WATCHED", WATCHED)
        watched.start()
        self.addCleanup(watched.stop)

    def test_parts_are_their_own_and_add_up_to_no_more_than_the_call(self) -> None:
        tune = self.module.tune
        made = first_call.made(lambda: self.module.tune(), lambda: time.sleep(0.005))
        told = made.told()
        parts = told["first_call_parts"]
        counts = {name: part["count"] for name, part in parts.items()}
        self.assertEqual(counts, {"tuning": 1, "compiling": 2, "loading": 2})
        self.assertGreaterEqual(parts["compiling"]["ns"], 40e6)
        self.assertGreaterEqual(parts["loading"]["ns"], 20e6)
        total = sum(part["ns"] for part in parts.values())
        # The wait is in the call and in no part.
        self.assertLessEqual(total + 5e6, told["first_call_ns"])
        self.assertIs(self.module.tune, tune, "as it was")

    def test_what_does_nothing_of_the_kind_has_no_part(self) -> None:
        made = first_call.made(lambda: 3, lambda: None)
        self.assertEqual((made.results, made.told()["first_call_parts"]), (3, {}))

    def test_what_fails_fails_as_ever(self) -> None:
        with self.assertRaisesRegex(LookupError, "without being watched"):
            first_call.made(lambda: self.module.fails(), lambda: None)
        self.assertNotIn("watched", repr(self.module.fails))

    def test_functions_that_are_watched_are_named_once_and_alike(self) -> None:
        unittest.mock.patch.stopall()
        for name, function in first_call.WATCHED:
            module, _, qualified = function.partition(":")
            self.assertTrue(module and qualified and name.isalpha(), function)


if __name__ == "__main__":
    unittest.main()
