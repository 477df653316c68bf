"""One sequence-parallel projection, as the wire describes it (docs/PROTOCOL.md, "Projections")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from regatta_worker.problem.numbers import DTYPE_BYTES
from regatta_worker.problem.planes import DRAW, SHARE
from regatta_worker.protocol.channel import Failed, Unsupported

KINDS = ("all-gather", "reduce-scatter")

BLOCKS = 2 * SHARE
"""Blocks that the rows of a shard are drawn in."""


@dataclass(frozen=True)
class Projection:
    """The linear layer before attention (all-gather) or the one after it (reduce-scatter).

    Of each rank `r`, with activations in shards of rows:
    all-gather: `x[shard r] [shard_rows, hidden]`, `w_r [hidden, columns]` -> `x w_r`;
    reduce-scatter: `y_r [rows, columns]`, `w_r [columns, hidden]` -> `(sum_q y_q w_q)[shard r]`.
    """

    kind: str
    rows: int
    """Over all ranks: batch times sequence length."""
    hidden: int
    columns: int
    """The columns of one rank: heads times head dimension."""
    ranks: int
    dtype: str

    @staticmethod
    def from_wire(wire: Mapping[str, Any]) -> Projection:
        """The projection of a `prepare` request's problem; it has been validated by the harness."""
        if not wire.get("projection"):
            raise Unsupported("this library does projections, not attention")
        try:
            of = wire["projection"]
            projection = Projection(
                kind=of["kind"],
                rows=int(wire["batch"]) * int(wire["seq_q"]),
                hidden=int(of["hidden"]),
                columns=int(wire["heads"]) * int(wire["head_dim"]),
                ranks=int(of["ranks"]),
                dtype=wire["dtype"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise Failed(f"malformed projection: {type(error).__name__}: {error}") from error
        if projection.kind not in KINDS or projection.dtype not in DTYPE_BYTES:
            raise Failed(
                f"malformed projection: kind is one of {', '.join(KINDS)}, dtype one of "
                f"{', '.join(DTYPE_BYTES)}"
            )
        if projection.ranks < 1 or projection.rows % projection.ranks:
            raise Failed(
                f"malformed projection: {projection.ranks} ranks do not divide "
                f"{projection.rows} rows"
            )
        return projection

    @property
    def gathers(self) -> bool:
        return self.kind == "all-gather"

    @property
    def shard_rows(self) -> int:
        return self.rows // self.ranks

    @property
    def weight_shape(self) -> tuple[int, int]:
        """The shape of one rank's weight, `[in, out]`."""
        shape = (self.hidden, self.columns)
        return shape if self.gathers else shape[::-1]


def power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()


@dataclass(frozen=True)
class Geometry:
    """Which rows a rank holds and computes, where lengths change and may be padded.

    In a call of `length`, each rank's shard has `length` rows. The call gets `padded(length)` rows,
    and the first `length` rows of each shard's result count.
    """

    projection: Projection
    rank: int
    pad: bool

    def padded(self, length: int) -> int:
        """Rows of a shard that a call is made on."""
        return power_of_two(length) if self.pad else length

    @property
    def activation_span(self) -> tuple[int, int]:
        """First element in tensor q, and rows, of what this rank holds of the activations.

        Padding is more of the same random rows: what they hold changes no row that counts.
        """
        projection, rows = self.projection, self.padded(self.projection.shard_rows)
        if projection.gathers:
            return self.rank * projection.shard_rows * projection.hidden, rows
        return self.rank * projection.rows * projection.columns, rows * projection.ranks

    def counted_rows(self, length: int) -> list[tuple[int, int]]:
        """Rows `first .. last` of the whole product that a call's result holds, in its order."""
        if self.projection.gathers:
            starts = [rank * self.projection.shard_rows for rank in range(self.projection.ranks)]
        else:
            starts = [self.rank * self.padded(length)]
        return [(start, start + length) for start in starts]


class Rows(NamedTuple):
    """A block of a result's rows, which is computed by itself as a plane of attention is."""

    at: int
    """The start in the result."""
    first: int
    """The first row in the whole product, and one past the last."""
    last: int
    seed: int = 0
    """That of the inputs of the call."""

    def of_call(self, seed: int, along: float = 0.0) -> Rows:
        """The same rows of the call that has these inputs, which no rank rotates."""
        return self._replace(seed=seed)

    def cut(self, tensor: str, whole: Any) -> Any:
        """The rows of a result, whose rows lie one after the other."""
        return whole[self.at : self.at + self.last - self.first]


def drawn_rows(spans: list[tuple[int, int]], wanted: int | None = None) -> tuple[Rows, ...]:
    """So many blocks at random of a result that holds these rows of the whole product, by default
    one in `SHARE`."""
    blocks, at = list[Rows](), 0
    for first, last in spans:
        size = -(-(last - first) // BLOCKS)
        for begin in range(first, last, size):
            blocks.append(Rows(at + begin - first, begin, min(begin + size, last)))
        at += last - first
    return tuple(DRAW.sample(blocks, wanted or max(min(2, len(blocks)), len(blocks) // SHARE)))
