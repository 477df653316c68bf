"""Calls that the harness times by its own clock, each on other inputs; some are checked.

On inputs that stay, a function that keeps results would compute once. So each input is turned in
its memory by a number that is drawn right before the call. What a drawn call computed is copied
with the inputs that it had, and compared with float64 once nothing is timed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from regatta_worker.clock import hooks
from regatta_worker.problem.planes import DRAW

CHECKED = 8
"""Calls that are checked, of all that were made since the last check."""


@dataclass(frozen=True)
class CheckedCall:
    """A plane of the results of a call, and of its inputs."""

    plane: Any
    values: dict[str, Any]
    inputs: dict[str, Any]


@dataclass
class Repeats:
    """Makes calls, and keeps `CHECKED` of them, each as likely as any other."""

    call: Callable[[], Any]
    turn: Callable[[], None]
    """Changes the inputs."""
    look: Callable[[Any], None]
    """Waits for results and reads some of all pages of theirs, which a function may have left to be
    computed when they are read."""
    cut: Callable[[Any], CheckedCall]
    calls: int = 0
    results: Any = None
    kept: list[CheckedCall] = field(default_factory=list)

    def make(self, calls: int) -> None:
        """Makes so many calls."""
        for _ in range(calls):
            self.turn()
            results = self.call()
            hooks.none_left()
            self.look(results)
            self.calls += 1
            # Drawn when the call has returned: nothing can know it before.
            place = DRAW.randrange(self.calls) if self.calls > CHECKED else len(self.kept)
            if place < CHECKED:
                self.kept[place : place + 1] = [self.cut(results)]
            self.results = results

    def change_only(self, times: int) -> None:
        """All but the calls, so many times."""
        for _ in range(times):
            self.turn()
            if self.results is not None:
                self.look(self.results)
                # As often as a call is kept.
                if DRAW.randrange(self.calls) < CHECKED:
                    self.cut(self.results)
