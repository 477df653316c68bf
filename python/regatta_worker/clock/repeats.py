"""Makes calls that the harness times by its own clock, each on different inputs; checks some.

On unchanged inputs, a function that caches results would compute only once. So each input is
rotated in its memory by a number that is drawn right before the call. The results of randomly
chosen calls are copied with their inputs, and compared with float64 after all timing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from regatta_worker.clock import hooks
from regatta_worker.problem.planes import DRAW

CHECKED = 8
"""Number of calls whose results are checked, of all calls since the last check."""


@dataclass(frozen=True)
class CheckedCall:
    """One plane of a call's results, and of its inputs."""

    plane: Any
    values: dict[str, Any]
    inputs: dict[str, Any]


@dataclass
class Repeats:
    """Makes calls, and keeps a uniform random sample of `CHECKED` of them."""

    call: Callable[[], Any]
    turn: Callable[[], None]
    """Changes the inputs."""
    look: Callable[[Any], None]
    """Waits for results and reads a part of each of their pages, since a function may defer the
    computation until they are read."""
    cut: Callable[[Any], CheckedCall]
    calls: int = 0
    results: Any = None
    kept: list[CheckedCall] = field(default_factory=list)

    def make(self, calls: int) -> None:
        for _ in range(calls):
            self.turn()
            results = self.call()
            hooks.none_left()
            self.look(results)
            self.calls += 1
            # Drawn after the call has returned, so that the function cannot know it.
            place = DRAW.randrange(self.calls) if self.calls > CHECKED else len(self.kept)
            if place < CHECKED:
                self.kept[place : place + 1] = [self.cut(results)]
            self.results = results

    def change_only(self, times: int) -> None:
        """Does the work around a call `times` times, without the call."""
        for _ in range(times):
            self.turn()
            if self.results is not None:
                self.look(self.results)
                # With the probability at which a call is kept.
                if DRAW.randrange(self.calls) < CHECKED:
                    self.cut(self.results)
