"""One rank of library `sequence_parallel`: its GPU, its shard, its weight, its clock."""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import gc
import math
import os
import signal
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from regatta_worker import device
from regatta_worker.clock import timing
from regatta_worker.on_torch.case import DTYPES, Variant
from regatta_worker.on_torch.census import census
from regatta_worker.on_torch.inputs import Fill, TorchInputSets
from regatta_worker.on_torch.library import TorchLibrary
from regatta_worker.problem import inputs
from regatta_worker.problem.input_sets import Inputs, seed_of
from regatta_worker.problem.lengths import Lengths
from regatta_worker.problem.projection import Geometry, Projection, some_rows
from regatta_worker.problem.reference import difference, probes, worst
from regatta_worker.protocol.channel import Failed, Message, Together, Unsupported, required
from regatta_worker.protocol.refusals import refusal
from regatta_worker.ranks.agreement import Agreement
from regatta_worker.ranks.sequence_parallel_variants import Layer, operator, variants

PR_SET_PDEATHSIG = 1
"""prctl.h"""


@dataclass(frozen=True)
class AgreedPlan(timing.Plan):
    """A plan whose number of samples is rank 0's: a call is made by all ranks or by none."""

    agreement: Agreement | None = None

    def agreed(self, last: bool) -> bool:
        """By the clock of rank 0."""
        assert self.agreement is not None
        return self.agreement.decided(last)


