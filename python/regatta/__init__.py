"""regatta from Python: measures functions and suites, gives results as rows, gates in pytest.

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
    """A function raises this for a case that it does not support. The case is then skipped."""


def variant(
    *,
    summary: str | None = None,
    dtypes: Sequence[str] | None = None,
    directions: Sequence[str] | None = None,
    tf32: bool | None = None,
    stores_scores: bool | None = None,
) -> Callable[[Function], Function]:
    """Declares facts of a function that its signature cannot express; all are optional.

    `dtypes` are from `f32`, `f16` and `bf16`, `directions` from `forward`, `backward` and `both`.
    `tf32`: it rounds float32 products to TF32. `stores_scores`: it stores all scores.
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
