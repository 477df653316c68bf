"""What is told where a library is not there: why, in which Python, and what would help."""

from __future__ import annotations

import sys


def absence(what: str, error: Exception, package: str) -> str:
    """Why `what` cannot be had, and how `package` gets into this Python or another is named."""
    return (
        f"{what} cannot be loaded by {sys.executable} (Python {sys.version.split()[0]}): "
        f"{type(error).__name__}: {error}. Install it there with `{sys.executable} -m pip install "
        f"{package}`, or name an interpreter that has it in the suite's environment table"
    )
