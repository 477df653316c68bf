"""The fixture `regatta`: a gate as a test.

def test_speed(regatta):
    regatta.gate("speed.toml", against="git:main")
"""

from __future__ import annotations

from pathlib import Path

import pytest

from regatta.executable import CANNOT_SAY, WORSE, RegattaError, asked


class Gate:
    """What a test asks of regatta. Paths are from the folder that pytest was started in."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def gate(self, suite: str, *words: str, against: str | None = None) -> str:
        """`regatta gate SUITE`; fails the test where something is worse, or where it cannot say,
        with the report. Gives the report where nothing is.

        `against` is a version (`git:main`), `words` are further arguments. A `suite` that ends in
        `.toml` is a file; any other is built in.
        """
        path = f"./{suite}" if suite.endswith(".toml") and "/" not in suite else suite
        more = [] if against is None else ["--against", against]
        try:
            done = asked(["gate", path, "--quiet", *more, *words], self._folder)
        except RegattaError as error:
            pytest.fail(f"regatta gate {suite}: {error}", pytrace=False)
        if done.returncode in (WORSE, CANNOT_SAY):
            what = "something is worse" if done.returncode == WORSE else "it cannot say"
            report = "\n".join(part for part in (done.stdout, done.stderr) if part.strip())
            pytest.fail(f"regatta gate {suite}: {what}\n\n{report}", pytrace=False)
        return done.stdout


@pytest.fixture
def regatta(request: pytest.FixtureRequest) -> Gate:
    """Gates of regatta's, which fail the test that asks for them."""
    return Gate(request.config.invocation_params.dir)
