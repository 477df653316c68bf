"""A projection that is prepared on this rank, and what one call of it computes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from regatta_worker.problem.input_sets import fresh
from regatta_worker.problem.lengths import Lengths
from regatta_worker.problem.projection import Geometry
from regatta_worker.ranks.sequence_parallel_variants import Operator


@dataclass
class Layer:
    """A prepared projection on this rank."""

    geometry: Geometry
    seed: int
    sets: int
    """Of inputs, that samples are to be taken on."""
    activations: torch.Tensor
    weight: torch.Tensor
    operator: Operator
    drawn: Lengths | None
    queued: bool
    """Timed as in a full queue, and not from an idle device."""
    place: int = 0
    """Number of the set of inputs that is in place."""
    numbers: Iterator[int] = field(default_factory=fresh)
    """Sets that no sample has been taken on."""

    def call(self) -> tuple[torch.Tensor, ...]:
        """The shard as it is, or the lengths of this call, longest first."""
        whole = self.geometry.projection.shard_rows
        return tuple(map(self._of, self.drawn.draw() if self.drawn else [whole]))

    def _of(self, length: int) -> torch.Tensor:
        """The rows that count: `[ranks, length, columns]` or `[length, hidden]`."""
        of, rows = self.geometry.projection, self.geometry.padded(length)
        if of.gathers:
            gathered = self.operator.run(self.activations[:rows])
            return gathered.view(of.ranks, rows, of.columns)[:, :length]
        return self.operator.run(self.activations[: rows * of.ranks])[:length]