class Rank(Together, TorchLibrary):
    """Answers for its own part; the process that started it makes one answer of all."""

    NAME = "sequence_parallel"
    PACKAGES = ("xformers",)

    def __init__(self, rank: int) -> None:
        _end_with_parent()
        super().__init__(rank)
        self._rank = rank
        self._agreement: Agreement | None = None
        self._layer: Layer | None = None
        if self._gpu:
            torch.cuda.set_device(self._device)

    def variants(self) -> dict[str, Variant]:
        """What is there to be asked for."""
        return variants(self._gpu is not None)

    def hello(self) -> Message:
        """What every library says, and how many ranks this machine has room for."""
        return super().hello() | {"gpus": torch.cuda.device_count() if self._gpu else 0}

    def versions(self) -> dict[str, str]:
        """What a reading depends on."""
        found = super().versions()
        if self._gpu:
            found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
            found["clock"] = f"events once all ranks are idle; queued: {found['clock']}"
        return found

    def _prepare(self, request: Message) -> Message:
        of = Projection.from_wire(required(request, "problem"))
        name, params = self._asked(request)
        seed = required(request, "seed")
        self._join(required(request, "group"))
        lengths, pad = params.get("lengths"), params.get("pad", "none")
        start = params.get("start", "idle")
        geometry = Geometry(of, self._rank, pad == "pow2")
        drawn = None if lengths is None else Lengths(of.shard_rows, lengths, "shard of rows")
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                weight = self._weight(of, seed, self._rank)
                layer = Layer(
                    geometry,
                    self._activations(geometry, seed),
                    weight,
                    operator(name, of, weight),
                    drawn,
                    start == "queued",
                    seed=seed,
                    sets=int(request.get("input_sets", 1)),
                )
                results, first_call_ns = self._first(layer)
            except (torch.OutOfMemoryError, dist.DistError):
                raise
            except RuntimeError as error:
                # What gloo says of a lost peer is no refusal either.
                if "gloo" in str(error).lower():
                    raise
                raise refusal(error, [str(warning.message) for warning in said]) from error
        self._layer = layer
        prepared = {
            "effective": {"lengths": lengths or 1, "pad": pad, "start": start},
            "errors": {"out": self._error(geometry, seed, results)},
            "probes": {"out": probes(results[0])},
            "first_call_ns": first_call_ns,
        }
        return prepared | ({"problems": lengths} if lengths and lengths > 1 else {})

    def _join(self, group: Message) -> None:
        """Forms the group with the other ranks, once in the life of this process."""
        if self._agreement:
            return
        folder, ranks = Path(group["folder"]), int(group["ranks"])
        # All ranks are on this machine, which may have no other interface.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        dist.init_process_group(
            "nccl" if self._gpu else "gloo",
            init_method=f"file://{folder / 'store'}",
            rank=self._rank,
            world_size=ranks,
            timeout=datetime.timedelta(seconds=group["collective_limit_s"]),
            device_id=self._device if self._gpu else None,
        )
        self._agreement = Agreement(
            folder / "agreement", self._rank, ranks, group["meeting_limit_s"]
        )

    def _met(self) -> Agreement:
        if self._agreement is None:
            raise Failed("no case is prepared")
        return self._agreement

    def _block(
        self, of: Projection, seed: int, tensor: str, first: int, shape: tuple[int, int]
    ) -> torch.Tensor:
        return inputs.torch_block(seed, tensor, first, shape, DTYPES[of.dtype], self._device)

    def _weight(self, of: Projection, seed: int, rank: int) -> torch.Tensor:
        first = rank * of.hidden * of.columns
        return self._block(of, seed, "k", first, of.weight_shape)

    def _activations(self, geometry: Geometry, seed: int) -> torch.Tensor:
        of, (first, rows) = geometry.projection, geometry.activation_span
        return self._block(of, seed, "q", first, (rows, of.weight_shape[0]))

    def _first(self, layer: Layer) -> tuple[tuple[torch.Tensor, ...], float]:
        """The results of the first call, and its time from when all ranks are ready."""
        self._poison_result(layer.geometry)
        self._synchronize()
        self._met().meet()
        begin = time.perf_counter_ns()
        results = layer.call()
        self._synchronize()
        return results, float(time.perf_counter_ns() - begin)

    def _poison_result(self, geometry: Geometry) -> None:
        """Leaves NaN where the library is about to allocate its result; as `_poison` does."""
        of = geometry.projection
        rows = geometry.padded(of.shard_rows) * (of.ranks if of.gathers else 1)
        if self._gpu:
            shape = (rows, of.weight_shape[1])
            torch.full(shape, torch.nan, dtype=DTYPES[of.dtype], device=self._device)

    def _error(
        self, geometry: Geometry, seed: int, results: tuple[torch.Tensor, ...]
    ) -> dict[str, float]:
        """The larger error of the longest and the shortest length of a call."""
        found = []
        for result in {id(result): result for result in (results[0], results[-1])}.values():
            length = result.shape[-2]
            exact = self._exact(geometry, seed, geometry.counted_rows(length))
            found.append(difference(self._arrays, result, exact))
        return worst(*found)

    def _exact(self, geometry: Geometry, seed: int, spans: list[tuple[int, int]]) -> torch.Tensor:
        """These rows of the whole product, one after the other, in float64 on this device."""
        of, (inner, width) = geometry.projection, geometry.projection.weight_shape
        lengths = [last - first for first, last in spans]
        exact = self._arrays.zeros((sum(lengths), width))
        for rank in [self._rank] if of.gathers else range(of.ranks):
            weight = self._weight(of, seed, rank).double()
            block = 0 if of.gathers else rank * of.rows
            for part, (first, last) in zip(exact.split(lengths), spans, strict=True):
                shape = (last - first, inner)
                rows = self._block(of, seed, "q", (block + first) * inner, shape)
                part.addmm_(rows.double(), weight)
        return exact

    def _checked(self, layer: Layer, seed: int, results: tuple[torch.Tensor, ...]) -> Message:
        """The last timed call's results: some rows of each shard held to float64, and none of
        the others not finite. Where the lengths are drawn there are no probes."""
        found, geometry = [], layer.geometry
        for result in {id(result): result for result in (results[0], results[-1])}.values():
            length = result.shape[-2]
            shards = result.view(-1, length, result.shape[-1])
            spans, parts = [], []
            for shard, (first, _) in zip(shards, geometry.counted_rows(length), strict=True):
                for begin, end in some_rows(length):
                    spans.append((first + begin, first + end))
                    parts.append(shard[begin:end])
            exact = self._exact(geometry, seed, spans)
            found.append(difference(self._arrays, torch.cat(parts), exact))
            if not math.isfinite(float(result.sum(dtype=torch.float32))):
                found.append({"relative_l2": math.nan, "max_abs": math.nan})
        drawn = {} if layer.drawn else {"out": probes(results[0])}
        return {"seed": seed, "errors": {"out": worst(*found)}, "probes": drawn}

    def measure(self, request: Message) -> Message:
        """Samples that every rank takes at once, each by its own clock."""
        layer, agreement = self._held(), self._met()
        plan = AgreedPlan(**vars(timing.Plan.from_wire(request)), agreement=agreement)
        if plan.graph and layer.drawn:
            raise Unsupported(
                "a CUDA graph replays the lengths of its capture, and each call is to see new ones"
            )
        # A rank that hangs is found here by name: a collective cannot say who is missing.
        agreement.meet()
        if self._gpu is None and layer.queued:
            raise Unsupported("start=queued is of a GPU's queue, and there is no GPU")
        return self._on_device(lambda: self._measured_layer(layer, plan))

    def _measured_layer(self, layer: Layer, plan: AgreedPlan) -> Message:
        """Samples, and what the last of them computed."""
        if layer.sets == 1:
            return self._timed_layer(layer, plan, Inputs())
        sets = TorchInputSets(
            {"q": layer.activations, "k": layer.weight},
            layer.seed,
            layer.sets,
            self._filling(layer.geometry),
            layer.operator.refresh,
            layer.numbers,
            layer.place,
            # Made in place in each rank: what memory one has left over the others do not
            # know, and all must be on the same set.
            free_bytes=0,
        )
        try:
            measured = self._timed_layer(layer, plan, sets)
        finally:
            layer.place = sets.number
            sets.forget()
        seed = seed_of(layer.seed, sets.number)
        return measured | sets.told() | {"checked": self._checked(layer, seed, sets.kept.pop())}

    def _filling(self, geometry: Geometry) -> Fill:
        """Writes this rank's activations (`q`) or weight (`k`) of another seed."""
        of = geometry.projection
        firsts = {"q": geometry.activation_span[0], "k": self._rank * of.hidden * of.columns}

        def fill(tensor: torch.Tensor, name: str, seed: int) -> None:
            inputs.torch_fill(tensor, name, seed, firsts[name])

        return fill

    def _timed_layer(self, layer: Layer, plan: AgreedPlan, sets: Inputs) -> Message:
        gpu = self._gpu
        if gpu is None:
            size = device.cpu_flush_bytes() if plan.cold else 0
            flush = torch.ones(size, dtype=torch.uint8).bitwise_not_
            ready = self._met().meet
            return timing.measure_wall(
                layer.call, lambda results: None, plan, flush, before=ready, inputs=sets
            )
        for _ in range(plan.warmup):
            layer.call()
        call: Callable[[], Any] = layer.call
        graph = None
        if plan.graph:
            graph = timing.captured(layer.call)
            call, sets.held_bytes = graph.replay, graph.held_bytes
        if layer.queued:
            measured = self._queued(call, plan, sets)
        else:
            measured = timing.measure_events(call, plan, gpu, sets, before=self._meet_idle)
        if graph:
            sets.kept[:] = [graph.results]
            measured["graph"] = True
        return measured | {"state": gpu.state()}

    def _meet_idle(self) -> None:
        """So that the start event is that of an idle device, on all ranks at once."""
        torch.cuda.synchronize()
        self._met().meet()

    def _queued(self, call: Callable[[], Any], plan: AgreedPlan, sets: Inputs) -> Message:
        """Samples behind each rank's own gate.

        The ranks meet before the call and again when all have queued it, with their gates
        still closed: so these open together, and no rank's device waits in a
        collective for another's host.
        """
        gated = timing.gated_clock()
        if gated is None:
            raise Unsupported("start=queued is timed by regatta's GPU clock, which is not here")
        agreement, host_ns = self._met(), []

        def met() -> Any:
            agreement.meet()
            begin = time.perf_counter_ns()
            result = call()
            host_ns.append(float(time.perf_counter_ns() - begin))
            agreement.meet()
            return result

        return timing.measure_gated(met, plan, gated, sets) | {"host_ns": host_ns}

    def call(self) -> Any:
        """One call of the prepared case, which every rank must make."""
        return self._held().call()

    def agreed(self, own: bool) -> bool:
        """What rank 0 says: each rank's own clock may say another number of calls."""
        return self._met().decided(own)

    def census(self) -> Message:
        """Kernels, copies and allocations of one call that all ranks begin at once."""
        layer, agreement = self._held(), self._met()
        if self._gpu is None:
            return {"launches": [], "counts": {}}
        host_ns: list[int] = []

        def met() -> Any:
            agreement.meet()
            begin = time.perf_counter_ns()
            result = layer.call()
            host_ns.append(time.perf_counter_ns() - begin)
            return result

        found = self._on_device(lambda: census(met))
        if "activity" in found:
            # Of the call whose times were kept, the second; without the wait for the other ranks.
            found["activity"]["host_ns"] = host_ns[1]
        return found

    def recorded(self) -> list[Message]:
        """None: only a call that all ranks begin at once can be recorded."""
        return []

    def release(self) -> None:
        """Drops the case and gives its memory back to the device; the group stays."""
        self._layer = None
        gc.collect()
        if self._gpu:
            torch.cuda.empty_cache()

    def _lost(self) -> bool:
        """Never said: all ranks are ended over one that broke, and to ask the device might take
        for ever where it waits in a collective for the others."""
        return False

    def _held(self) -> Layer:
        if self._layer is None:
            raise Failed("no case is prepared")
        return self._layer


def _end_with_parent() -> None:
    """A rank that waits in a collective would not see that its requests have ended."""
    parent = os.getppid()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


RANK = Rank
