"""Finds the program `regatta` and runs it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

PASSED, WORSE, INCONCLUSIVE = 0, 1, 3
"""Exit codes of a judged run. Exit code 2 means that the request was wrong."""


class RegattaError(Exception):
    """The program is missing, or reports a wrong command or suite: nothing was measured."""


def program() -> Path:
    """Returns the program `regatta`: `REGATTA_PROGRAM`, or from this installation or the path.

    Raises RegattaError if it is missing.
    """
    if chosen := os.environ.get("REGATTA_PROGRAM"):
        return Path(chosen)
    schemes = [sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user")]
    for scheme in schemes:
        found = Path(sysconfig.get_path("scripts", scheme)) / "regatta"
        if found.is_file():
            return found
    if on_path := shutil.which("regatta"):
        return Path(on_path)
    raise RegattaError(
        "neither this installation nor the path has the program `regatta`; install the wheel "
        "again, or name one in REGATTA_PROGRAM"
    )


def asked(
    words: Sequence[str],
    folder: Path | None = None,
    variables: Mapping[str, str] | None = None,
    *,
    progress: bool | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs the program with `words` as arguments, and `variables` added to the environment. Workers
    use this Python, unless `REGATTA_PYTHON` names another. `progress` prints the standard error as
    it arrives, by default if it goes to a terminal.

    Raises RegattaError, with the program's message, if the program reports a wrong request.
    """
    environment = {"REGATTA_PYTHON": sys.executable, **os.environ, **(variables or {})}
    shows = sys.stderr.isatty() if progress is None else progress
    errors = []
    with tempfile.TemporaryFile("w+") as answer:
        process = subprocess.Popen(
            [str(program()), *words],
            cwd=folder,
            env=environment,
            stdout=answer,
            stderr=subprocess.PIPE,
            text=True,
        )
        with process:
            for line in process.stderr or ():
                errors.append(line)
                if shows:
                    print(line, end="", file=sys.stderr, flush=True)
        answer.seek(0)
        done = subprocess.CompletedProcess(
            process.args, process.returncode, answer.read(), "".join(errors)
        )
    if done.returncode not in (PASSED, WORSE, INCONCLUSIVE):
        words_of_it = done.stderr.strip() or done.stdout.strip()
        raise RegattaError(words_of_it or f"regatta ended with {done.returncode}")
    return done
