"""The measure loop: each sample is one call, with the device idle before it.

Three clocks, best first. Where `REGATTA_PROBE` names regatta's GPU clock, a stream that
torch shows us is timed by its own clock on a blocked stream (and JAX's by the same one, in
on_jax.py); without it by plain events; everything else by the host's monotonic clock
around call and wait.
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
"""Smallest flush on a GPU. 256 MiB read and written keep an H200 busy for about
0.1 ms, which is what the host needs to issue most calls behind it."""


SHOWING = 10
"""Samples that a budget leaves where the fastest ones leave time for them."""


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
    """The core to take samples on, of a call that runs on one thread; None: any."""
    pause_every: int = 0
    """Samples after which the process pauses, for the other side of a pair; 0: it never does."""
    agreed: Callable[[bool], bool] = bool
    """Decides whether a sample is the last; given this process's own answer."""

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
        """For each sample to take, once its inputs are in place, whether it is the last.

        That is the one that makes them enough, or the first to begin after the budget was
        spent. The time in which inputs change is not of the budget. `SHOWING` samples are taken
        where so many of the fastest leave time: a call that is slow now and then must not end
        the budget before that shows. `pause` tells whether the turn after it is the last.
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
"""The operations of one reference: with torch together about as long as the issue of a call."""


class HostReference:
    """The time of constant work on the host, taken right after each sample.

    The same call may take one process twice as much of the host's time as another, because the
    core itself is slower or faster. The ratio to work of the same kind, the framework's
    dispatcher, varies less (docs/EVIDENCE.md).

    The operations are timed once the device is done, and `wait` has the device done again. They
    leave nothing behind: each result is dropped before the next, so that they bring no collection
    of garbage nearer, and one that is due waits until their time has been read.
    """

    def __init__(
        self, operations: Callable[[], Any], wait: Callable[[], Any] = lambda: None
    ) -> None:
        self._operations, self._wait = operations, wait
        self.ns: list[float] = []
        self._operations()
        self._wait()

    def take(self) -> None:
        """Times the operations, for the sample that has just ended."""
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
    """Additions of four elements on the CPU, through torch's dispatcher, each with a new result."""
    import torch

    four, add = torch.ones(4, dtype=torch.float32, device="cpu"), torch.add

    def operations() -> None:
        for _ in range(OPERATIONS):
            add(four, four)

    return HostReference(operations)


def autograd_reference() -> HostReference:
    """A gradient of four elements on the GPU, through torch's autograd.

    Autograd runs on a thread of its own for each GPU, which wakes up for each call. How long that
    takes differs between processes, and not in proportion to work on the calling thread.
    """
    import torch

    x, dy = torch.ones(4, device="cuda", requires_grad=True), torch.ones(4, device="cuda")
    y = (x * 2 + 1).sin()
    return HostReference(
        lambda: torch.autograd.grad(y, x, dy, retain_graph=True), torch.cuda.synchronize
    )


def flush_bytes(cache_bytes: int | None) -> int:
    """Bytes to write so that nothing of a GPU's last-level cache survives."""
    return max(2 * (cache_bytes or 0), MIN_FLUSH_BYTES)


