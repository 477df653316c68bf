"""The measure loop: each sample is one call, with the device idle before it.

There are three clocks, the best first. If torch exposes the stream, regatta's GPU clock times it
on a blocked stream, provided that `REGATTA_PROBE` names the clock's library (on_jax.py uses the
same clock for JAX); without the library, plain CUDA events do. The host's monotonic clock around
call and wait times everything else.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from regatta_worker.clock import hooks, probe
from regatta_worker.clock.memory import ResidentMemory
from regatta_worker.clock.probe import Probe, Sample
from regatta_worker.clock.threads import CallUsage, OneCore, Threads, usage_lists
from regatta_worker.device import NvidiaDevice
from regatta_worker.problem.input_sets import Inputs
from regatta_worker.protocol import channel
from regatta_worker.protocol.channel import Unsupported, required

MIN_FLUSH_BYTES = 256 << 20
"""Smallest flush on a GPU, in bytes. Reading and writing 256 MiB keeps an H200 busy for about
0.1 ms, in which the host can issue most calls."""


SHOWING = 10
"""Samples taken even past the budget, if as many samples of the fastest time would fit into it."""


@dataclass(frozen=True)
class Plan:
    """The samples that a `measure` request asks for."""

    warmup: int
    samples: int
    min_samples: int
    budget_ms: float
    cold: bool
    graph: bool = False
    core: int | None = None
    """The core on which a call that runs on one thread is sampled; None: any core."""
    pause_every: int = 0
    """Samples between pauses, in which the other side of a pair runs; 0: no pauses."""
    agreed: Callable[[bool], bool] = bool
    """Decides whether a sample is the last, given this process's own answer."""

    @staticmethod
    def from_wire(request: dict[str, Any]) -> Plan:
        return Plan(
            warmup=int(required(request, "warmup")),
            samples=int(required(request, "samples")),
            min_samples=int(required(request, "min_samples")),
            budget_ms=float(required(request, "budget_ms")),
            cold=required(request, "cache") == "cold",
            graph=bool(request.get("graph", False)),
            core=request.get("core"),
            pause_every=int(request.get("pause_every", 0)),
        )

    def rounds(
        self,
        inputs: Inputs,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[], bool] = lambda: False,
    ) -> Iterator[bool]:
        """Yields once for each sample, with its inputs in place; the value is True for the last.

        The last sample is the one that completes the number of samples, or the first to begin
        after the budget was spent. Changing inputs does not use the budget. `SHOWING` samples are
        taken if that many of the fastest fit the budget: a call that is occasionally slow must
        not use it up first. `pause` returns True if the turn that follows it is the last.
        """
        most, spent_s, fastest_s = max(self.samples, self.min_samples), 0.0, math.inf
        in_last_turn = False
        for number in itertools.count(1):
            turn_ended = self.pause_every and number > 1 and (number - 1) % self.pause_every == 0
            if turn_ended and pause():
                most, in_last_turn = min(most, number - 1 + self.pause_every), True
            late = number >= self.min_samples and spent_s * 1e3 > self.budget_ms
            late = late and not in_last_turn
            showing = number < SHOWING and SHOWING * fastest_s * 1e3 <= self.budget_ms
            last = self.agreed(number == most or (late and not showing))
            inputs.change(last)
            begin = clock()
            yield last
            if last:
                return
            sample_s = clock() - begin
            spent_s, fastest_s = spent_s + sample_s, min(fastest_s, sample_s)


OPERATIONS = 15
"""Operations in one reference. With torch they take about as long as issuing a call."""


