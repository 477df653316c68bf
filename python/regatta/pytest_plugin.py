"""The fixture `regatta`: a gate as a test.

def test_speed(regatta):
    regatta.gate("speed.toml", base="git:main")
"""

from __future__ import annotations

from pathlib import Path

import pytest

from regatta.executable import PASSED, WORSE, RegattaError, asked


class Gate:
    """The requests of a test to regatta. Paths are from the folder that pytest was started in."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def gate(self, suite: str, *words: str, base: str | None = None) -> str:
        """`regatta gate SUITE`; fails the test where something is worse, or where that is
        inconclusive, with the report. Gives the report where it passes.

        `base` is a version (`git:main`) to measure in pairs with this one, in place of the
        baseline; `words` are further arguments. A `suite` that ends in `.toml` is a file; any
        other is built in.
        """
        path = f"./{suite}" if suite.endswith(".toml") and "/" not in suite else suite
        more = [] if base is None else ["--base", base]
        try:
            done = asked(["gate", path, "--quiet", *more, *words], self._folder)
        except RegattaError as error:
            pytest.fail(f"regatta gate {suite}: {error}", pytrace=False)
        if done.returncode != PASSED:
            what = "something is worse" if done.returncode == WORSE else "it is inconclusive"
            report = "\n".join(part for part in (done.stdout, done.stderr) if part.strip())
            pytest.fail(f"regatta gate {suite}: {what}\n\n{report}", pytrace=False)
        return done.stdout


@pytest.fixture
def regatta(request: pytest.FixtureRequest) -> Gate:
    """Gates of regatta's, which fail the test that asks for them."""
    return Gate(request.config.invocation_params.dir)
