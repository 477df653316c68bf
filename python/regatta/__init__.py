"""regatta from Python: functions and suites measured, results as rows, and a pytest fixture.

    import regatta

    times = regatta.bench(flash, seq=[1024, 4096], head_dim=64, heads=16)
    regatta.compare(before, after, {"seq": [1024, 4096], "head_dim": 64, "heads": 16})
    regatta.load("reports/speed").to_pandas()

    @regatta.variant(dtypes=("f16", "bf16"))
    def flash(q, k, v, problem): ...

The program `regatta` measures and judges; this module calls it. docs/PYTHON.md has more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from regatta.executable import RegattaError, program
from regatta.measuring import Problem, bench, compare, gate, run
from regatta.results import Change, Result, Row, Timing, load

__all__ = [
    "Change",
    "Problem",
    "RegattaError",
    "Result",
    "Row",
    "Timing",
    "Unsupported",
    "bench",
    "compare",
    "gate",
    "load",
    "program",
    "run",
    "variant",
]

Function = TypeVar("Function", bound=Callable[..., Any])


class Unsupported(NotImplementedError):
    """Raised by a function for a case that it does not support; the case does not fail."""


def variant(
    *,
    summary: str | None = None,
    dtypes: Sequence[str] | None = None,
    directions: Sequence[str] | None = None,
    tf32: bool | None = None,
    stores_scores: bool | None = None,
) -> Callable[[Function], Function]:
    """Says of a function what its signature cannot; what is left out is as without this.

    `dtypes` are of `f32`, `f16` and `bf16`, `directions` of `forward`, `backward` and `both`;
    `tf32`: float32 products are rounded to TF32; `stores_scores`: it keeps all scores.
    """
    declared = {
        "summary": summary,
        "dtypes": None if dtypes is None else tuple(dtypes),
        "directions": None if directions is None else tuple(directions),
        "tf32": tf32,
        "stores_scores": stores_scores,
    }

    def mark(function: Function) -> Function:
        given = {key: value for key, value in declared.items() if value is not None}
        function.regatta_variant = given  # type: ignore[attr-defined]
        return function

    return mark