class HostReference:
    """Times constant work on the host right after each sample.

    The same call may take twice as much host time in one process as in another, because the core
    itself is slower or faster. The ratio to work of the same kind, in the framework's dispatcher,
    varies less (docs/EVIDENCE.md).

    The operations are timed once the device is idle; `wait` then waits until it is idle again.
    Each result is dropped before the next operation, so that they do not bring a garbage
    collection nearer. A collection that is due waits until their time has been read.
    """

    def __init__(
        self, operations: Callable[[], Any], wait: Callable[[], Any] = lambda: None
    ) -> None:
        self._operations, self._wait = operations, wait
        self.ns: list[float] = []
        self._operations()
        self._wait()

    def take(self) -> None:
        """Times the operations once, for the sample that has just ended."""
        collects = gc.isenabled()
        gc.disable()
        try:
            begin = time.perf_counter_ns()
            self._operations()
            self.ns.append(float(time.perf_counter_ns() - begin))
            self._wait()
        finally:
            if collects:
                gc.enable()


def torch_reference() -> HostReference:
    """Additions of four elements on the CPU, each through torch's dispatcher with a new result."""
    import torch

    four, add = torch.ones(4, dtype=torch.float32, device="cpu"), torch.add

    def operations() -> None:
        for _ in range(OPERATIONS):
            add(four, four)

    return HostReference(operations)


def autograd_reference() -> HostReference:
    """A gradient of four elements on the GPU, through torch's autograd.

    Autograd has one thread for each GPU, which wakes up for each call. The time to wake up differs
    between processes, and not in proportion to work on the calling thread.
    """
    import torch

    x, dy = torch.ones(4, device="cuda", requires_grad=True), torch.ones(4, device="cuda")
    y = (x * 2 + 1).sin()
    return HostReference(
        lambda: torch.autograd.grad(y, x, dy, retain_graph=True), torch.cuda.synchronize
    )


def flush_bytes(cache_bytes: int | None) -> int:
    """Returns the bytes to write in order to evict all of a GPU's last-level cache."""
    return max(2 * (cache_bytes or 0), MIN_FLUSH_BYTES)


def take_samples(
    plan: Plan,
    inputs: Inputs,
    sample: Callable[[list[Any]], Sample],
    host: HostReference | None = None,
    on_torch: bool = False,
    resumed: Callable[[], Any] = lambda: None,
) -> dict[str, Any]:
    """Returns members of `measured` with one entry per sample; also `peak_bytes` if `on_torch`.

    `sample` makes the call and appends its results to its argument; `inputs` drops them, because
    their memory must be free before the next call. `host` is timed after each sample; on torch it
    defaults to `torch_reference()`. `resumed` is called after each pause.
    """
    samples, peak = list[Sample](), 0
    if on_torch:
        host = host or torch_reference()

    def pause() -> bool:
        last = channel.pause([each.device_ns for each in samples[-plan.pause_every :]])
        resumed()
        return last

    for last in plan.rounds(inputs, pause=pause):
        # The inputs have changed, which takes memory that the call's peak must not include.
        if on_torch:
            reset_peak_bytes()
        samples.append(sample(inputs.kept))
        hooks.none_left()
        if on_torch:
            peak = max(peak, requested_bytes("peak"))
        if host:
            host.take()
        inputs.look(last)
    host_ns = [each.host_ns for each in samples if each.host_ns is not None]
    measured: dict[str, Any] = {
        "device_ns": [each.device_ns for each in samples],
        "host_ns": host_ns,
    }
    if host_ns and host:
        measured["host_reference_ns"] = host.ns
    clocks = [each.clock_mhz for each in samples]
    if None not in clocks:
        measured["clock_mhz"] = clocks
    if any(each.synchronised for each in samples):
        measured["synchronised"] = True
    return measured | ({"peak_bytes": peak - inputs.held_bytes} if on_torch else {})


