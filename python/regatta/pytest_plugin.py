"""The fixture `regatta_gate`: a gate as a test.

def test_speed(regatta_gate):
    regatta_gate("speed.toml", base="git:main")

`pytest --regatta-base git:v1.2` names the base of gates that name none.
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
    """The requests of a test to regatta. Paths are from the folder that pytest was started in."""

    def __init__(self, folder: Path, base: str | None = None) -> None:
        self._folder, self._base = folder, base

    def gate(self, suite: str, *words: str, base: str | None = None) -> str:
        """`regatta gate SUITE`; fails the test where something is worse, or where that is
        inconclusive, with the report. Gives the report where it passes.

        `base` is a version (`git:main`) to measure in pairs with this one, in place of the
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
    """A gate of regatta's, which fails the test that asks for it."""
    base = request.config.getoption("--regatta-base")
    return Gate(request.config.invocation_params.dir, base).gate
