"""The inputs change before each sample, so a kernel that returns a cached result fails the check.

A kernel that gives back what it computed before, because the addresses of its inputs or a
light fingerprint of them say so, is as fast as it is wrong. So the contents change from sample
to sample, the addresses where a library lets us keep them do not, and the results of the last
timed call are checked after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count, cycle
from typing import Any

from regatta_worker.problem.planes import DRAW
from regatta_worker.protocol.channel import Failed, Unsupported, positive

LAST = 1
"""Number of the set that the last sample is taken on, in every case of a problem: one
reference more serves them all."""

FIRST_OF_OTHERS = 2

DRAWN = 3
"""Timed calls whose results are checked, beside the last one."""


def seed_of(seed: int, number: int) -> int:
    """The seed of a set, as docs/PROTOCOL.md has it; set 0 is that of the first call."""
    return (seed + number) & ((1 << 64) - 1)


def drawn_first() -> int:
    """The first set of `fresh`, which no call can make before it is used."""
    return FIRST_OF_OTHERS + DRAW.randrange(1 << 40)


def fresh(first: int | None = None) -> Iterator[int]:
    """Sets for the samples before the last, where each can have one of its own. Processes that
    compute together have the same `first`."""
    return count(drawn_first() if first is None else first)


def in_turn(sets: int) -> Iterator[int]:
    """Sets for the samples before the last if only `sets` are kept: all but `LAST`, in a cycle.

    No two in a row are alike, the last one included, so there are at least three.
    """
    if sets < 3:
        raise ValueError(f"{sets} sets cannot take turns")
    return cycle([*range(FIRST_OF_OTHERS, sets), 0])


@dataclass(kw_only=True)
class CaseInputs:
    """The sets of inputs of a prepared case."""

    seed: int = 0
    sets: int = 1
    """Sets of inputs that samples are taken on."""
    draw: int | None = None
    """From which probes are drawn."""
    place: int = 0
    """Number of the set that is in place."""
    numbers: Iterator[int] = field(default_factory=fresh)
    """Sets that no sample has been taken on."""


class Inputs:
    """The inputs of the samples; these stay as they are."""

    held_bytes = 0
    """Device memory that is taken for changing and checking, and is not the call's."""

    def __init__(self) -> None:
        self.kept: list[Any] = []
        """The results of a timed call, once it has been made."""
        self.results: Any = None
        """The results of each call, if it does not return them."""

    def change(self, last: bool) -> None:
        """Before each sample: what was kept is dropped, and the inputs are those of the sample."""
        self.kept.clear()

    def look(self, last: bool) -> None:
        """After each sample, with the device idle: results that are not kept are dropped."""
        if not last:
            self.kept.clear()

    def forget(self) -> None:
        """Gives back what lies beside the inputs: no more samples are taken."""


@dataclass(frozen=True)
class DrawnCall:
    """The part of a timed call that is kept for the check."""

    call: int
    """Counted from 1."""
    number: int
    """The number of its set of inputs."""
    along: float
    """By which part of their memory its inputs were rotated."""
    values: Any


class InputSets(Inputs):
    """Inputs whose contents are another set's in each sample, `LAST` in the last one."""

    def __init__(
        self,
        of: CaseInputs,
        put: Callable[[int], None],
        short: Callable[[Exception], bool],
        numbers: Iterator[int] | None = None,
    ) -> None:
        """`put(n)` puts set `n` in place of the one before, and returns when that is done;
        `short` says of an error of `put` that memory was short: the inputs then stay those of
        set 0. `numbers`, by default the case's, are the sets of the samples before the last."""
        super().__init__()
        self._asked, self._put, self._short = of.sets, put, short
        self._numbers = numbers or of.numbers
        self._used = {0, of.place}
        self._stay: str | None = None
        """Why the contents do not change."""
        self.number = of.place
        """The number of the set that is in place."""
        self.along = 0.0
        """By which part of their memory the inputs in place are rotated."""
        self.cut: Callable[[Any], Any] | None = None
        """Copies a part of a call's results; None: the last call alone is checked."""
        self.drawn: list[DrawnCall] = []
        self.last: Any = None
        """The result of `cut` for the last call, when it had returned."""
        self._calls = 0

    def change(self, last: bool) -> None:
        super().change(last)
        if self._stay:
            return
        number = LAST if last else next(self._numbers)
        try:
            self._put(number)
        except Exception as error:
            if not self._short(error):
                raise
            self._stay = f"no memory to change the inputs: {str(error).strip().splitlines()[0]}"
        else:
            self.number = number
            self._used.add(number)
            return
        # Out here the exception is gone, and with it the frames that held memory.
        self._put(0)
        self.number = 0

    def look(self, last: bool) -> None:
        """Keeps a part of `DRAWN` calls of those so far, each as likely as any other: whether
        one is kept is drawn when it has returned."""
        if self.cut:
            self._calls += 1
            place = DRAW.randrange(self._calls) if self._calls > DRAWN else len(self.drawn)
            results = self.kept[-1] if self.results is None else self.results
            if last:
                self.last = self.cut(results)
            elif place < DRAWN:
                found = DrawnCall(self._calls, self.number, self.along, self.cut(results))
                self.drawn[place : place + 1] = [found]
        super().look(last)

    def put(self, number: int) -> None:
        """Puts a set in place for a call that is not timed."""
        self._put(number)
        self.number = number

    def as_reply(self) -> dict[str, Any]:
        """Members of `measured`: how many sets there were, and why fewer than asked."""
        if self._stay:
            return {"input_sets": 1, "input_sets_reason": self._stay}
        sets = len(self._used)
        if sets >= self._asked:
            return {"input_sets": sets}
        return {"input_sets": sets, "input_sets_reason": f"there were {sets - 1} samples"}


class Lengths:
    """Lengths that change from call to call, as in training on ragged data and in serving.

    All lie above half of the longest, so that rounding up to a power of two gives the same
    for all of them where the longest is one. The lengths of a call are spread over that
    range, so that calls differ in work by little.
    """

    def __init__(self, longest: int, a_call: int, what: str = "seq") -> None:
        self._longest, self._a_call, self._what = longest, positive("lengths", a_call), what
        self._calls = (longest - longest // 2) // a_call
        """Calls for which there are lengths: also how far those of one lie apart."""
        if self._calls == 0:
            raise Unsupported(
                f"lengths={a_call}: a call draws them from above half of {what} {longest}, and "
                f"there are {longest - longest // 2}; give fewer lengths or a longer {what}"
            )
        self._made = 0

    def draw(self) -> list[int]:
        """The lengths of the next call, longest first."""
        if self._made == self._calls:
            raise Failed(
                f"{self._what} {self._longest} has new lengths for {self._calls} calls of "
                f"{self._a_call}, and all have been made: give a longer {self._what}, fewer "
                "lengths, or fewer samples"
            )
        first = self._longest - self._made
        self._made += 1
        return [first - number * self._calls for number in range(self._a_call)]