def take_samples(
    plan: Plan,
    inputs: Inputs,
    sample: Callable[[list[Any]], Sample],
    host: HostReference | None = None,
    on_torch: bool = False,
    resumed: Callable[[], Any] = lambda: None,
) -> dict[str, Any]:
    """Members of `measured` with an entry a sample, and `peak_bytes` where the call is `on_torch`.

    `sample` makes the call, whose results go into its argument; `inputs` drops them, as their
    memory must be free again before the next. `host` is timed after each: on torch its
    dispatcher's where none is given. `resumed` is called after each pause.
    """
    samples, peak = list[Sample](), 0
    if on_torch:
        host = host or torch_reference()

    def pause() -> bool:
        last = channel.pause([each.device_ns for each in samples[-plan.pause_every :]])
        resumed()
        return last

    for last in plan.rounds(inputs, pause=pause):
        # The changing of inputs, which takes memory too, is over.
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
    """Times call and wait by the host's monotonic clock; `before` precedes each, untimed.
    `untimed` is a call for warming up, by default `call`.

    With `gpu` the device works apart from the host behind a stream that the library
    hides: `device_ns` is then the time from issuing the call until it is done, launch
    latency included, and `host_ns` the time until the call returned, beside which
    `host` is timed. Without, host and device are one and `host_ns` stays empty. CPU time,
    threads and their waits for a core are then reported beside each time, a call on one
    thread is timed without its waits (`threads`) and on one core where the plan names it, and
    resident memory stands in for a device's.
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
        # The other side has used the caches: one call fills them again, untimed.
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
    """regatta's clock on torch's current stream, where it can be had."""
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
    """Times the call, or a CUDA graph of it, on torch's current stream after the warm-up: as
    `take` does, by default blocked, or else by plain events. A call `by_autograd` has a
    reference of its kind."""
    of_autograd = None
    if by_autograd and not plan.graph:
        # Before the first call, as autograd's thread lets go of a call's gradients when it likes.
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
    """Samples: blocked where there is a clock, or else by plain events."""
    blocked = stream_clock()
    if blocked is None:
        return measure_events(call, plan, gpu, inputs, host=host)
    # A call that waits for the device waits for the block, which ends by
    # force after 50 ms: those would be the host's time in each sample.
    if not blocked.sample(plan.cold, call).synchronised:
        sample = functools.partial(blocked.sample, plan.cold, call)
        return take_samples(plan, inputs, sample, host, on_torch=True)
    print("the call waits for the device: timed by plain events, not on a blocked stream")
    with OneCore(plan.core) as core:
        # The host's times are in the call's, and differ from core to core.
        core.pin()
        measured = measure_events(call, plan, gpu, inputs, host=host)
        if core.pinned is not None:
            measured["core"] = core.pinned
    return measured | {"synchronised": True}


def captured(call: Callable[[], Any]) -> tuple[Callable[[], None], Any, int]:
    """Replays a CUDA graph of the call on whichever stream is current then; where each replay
    leaves its results; and what the allocator counts for these, which a call's own are not counted
    for once it has been made.

    Through torch, whose allocator must know of the capture: memory that the call takes
    while it is captured belongs to the graph.
    """
    import torch

    # A first call on a stream of its own, as torch asks for: libraries set up their
    # handles for each stream, which is not allowed in a capture.
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.stream(side):
            call()
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(graph, stream=side):
            # In here, since what is garbage is collected on the way in.
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
    """The bytes asked of torch's allocator, now or at the `peak`: not the size of blocks that
    it found, which depends on what lay there before."""
    import torch

    # As it is nested: to flatten it takes a third of a millisecond of each sample.
    stats = torch.cuda.memory_stats_as_nested_dict()
    # torch 1 counts blocks alone; before its first allocation there is nothing to count.
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
    """Samples by two events on torch's current stream, after the warm-up.

    The flush also hides the launch latency: while the device is still writing, the host
    queues start event, call and stop event, so that the device passes from one to the
    other without waiting for the host. That holds for as long as the flush takes; a call
    that needs longer to issue (backward through autograd on a small problem), and any
    hot sample, shows the host's time in part. `before` stands between flush and start
    event; where it waits for the device, nothing is hidden, and all of the host's time shows.
    """
    import torch

    size = flush_bytes(gpu.l2_bytes()) if plan.cold else 0
    flush = torch.randint(0, 256, (size,), dtype=torch.uint8, device="cuda").bitwise_not_()
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    # Events are created when first recorded: not inside a sample.
    start.record()
    stop.record()
    inputs.held_bytes += flush.numel()

    def sample(keep: list[Any]) -> Sample:
        torch.cuda.synchronize()
        if plan.cold:
            # Random bytes read, inverted and written: a fill with zeros can be done
            # without moving the data, on a device that compresses its memory.
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
