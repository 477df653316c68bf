"""Lengths that change from call to call, as in training on ragged data and in serving."""

from __future__ import annotations

from regatta_worker.protocol.channel import Failed, Unsupported, positive


class Lengths:
    """Lengths for calls that see none twice.

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
