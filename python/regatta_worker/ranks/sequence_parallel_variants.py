"""The projections' implementations, collective and product apart or fused; and what one call of
a prepared projection computes."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from regatta_worker.case import Case
from regatta_worker.on_torch.case import DTYPES
from regatta_worker.problem.input_sets import Lengths
from regatta_worker.problem.projection import KINDS, Geometry, Projection
from regatta_worker.problem.variant import Variant
from regatta_worker.protocol.channel import Unsupported

PARAMETERS = {"lengths": "integer", "pad": ("none", "pow2"), "start": ("idle", "queued")}

SUMMARIES = {
    "nccl": "NCCL's collective, then or before it one matrix product",
    "symm-mem": "torch's fused operators over symmetric memory",
    "xformers": "xFormers' fused operators",
    "gloo": "collective and product apart on the CPU, for machines without a GPU",
}


@dataclass(frozen=True)
class Operator:
    run: Callable[[torch.Tensor], torch.Tensor]
    """Called with this rank's activations, `[rows of its shard, hidden]` or `[rows, columns]`."""
    refresh: Callable[[], None] | None = None
    """Called after the weight's contents were replaced in place."""


def variants(gpu: bool) -> dict[str, Variant]:
    """All variants, whether or not they run on this machine."""
    return {
        name: Variant(
            summary,
            dtypes=tuple(DTYPES) if name in ("nccl", "gloo") else ("f16", "bf16"),
            directions=("forward",),
            parameters=PARAMETERS,
            tf32=gpu and torch.backends.cuda.matmul.allow_tf32,
            projections=KINDS,
        )
        for name, summary in SUMMARIES.items()
    }


def operator(name: str, of: Projection, weight: torch.Tensor) -> Operator:
    """The variant on this rank, whose weight is `[in, out]`; the group has been formed."""
    return {"symm-mem": _symmetric, "xformers": _xformers}.get(name, _apart)(of, weight)


def _apart(of: Projection, weight: torch.Tensor) -> Operator:
    """Collective and product one after the other, as torch.distributed has them."""

    def gathered(x: torch.Tensor) -> torch.Tensor:
        whole = x.new_empty((of.ranks * x.shape[0], x.shape[1]))
        dist.all_gather_into_tensor(whole, x)
        return whole @ weight

    def scattered(y: torch.Tensor) -> torch.Tensor:
        part = y @ weight
        shard = part.new_empty((part.shape[0] // of.ranks, part.shape[1]))
        dist.reduce_scatter_tensor(shard, part)
        return shard

    return Operator(gathered if of.gathers else scattered)


def _symmetric(of: Projection, weight: torch.Tensor) -> Operator:
    from torch.distributed import _symmetric_memory

    if of.ranks < 2:
        raise Unsupported("a fused operator overlaps what several ranks exchange; ranks is 1")
    group = dist.group.WORLD.group_name
    # Before 2.11 it has to be asked for; later it does nothing.
    _symmetric_memory.enable_symm_mem_for_group(group)
    operators = torch.ops.symm_mem
    if of.gathers:
        return Operator(lambda x: operators.fused_all_gather_matmul(x, [weight], 0, group)[1][0])
    return Operator(lambda y: operators.fused_matmul_reduce_scatter(y, weight, "sum", 0, group))


def _xformers(of: Projection, weight: torch.Tensor) -> Operator:
    try:
        operators: Any = importlib.import_module("xformers.ops")
        fused = (
            operators.fused_allgather_and_linear
            if of.gathers
            else operators.fused_linear_and_reducescatter
        )
    except (ImportError, AttributeError) as error:
        raise Unsupported(f"xFormers' fused operators are not here: {error}") from error
    # Theirs is [out, in], as torch.nn.Linear keeps it.
    linear, group = weight.t().contiguous(), dist.group.WORLD

    def refresh() -> None:
        linear.copy_(weight.t())

    return Operator(lambda activations: fused(activations, linear, group=group), refresh)


@dataclass(kw_only=True)
class Layer(Case):
    """A prepared projection on this rank."""

    problem: Projection
    geometry: Geometry
    activations: torch.Tensor
    weight: torch.Tensor
    operator: Operator
    drawn: Lengths | None
    queued: bool
    """Timed as in a full queue, and not from an idle device."""

    def call(self) -> tuple[torch.Tensor, ...]:
        whole = self.problem.shard_rows
        return tuple(map(self._run_length, self.drawn.draw() if self.drawn else [whole]))

    def _run_length(self, length: int) -> torch.Tensor:
        """The rows that count: `[ranks, length, columns]` or `[length, hidden]`."""
        of, rows = self.problem, self.geometry.padded(length)
        if of.gathers:
            gathered = self.operator.run(self.activations[:rows])
            return gathered.view(of.ranks, rows, of.columns)[:, :length]
        return self.operator.run(self.activations[: rows * of.ranks])[:length]
