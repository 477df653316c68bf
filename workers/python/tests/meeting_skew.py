"""How far apart two processes leave a meeting: `python3 meeting_skew.py`.

Prints the median and the largest difference of their clocks right after it (the monotonic
clock is the machine's, not the process's), and the same for a message through a pipe.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import support  # noqa: F401  (puts the worker's package on the path)

from regatta_worker.ranks.agreement import Agreement

MEETINGS = 2000
PAUSE_S = 0.0005
"""Between meetings, so that both processes have been elsewhere."""


def left(meet: Callable[[], None]) -> list[int]:
    """When this process left each meeting, in ns."""
    found = []
    for _ in range(MEETINGS):
        time.sleep(PAUSE_S)
        meet()
        found.append(time.perf_counter_ns())
    return found


def through_a_pipe(inward: int, outward: int) -> Callable[[], None]:
    """Each tells the other that it is there, and waits to be told."""

    def meet() -> None:
        os.write(outward, b"!")
        os.read(inward, 1)

    return meet


def apart(of_rank: Callable[[int], Callable[[], None]], folder: Path) -> list[int]:
    """Differences of two processes' times, in ns."""
    child = os.fork()
    times = left(of_rank(1 if child == 0 else 0))
    (folder / str(int(child == 0))).write_text(" ".join(map(str, times)))
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    ours, theirs = ((folder / name).read_text().split() for name in "01")
    return [abs(int(a) - int(b)) for a, b in zip(ours, theirs, strict=True)]


def main() -> None:
    """Prints both."""
    there, back = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "agreement"
        Agreement.create(path, 2)
        for title, of_rank in (
            ("shared memory", lambda rank: Agreement(path, rank, 2, 60.0).meet),
            (
                "a pipe each way",
                lambda rank: through_a_pipe((there, back)[rank][0], (back, there)[rank][1]),
            ),
        ):
            skew = apart(of_rank, folder)
            deciles = statistics.quantiles(skew, n=100)
            print(
                f"{title}: apart by {statistics.median(skew) / 1e3:.2f} us (median), "
                f"{deciles[-1] / 1e3:.2f} us (99th of 100)"
            )


if __name__ == "__main__":
    main()
