"""The fixture `regatta_gate`, which runs a gate as a test.

def test_speed(regatta_gate):
    regatta_gate("speed.toml", base="git:main")

`pytest --regatta-base git:v1.2` sets the base of gates that do not name one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from regatta.executable import PASSED, WORSE, RegattaError, asked
from regatta.measuring import path_of


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--regatta-base",
        metavar="SPEC",
        help="the version that gates of regatta compare with, unless they name one: git:main",
    )


class Gate:
    """Runs gates for a test. Paths are relative to the folder in which pytest was started."""

    def __init__(self, folder: Path, base: str | None = None) -> None:
        self._folder, self._base = folder, base

    def gate(self, suite: str, *words: str, base: str | None = None) -> str:
        """Runs `regatta gate SUITE`. Returns the report if the gate passes. Fails the test, with
        the report, if something is worse or the gate is inconclusive.

        `base` is a version (`git:main`) to measure in pairs with this one, instead of using the
        baseline; `words` are further arguments. A `suite` that ends in `.toml` is a file; any
        other is built in.
        """
        version = base or self._base
        more = [] if version is None else ["--base", version]
        try:
            done = asked(["gate", path_of(suite), "--quiet", *more, *words], self._folder)
        except RegattaError as error:
            pytest.fail(f"regatta gate {suite}: {error}", pytrace=False)
        if done.returncode != PASSED:
            what = "something is worse" if done.returncode == WORSE else "it is inconclusive"
            report = "\n".join(part for part in (done.stdout, done.stderr) if part.strip())
            pytest.fail(f"regatta gate {suite}: {what}\n\n{report}", pytrace=False)
        return done.stdout


@pytest.fixture
def regatta_gate(request: pytest.FixtureRequest) -> Callable[..., str]:
    """A function that runs a gate of regatta, and fails the test unless the gate passes."""
    base = request.config.getoption("--regatta-base")
    return Gate(request.config.invocation_params.dir, base).gate