def measure_wall(
    call: Callable[[], Any],
    wait: Callable[[Any], Any],
    plan: Plan,
    flush: Callable[[], Any],
    gpu: NvidiaDevice | None = None,
    before: Callable[[], None] = lambda: None,
    inputs: Inputs | None = None,
    host: HostReference | None = None,
    untimed: Callable[[], Any] | None = None,
) -> dict[str, Any]:
    """Times `call` and `wait` by the host's monotonic clock; `before` runs untimed before each.
    `untimed` is the call that warms up, by default `call`.

    With `gpu`, the device works asynchronously on a stream that the library hides. `device_ns` is
    then the time from issuing the call until it is done, launch latency included. `host_ns` is the
    time until the call returned, and `host` is timed after each sample.

    Without `gpu`, the host is the device and `host_ns` stays empty. Each time then comes with CPU
    time, threads and their waits for a core. A call on one thread is timed without its waits
    (`threads`), on `plan.core` if that is set. Resident memory replaces the device's memory.
    """
    if plan.graph:
        raise Unsupported(
            "CUDA graphs are replayed by torch on a GPU alone; measure with graph = false"
        )
    usages = list[CallUsage]()

    def sample(keep: list[Any]) -> Sample:
        if plan.cold:
            flush()
        before()
        if threads:
            memory.read()
            threads.begin()
        begin = time.perf_counter_ns()
        result = call()
        issued = time.perf_counter_ns()
        wait(result)
        wall_ns = time.perf_counter_ns() - begin
        if threads:
            usages.append(threads.end())
            core.saw(usages[-1])
        keep.append(result)
        if gpu:
            return Sample(float(wall_ns), float(issued - begin), gpu.clock_mhz())
        return Sample(usages[-1].device_ns(wall_ns))

    def resumed() -> None:
        # The other side has replaced the contents of caches: one untimed call fills them again.
        if not gpu:
            wait((untimed or call)())

    with (
        contextlib.nullcontext() if gpu else Threads() as threads,
        OneCore(None if gpu else plan.core) as core,
    ):
        for _ in range(plan.warmup):
            if threads:
                threads.begin()
            wait((untimed or call)())
            if threads:
                core.saw(threads.end())
        core.begin()
        memory = ResidentMemory()
        reference = host if gpu else None
        measured = take_samples(plan, inputs or Inputs(), sample, reference, resumed=resumed)
        if core.pinned is not None:
            measured["core"] = core.pinned
    if gpu:
        return measured | {"state": gpu.state()}
    return measured | usage_lists(usages) | memory.as_reply()


def stream_clock() -> Probe | None:
    """Returns regatta's clock on torch's current stream; None if it is not available."""
    import torch

    stream = torch.cuda.current_stream()
    return probe.open_clock(stream.cuda_stream, stream.device_index)


Take = Callable[[Callable[[], Any]], dict[str, Any]]


def measure_cuda(
    call: Callable[[], Any],
    plan: Plan,
    gpu: NvidiaDevice,
    inputs: Inputs,
    take: Take | None = None,
    *,
    by_autograd: bool = False,
) -> dict[str, Any]:
    """Times the call, or a CUDA graph of it, on torch's current stream after the warm-up. `take`
    does the timing; by default regatta's clock on a blocked stream does, or else plain events. If
    `by_autograd`, the host reference uses autograd too."""
    of_autograd = None
    if by_autograd and not plan.graph:
        # Before the first call: autograd's thread frees a call's gradients at an unknown time.
        before = requested_bytes()
        of_autograd = autograd_reference()
        inputs.held_bytes += requested_bytes() - before
    for _ in range(plan.warmup):
        call()
    if plan.graph:
        call, inputs.results, held_bytes = captured(call)
        inputs.held_bytes += held_bytes
    measured = take(call) if take else _measure_on_stream(call, plan, gpu, inputs, of_autograd)
    if plan.graph:
        inputs.kept[:] = [inputs.results]
        measured["graph"] = True
    return measured | {"state": gpu.state()}


