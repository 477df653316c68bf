"""The recipe of an fp8 region."""

from dataclasses import dataclass


@dataclass(frozen=True)
class DelayedScaling:
    """Compared by value, as two regions are entered with equal recipes."""

    fp8_dpa: bool = False
