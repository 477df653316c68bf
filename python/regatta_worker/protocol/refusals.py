"""Which exceptions are a library's refusal of a case, which alone a suite may allow; and the
message for a library that cannot be imported."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

from regatta_worker.protocol.channel import Unsupported

NO_REFUSAL = (
    "cuda error",
    "cuda_error",
    "cuda driver error",
    "dnn library",
    "ptxas",
    "triton error [cuda]",
    "illegal memory access",
    "illegal address",
    "launch failure",
    "cublas",
    "cudnn_status_execution_failed",
    "internal assert",
    "build failed",
)
"""Words in an exception by which something broke; any other is a check the case did not pass."""

XLA_CHECKS = ("invalid_argument:", "unimplemented:")
"""Statuses of an XLA error that refuse a computation; by any other status something broke."""

CUDNN_CHECKS = ("no valid engine", "no execution plan", "not support")
"""Words of cuDNN's refusals, which XLA reports as INTERNAL."""

PACKAGE = Path(__file__).parent.parent

MISTAKES = ("zip() argument", "not enough values to unpack", "too many values to unpack")
"""The beginnings of Python's own ValueErrors when code here misread a library's results."""


def refusal(error: Exception, said: list[str]) -> Exception:
    """The library's refusal in its own words: SDPA gives its reasons as warnings.

    Only the first paragraph of the words: the dispatcher adds a page of backends. An exception
    that is not a refusal, since something broke or the mistake is this worker's own, is returned
    as it is.
    """
    if broke(error) or _is_own(error):
        return error
    words = str(error).strip() or type(error).__name__
    reasons = [text.partition(" (Triggered internally")[0].strip() for text in said]
    return Unsupported(" ".join([words.split("\n\n")[0], *reasons]))


def broke(error: Exception) -> bool:
    """True if an exception reports something that broke, not a check that refuses the case."""
    words = str(error).lower()
    if any(sign in words for sign in NO_REFUSAL):
        return True
    # By name: older releases of JAX call it XlaRuntimeError.
    if type(error).__name__ not in ("JaxRuntimeError", "XlaRuntimeError"):
        return False
    return not (words.startswith(XLA_CHECKS) or any(sign in words for sign in CUDNN_CHECKS))


def _is_own(error: Exception) -> bool:
    """True if an assertion or an unpacking of this worker's own files failed.

    Libraries assert and raise ValueError too, and compiled ones have no frame of their own:
    so a ValueError that was raised here is recognised by its text.
    """
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or PACKAGE not in Path(frames[-1].filename).parents:
        return False
    return isinstance(error, AssertionError) or (
        isinstance(error, ValueError) and str(error).startswith(MISTAKES)
    )


def absence(what: str, error: Exception, package: str) -> str:
    """Why `what` cannot be imported, by which interpreter, and the command that installs it."""
    return (
        f"{what} cannot be loaded by {sys.executable} (Python {sys.version.split()[0]}): "
        f"{type(error).__name__}: {error}. Install it there with `{sys.executable} -m pip install "
        f"{package}`, or name an interpreter that has it in the suite's environment table"
    )