def _measure_on_stream(
    call: Callable[[], Any],
    plan: Plan,
    gpu: NvidiaDevice,
    inputs: Inputs,
    host: HostReference | None,
) -> dict[str, Any]:
    """Takes samples on a blocked stream if there is a clock, or else by plain events."""
    blocked = stream_clock()
    if blocked is None:
        return measure_events(call, plan, gpu, inputs, host=host)
    # A call that waits for the device also waits for the block, which ends by force after
    # 50 ms. Each sample's host time would then be those 50 ms.
    if not blocked.sample(plan.cold, call).synchronised:
        sample = functools.partial(blocked.sample, plan.cold, call)
        return take_samples(plan, inputs, sample, host, on_torch=True)
    print("the call waits for the device: timed by plain events, not on a blocked stream")
    with OneCore(plan.core) as core:
        # The call's time now includes host time, which differs from core to core.
        core.pin()
        measured = measure_events(call, plan, gpu, inputs, host=host)
        if core.pinned is not None:
            measured["core"] = core.pinned
    return measured | {"synchronised": True}


def captured(call: Callable[[], Any]) -> tuple[Callable[[], None], Any, int]:
    """Captures the call into a CUDA graph. Returns a function that replays it on the stream that is
    current then, the results that each replay overwrites, and the bytes that the allocator counts
    for these: the results of a plain call no longer count once they are dropped.

    torch makes the capture because its allocator must know of it: memory that the call allocates
    during the capture belongs to the graph.
    """
    import torch

    # A first call on the same side stream, as torch requires: libraries set up handles for
    # each stream, which is not allowed in a capture.
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.stream(side):
            call()
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(graph, stream=side):
            # Read inside, because entering the block collects garbage.
            before = requested_bytes()
            results = call()
        held_bytes = requested_bytes() - before
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        words = str(error).strip().split("\n")[0]
        raise Unsupported(f"the call cannot be captured into a CUDA graph: {words}") from error
    graph.replay()
    torch.cuda.synchronize()
    return graph.replay, results, held_bytes


def requested_bytes(when: str = "current") -> int:
    """Returns the bytes requested from torch's allocator, now or at the `peak`. The size of the
    blocks that it gave is not used, as that depends on earlier allocations."""
    import torch

    # The nested form, because flattening it takes a third of a millisecond per sample.
    stats = torch.cuda.memory_stats_as_nested_dict()
    # torch 1 counts only blocks; before the first allocation it has no counts.
    found = stats.get("requested_bytes") or stats.get("allocated_bytes")
    return int(found["all"][when]) if found else 0


def reset_peak_bytes() -> None:
    import torch

    torch.cuda.reset_peak_memory_stats()


def measure_events(
    call: Callable[[], Any],
    plan: Plan,
    gpu: NvidiaDevice,
    inputs: Inputs,
    before: Callable[[], None] = lambda: None,
    host: HostReference | None = None,
) -> dict[str, Any]:
    """Takes samples by two events on torch's current stream, after the warm-up.

    The flush also hides the launch latency: while the device is still writing, the host queues
    start event, call and stop event, so that the device runs them without waiting for the host.
    That holds only for the duration of the flush. A call that takes longer to issue (backward
    through autograd on a small problem), and any hot sample, includes part of the host's time.
    `before` runs between flush and start event. If it waits for the device, nothing is hidden,
    and the samples include all of the host's time.
    """
    import torch

    size = flush_bytes(gpu.l2_bytes()) if plan.cold else 0
    flush = torch.randint(0, 256, (size,), dtype=torch.uint8, device="cuda").bitwise_not_()
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    # CUDA creates an event when it is first recorded, which must not happen inside a sample.
    start.record()
    stop.record()
    inputs.held_bytes += flush.numel()

    def sample(keep: list[Any]) -> Sample:
        torch.cuda.synchronize()
        if plan.cold:
            # Reads, inverts and writes random bytes: a device that compresses its memory can
            # fill with zeros without moving data.
            flush.bitwise_not_()
        before()
        start.record()
        begin = time.perf_counter_ns()
        result = call()
        host_ns = float(time.perf_counter_ns() - begin)
        stop.record()
        torch.cuda.synchronize()
        keep.append(result)
        return Sample(start.elapsed_time(stop) * 1e6, host_ns, gpu.clock_mhz())

    return take_samples(plan, inputs, sample, host, on_torch=True)
