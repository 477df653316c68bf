"""One rank of library `sequence_parallel`: its GPU, its shard, its weight, its clock."""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import functools
import itertools
import os
import signal
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from regatta_worker.case import Request
from regatta_worker.clock import timing
from regatta_worker.on_torch.case import DTYPES
from regatta_worker.on_torch.inputs import TorchInputSets
from regatta_worker.on_torch.library import OnTorch, measure_on_cpu
from regatta_worker.problem import inputs
from regatta_worker.problem.input_sets import DrawnCall, Inputs, Lengths, fresh
from regatta_worker.problem.projection import Geometry, Projection, Rows, drawn_rows
from regatta_worker.problem.reference import Make, difference, worst
from regatta_worker.problem.variant import Variant
from regatta_worker.protocol.channel import Failed, Message, Unsupported, required
from regatta_worker.protocol.refusals import refusal
from regatta_worker.ranks.processes import Agreement
from regatta_worker.ranks.sequence_parallel_variants import Layer, operator, variants

PR_SET_PDEATHSIG = 1
"""prctl.h"""


class Rank(OnTorch[Layer]):
    """Answers for its own part; the process that started it makes one answer of all."""

    NAME = "sequence_parallel"

    def __init__(self, rank: int) -> None:
        _end_with_parent()
        super().__init__(rank, packages=("xformers",))
        self._rank = rank
        self._agreement: Agreement | None = None
        if self.gpu:
            torch.cuda.set_device(self.device)

    def variants(self) -> dict[str, Variant]:
        return variants(self.gpu is not None)

    def hello(self) -> Message:
        return super().hello() | {"gpus": torch.cuda.device_count() if self.gpu else 0}

    def versions(self) -> dict[str, str]:
        found = super().versions()
        if self.gpu:
            found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
            found["clock"] = f"events once all ranks are idle; queued: {found['clock']}"
        return found

    def problem(self, wire: Mapping[str, Any]) -> Projection:
        return Projection.from_wire(wire)

    def build(self, request: Request) -> tuple[Layer, Any, Message]:
        """This rank's part, and the first call, which all ranks make together."""
        of: Any = request.problem
        params = {"lengths": 1, "pad": "none", "start": "idle", **request.params}
        group = required(request.wire, "group")
        self._join(group)
        geometry, drawn = Geometry(of, self._rank, params["pad"] == "pow2"), None
        if "lengths" in request.params:
            drawn = Lengths(of.shard_rows, params["lengths"], "shard of rows")
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                weight = self._weight(of, request.seed, self._rank)
                first, rows = geometry.activation_span
                shape = (rows, of.weight_shape[0])
                layer = Layer(
                    problem=of,
                    geometry=geometry,
                    activations=self._block(of, request.seed, "q", first, shape),
                    weight=weight,
                    operator=operator(request.variant, of, weight),
                    drawn=drawn,
                    queued=params["start"] == "queued",
                    numbers=fresh(group.get("first_set")),
                    **request.inputs,
                )
                results, first_call_ns = self._first(layer)
            except (torch.OutOfMemoryError, dist.DistError):
                raise
            except RuntimeError as error:
                # Gloo's error about a lost peer is not a refusal either.
                if "gloo" in str(error).lower():
                    raise
                raise refusal(error, [str(warning.message) for warning in warned]) from error
        about: Message = {"effective": params, "first_call_ns": first_call_ns}
        problems = params["lengths"]
        return layer, results, about | ({"problems": problems} if problems > 1 else {})

    def _join(self, group: Message) -> None:
        """Forms the group with the other ranks, once in the life of this process."""
        if self._agreement:
            return
        folder, ranks = Path(group["folder"]), int(group["ranks"])
        # All ranks are on this machine, which may have no other interface.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        dist.init_process_group(
            "nccl" if self.gpu else "gloo",
            init_method=f"file://{folder / 'store'}",
            rank=self._rank,
            world_size=ranks,
            timeout=datetime.timedelta(seconds=group["collective_limit_s"]),
            device_id=self.device if self.gpu else None,
        )
        limit_s = group["meeting_limit_s"]
        self._agreement = Agreement(folder / "agreement", self._rank, ranks, limit_s)

    def _together(self) -> Agreement:
        if self._agreement is None:
            raise Failed("no case is prepared")
        return self._agreement

    def _block(
        self, of: Projection, seed: int, tensor: str, first: int, shape: tuple[int, int]
    ) -> torch.Tensor:
        made: torch.Tensor = inputs.block(self.arrays, seed, tensor, first, shape, DTYPES[of.dtype])
        return made

    def _weight(self, of: Projection, seed: int, rank: int) -> torch.Tensor:
        return self._block(of, seed, "k", rank * of.hidden * of.columns, of.weight_shape)

    def _first(self, layer: Layer) -> tuple[tuple[torch.Tensor, ...], float]:
        """The results of the first call, and its time from when all ranks are ready."""
        geometry, of = layer.geometry, layer.problem
        rows = geometry.padded(of.shard_rows) * (of.ranks if of.gathers else 1)
        self.poison([(rows, of.weight_shape[1])], DTYPES[of.dtype])
        self.wait()
        self._together().meet()
        begin = time.perf_counter_ns()
        results = layer.call()
        self.wait()
        return results, float(time.perf_counter_ns() - begin)

    def named(self, case: Layer, results: Any) -> dict[str, torch.Tensor]:
        """The rows of all lengths, one after the other."""
        rows = [result.reshape(-1, result.shape[-1]) for result in results]
        return {"out": rows[0] if len(rows) == 1 else torch.cat(rows)}

    def _spans(self, case: Layer, results: Any) -> list[tuple[int, int]]:
        """Rows `first .. last` of the whole product that `named` has."""
        lengths = (result.shape[-2] for result in results)
        return [span for length in lengths for span in case.geometry.counted_rows(length)]

    def check(self, case: Layer, results: Any) -> Message:
        """The largest error of all lengths; of the longest the probes."""
        found = []
        for result in results:
            rows = case.geometry.counted_rows(result.shape[-2])
            exact = self._exact(case.geometry, case.seed, rows)
            found.append(difference(self.arrays, (result, exact)))
        return {"errors": {"out": worst(*found)}} | self.probes(case, {"out": results[0]})

    def _exact(self, geometry: Geometry, seed: int, spans: list[tuple[int, int]]) -> torch.Tensor:
        """These rows of the whole product, one after the other, in float64 on this device."""
        of, (inner, width) = geometry.projection, geometry.projection.weight_shape
        lengths = [last - first for first, last in spans]
        exact: torch.Tensor = self.arrays.zeros((sum(lengths), width))
        for rank in [self._rank] if of.gathers else range(of.ranks):
            weight = self._weight(of, seed, rank).double()
            block = 0 if of.gathers else rank * of.rows
            for part, (first, last) in zip(exact.split(lengths), spans, strict=True):
                rows = self._block(of, seed, "q", (block + first) * inner, (last - first, inner))
                part.addmm_(rows.double(), weight)
        return exact

    def drawn(self, case: Layer, results: Any, wanted: int | None = None) -> tuple[Rows, ...]:
        """Blocks of this rank's rows, of which no other rank needs to know."""
        return drawn_rows(self._spans(case, results), wanted)

    def exact(
        self, case: Layer, parts: tuple[Rows, ...], make: Make
    ) -> dict[Rows, dict[str, torch.Tensor]]:
        exact = dict[Rows, dict[str, torch.Tensor]]()
        for seed, of_call in itertools.groupby(parts, lambda rows: rows.seed):
            some = list(of_call)
            values = self._exact(case.geometry, seed, [(rows.first, rows.last) for rows in some])
            values = values.split([rows.last - rows.first for rows in some])
            exact |= {rows: {"out": value} for rows, value in zip(some, values, strict=True)}
        return exact

    def check_calls(
        self, case: Layer, seed: int, results: Any, drawn: Sequence[DrawnCall]
    ) -> Message:
        """Drawn lengths leave no place to spot-check."""
        checked = super().check_calls(case, seed, results, drawn)
        return checked | ({"probes": {}} if case.drawn else {})

    def plan(self, request: Message) -> timing.Plan:
        layer, agreement = self.prepared(), self._together()
        # By the clock of rank 0: a call is made by all ranks or by none.
        plan = replace(super().plan(request), agreed=agreement.decided, pause_every=0)
        if plan.graph and layer.drawn:
            raise Unsupported(
                "a CUDA graph replays the lengths of its capture, and each call is to see new ones"
            )
        # A rank that hangs is found here by name: a collective cannot say who is missing.
        agreement.meet()
        if self.gpu is None and layer.queued:
            raise Unsupported("start=queued is of a GPU's queue, and no GPU is used")
        return plan

    def input_sets(self, case: Layer) -> TorchInputSets:
        """Made in place in each rank: what memory one has left over the others do not know, and
        all must be on the same set."""
        of = case.problem
        firsts = {"q": case.geometry.activation_span[0], "k": self._rank * of.hidden * of.columns}

        def fill(tensor: torch.Tensor, name: str, seed: int) -> None:
            inputs.fill(self.arrays, tensor, name, seed, firsts[name])

        tensors = {"q": case.activations, "k": case.weight}
        return TorchInputSets(tensors, case, fill, case.operator.refresh, free_bytes=0)

    def timed(self, case: Layer, plan: timing.Plan, sets: Inputs) -> Message:
        """Samples by events once all ranks are idle; or each on its own blocked stream."""
        gpu = self.gpu
        if gpu is None:
            return measure_on_cpu(case.call, plan, sets, before=self._together().meet)

        def meet_idle() -> None:
            # So that the start event is that of an idle device, on all ranks at once.
            torch.cuda.synchronize()
            self._together().meet()

        def take(call: Callable[[], Any]) -> Message:
            if case.queued:
                return self._queued(call, plan, sets)
            return timing.measure_events(call, plan, gpu, sets, before=meet_idle)

        return timing.measure_cuda(case.call, plan, gpu, sets, take)

    def _met(
        self, call: Callable[[], Any], host_ns: list[float], again: bool = False
    ) -> Callable[[], Any]:
        """The call once all ranks are there, its time without the wait for them, and with `again`
        the wait until all have made it."""
        agreement = self._together()

        def met() -> Any:
            agreement.meet()
            begin = time.perf_counter_ns()
            result = call()
            host_ns.append(float(time.perf_counter_ns() - begin))
            if again:
                agreement.meet()
            return result

        return met

    def _queued(self, call: Callable[[], Any], plan: timing.Plan, sets: Inputs) -> Message:
        """Samples on each rank's own blocked stream.

        The ranks meet before the call and again when all have queued it, with their streams
        still blocked: so these continue together, and no rank's device waits in a
        collective for another's host.
        """
        blocked = timing.stream_clock()
        if blocked is None:
            raise Unsupported("start=queued is timed by regatta's GPU clock, which is not here")
        host_ns: list[float] = []
        met = self._met(call, host_ns, again=True)
        sample = functools.partial(blocked.sample, plan.cold, met)
        return timing.take_samples(plan, sets, sample, on_torch=True) | {"host_ns": host_ns}

    def agreed(self, own: bool) -> bool:
        """The answer of rank 0: each rank's own clock may say another number of calls."""
        return self._together().decided(own)

    def census(self) -> Message:
        """Kernels, copies and allocations of one call that all ranks begin at once."""
        case, host_ns = self.prepared(), list[float]()
        met = self._met(case.call, host_ns)
        profiled = self.guarded(lambda: self.profile(met, self.launches(met)))
        if "activity" in profiled:
            # The second call's, whose times were kept; without the wait for the other ranks.
            profiled["activity"]["host_ns"] = round(host_ns[1])
        return profiled

    def recorded(self) -> list[Message]:
        """None: only a call that all ranks begin at once can be recorded."""
        return []

    def release(self) -> None:
        """Drops the case and gives its memory back to the device; the group stays."""
        super().release()
        if self.gpu:
            torch.cuda.empty_cache()

    def lost(self) -> bool:
        """Never said: all ranks are ended over one that broke, and to ask the device might take
        for ever where it waits in a collective for the others."""
        return False


def _end_with_parent() -> None:
    """A rank that waits in a collective would not see that its requests have ended."""
    parent = os.getppid()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


RANK = Rank
