"""A call that a script had timed, and samples of it by the worker's own clocks."""

from __future__ import annotations

import contextlib
import ctypes
import inspect
import sys
import time
from collections.abc import Callable
from typing import Any

from regatta_worker import device
from regatta_worker.census.counters import first_call
from regatta_worker.clock import timing
from regatta_worker.clock.memory import held_bytes
from regatta_worker.clock.timing import Plan
from regatta_worker.problem.input_sets import Inputs
from regatta_worker.protocol.channel import Failed, Message
from regatta_worker.script.places import Place
from regatta_worker.script.results import arrays
from regatta_worker.script.timers import Timed

SHORT_NS = 20_000
"""A call that takes less on the host is repeated in a sample, so that the clock's own time is
small beside it."""
LONG_NS = 50_000
"""The approximate time of a sample of repeated calls."""
STAYS = (
    "a benchmark makes its inputs itself: they are the same in each sample, and results are not "
    "poisoned between calls, so a function that keeps a result passes"
)
"""The limits of a benchmark that makes its own inputs, as its cases say them."""


def torch_on_gpu(timed: Timed | None = None) -> Any:
    """torch, where the script computes on a GPU with it, or has a GPU's timer; else None."""
    torch = sys.modules.get("torch")
    cuda: Any = getattr(torch, "cuda", None)
    with contextlib.suppress(Exception):
        used = cuda.is_initialized() or (timed is not None and timed.on_gpu)
        return torch if used and cuda.is_available() else None
    return None


class Unchanged(Inputs):
    """Inputs that stay, and what precedes each call."""

    def __init__(self, before: Callable[[], Any] | None) -> None:
        super().__init__()
        self._before = before

    def change(self, last: bool) -> None:
        super().change(last)
        if self._before:
            self._before()


class ScriptCase:
    """A call that the script is stopped in."""

    def __init__(self, place: Place, timed: Timed) -> None:
        self.place, self.timed = place, timed
        self.torch = torch_on_gpu(timed)
        self.call: Callable[[], Any] = timed.call
        """One call, of which a CUDA graph is replayed where the timer does that."""
        self.loops = 1
        """Calls of a sample."""
        self.times: list[float] = []
        """The times of the samples that were taken."""
        self._held = 0
        """The memory that inputs and earlier calls held before the first call."""
        self.plan: tuple[Plan, bool] | None = None
        """The way in which these were taken, and whether the call waits for the device."""

    def wait(self, results: Any = None) -> None:
        """Returns when the device is done."""
        if self.torch:
            self.torch.cuda.synchronize()

    def once(self) -> Any:
        """One call, after what precedes it."""
        if self.timed.before:
            self.timed.before()
        returned = (self.timed.first or self.timed.call)()
        if inspect.iscoroutine(returned):
            returned.close()
            raise Failed(
                f"{self.place.where}: {self.place.name} returns a coroutine, which has not run: "
                f"time a function that calls `asyncio.run`"
            )
        if finish := finisher(returned):
            call = self.timed.call
            self.call = lambda: finish(call())
            return finish(returned)
        return returned

    def again(self) -> Any:
        """A further call, after what precedes it."""
        if self.timed.before:
            self.timed.before()
        return self.call()

    def first(self) -> Any:
        """The results of the first call, once the device is done with it."""
        returned = self.once()
        self.wait()
        return self.timed.result(returned)

    def begin(self) -> tuple[Any, Message]:
        """Makes the first call; its results, and the members of `prepared` about it."""
        self.wait()
        self._held = held_bytes()
        returned, about = first_call(self.once, self.wait)
        if self.timed.graph and self.torch:
            self.call = timing.captured(self.timed.call)[0]
        return self.timed.result(returned), about | {"errors": self.timed.check()}

    def measure(self, plan: Plan, gpu: device.NvidiaDevice | None) -> Message:
        """Samples of the call."""
        inputs = Unchanged(self.timed.before)
        if gpu:
            measured = timing.measure_cuda(self.call, plan, gpu, inputs)
        else:
            measured = self._on_host(plan, inputs)
        self.plan = plan, bool(measured.get("synchronised"))
        self.times = measured["device_ns"]
        return measured | {"input_sets_reason": STAYS}

    def _on_host(self, plan: Plan, inputs: Inputs) -> Message:
        self.loops = loops = 1 if self.timed.before else self._loops()
        call = self.call

        def several() -> Any:
            for _ in range(loops - 1):
                call()
            return call()

        size = device.cpu_flush_bytes() if plan.cold else 1
        room = (ctypes.c_char * size)()
        measured = timing.measure_wall(
            several if loops > 1 else call,
            self.wait,
            plan,
            lambda: ctypes.memset(room, 1, size),
            inputs=inputs,
            untimed=self.again if self.timed.before else None,
        )
        if "peak_bytes" in measured:
            measured["peak_bytes"] = max(1, measured["peak_bytes"] - self._held)
        for name in ("device_ns", "cpu_ns", "waited_ns"):
            if name in measured:
                measured[name] = [time / loops for time in measured[name]]
        return measured

    def _loops(self) -> int:
        """Calls that a sample is of."""
        fastest = min(elapsed(self.call) for _ in range(3))
        loops = 1
        while fastest * loops < (SHORT_NS if loops == 1 else LONG_NS):
            loops *= 2
        return loops


def finisher(returned: Any) -> Callable[[Any], Any] | None:
    """Returns results once they are computed, where these are of JAX or CuPy, whose calls return
    before; None for others."""
    jax, cupy = sys.modules.get("jax"), sys.modules.get("cupy")
    kinds = {type(each).__module__.partition(".")[0] for each in arrays(returned)}
    if jax is not None and kinds & {"jax", "jaxlib"}:
        finish: Callable[[Any], Any] = jax.block_until_ready
        return finish
    if cupy is None or "cupy" not in kinds:
        return None

    def synchronised(results: Any) -> Any:
        cupy.cuda.get_current_stream().synchronize()
        return results

    return synchronised


def elapsed(call: Callable[[], Any]) -> float:
    begin = time.perf_counter_ns()
    call()
    return float(max(1, time.perf_counter_ns() - begin))


def quick(case: ScriptCase) -> list[float]:
    """A time of a call that is not a case of this process, for the script to continue with."""

    def once() -> None:
        case.once()
        case.wait()

    return [elapsed(once)]
