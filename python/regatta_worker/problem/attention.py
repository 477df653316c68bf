"""One attention computation, as the wire describes it (docs/PROTOCOL.md, "The problem")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from regatta_worker.problem.numbers import DIRECTIONS, DTYPE_BYTES
from regatta_worker.protocol.channel import Failed, Unsupported

LAYOUTS = ("bshd", "bhsd")
GRADIENTS = ("dq", "dk", "dv")


class Sequence(NamedTuple):
    """One sequence of a batch: where its rows start when all are packed, and how many."""

    q_start: int
    k_start: int
    seq_q: int
    seq_k: int


@dataclass(frozen=True)
class Mask:
    """A band of visible keys: `i + offset - left <= j <= i + offset + right`; None is unbounded."""

    left: int | None
    right: int | None
    align: str

    def offset(self, seq_q: int, seq_k: int) -> int:
        """The distance of query 0's own position from key 0."""
        return seq_k - seq_q if self.align == "bottom-right" else 0

    def visible(self, i: Any, j: Any, offset: int) -> Any:
        """True if query `i` sees key `j`; on integers or on arrays of them, which broadcast."""
        sees = j == j
        if self.left is not None:
            sees = sees & (j >= i + offset - self.left)
        if self.right is not None:
            sees = sees & (j <= i + offset + self.right)
        return sees

    @property
    def is_full(self) -> bool:
        """Every query sees every key, whatever the lengths."""
        return self.left is None and self.right is None

    @property
    def is_causal(self) -> bool:
        """Every query sees its own position and all before it."""
        return self.left is None and self.right == 0


@dataclass(frozen=True)
class Problem:
    """`softmax(mask(q k^T / sqrt(head_dim))) v`, or its gradient, with every axis spelled out."""

    batch: int
    heads: int
    kv_heads: int
    seq_q: int
    seq_k: int
    head_dim: int
    head_dim_v: int
    dtype: str
    mask: Mask
    layout: str
    direction: str
    varlen: tuple[tuple[int, ...], tuple[int, ...]] | None

    @staticmethod
    def from_wire(wire: Mapping[str, Any]) -> Problem:
        """The problem of a `prepare` request; fields it does not know are ignored."""
        try:
            mask = Mask(wire["mask"]["left"], wire["mask"]["right"], wire["mask"]["align"])
            ragged = wire.get("varlen")
            axes = ("batch", "heads", "kv_heads", "seq_q", "seq_k", "head_dim", "head_dim_v")
            problem = Problem(
                **{axis: int(wire[axis]) for axis in axes},
                dtype=wire["dtype"],
                mask=mask,
                layout=wire["layout"],
                direction=wire["direction"],
                varlen=(tuple(ragged["q"]), tuple(ragged["k"])) if ragged else None,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise Failed(f"malformed problem: {type(error).__name__}: {error}") from error
        for field, known in (
            ("dtype", tuple(DTYPE_BYTES)),
            ("layout", LAYOUTS),
            ("direction", DIRECTIONS),
        ):
            if getattr(problem, field) not in known:
                raise Failed(f"malformed problem: {field} is not one of {', '.join(known)}")
        return problem

    @property
    def has_forward(self) -> bool:
        """The timed call yields `out`."""
        return self.direction != "backward"

    @property
    def has_backward(self) -> bool:
        """The timed call yields `dq`, `dk`, `dv`."""
        return self.direction != "forward"

    @property
    def results(self) -> tuple[str, ...]:
        """Names of what the timed call yields, in the order the variants return them."""
        out = ("out",) if self.has_forward else ()
        return out + (GRADIENTS if self.has_backward else ())

    @property
    def scale(self) -> float:
        """The scale of the scores: `1 / sqrt(head_dim)`."""
        return float(self.head_dim**-0.5)

    @property
    def is_square(self) -> bool:
        """Both alignments of a mask mean the same."""
        return self.varlen[0] == self.varlen[1] if self.varlen else self.seq_q == self.seq_k

    @property
    def sequences(self) -> list[Sequence]:
        """Every sequence with its place among the packed rows."""
        ragged = self.varlen or ((self.seq_q,) * self.batch, (self.seq_k,) * self.batch)
        found, q_start, k_start = [], 0, 0
        for seq_q, seq_k in zip(*ragged, strict=True):
            found.append(Sequence(q_start, k_start, seq_q, seq_k))
            q_start, k_start = q_start + seq_q, k_start + seq_k
        return found

    @property
    def has_blind_query(self) -> bool:
        """Some query sees no key at all (its output is 0 and it gives no gradient)."""
        for _, _, seq_q, seq_k in self.sequences:
            offset = self.mask.offset(seq_q, seq_k)
            last_before = self.mask.right is not None and offset + self.mask.right < 0
            first_after = (
                self.mask.left is not None and seq_q - 1 + offset - self.mask.left > seq_k - 1
            )
            if last_before or first_after:
                return True
        return False

    def shape(self, tensor: str) -> tuple[int, ...]:
        """Logical shape of `q`, `k`, `v`, `out`, a gradient, ...: packed when ragged."""
        of_queries = tensor in ("q", "dq", "out", "dout")
        heads = self.heads if of_queries else self.kv_heads
        width = self.head_dim if tensor in ("q", "dq", "k", "dk") else self.head_dim_v
        if self.varlen:
            return (sum(self.varlen[0 if of_queries else 1]), heads, width)
        return (self.batch, self.seq_q if of_queries else self.seq_k, heads, width)

    def laid_out(self, tensor: str) -> tuple[int, ...]:
        """Shape of a tensor as a caller holds it, in the order of the layout."""
        shape = self.shape(tensor)
        # Never of a packed batch.
        return (shape[0], shape[2], shape[1], shape[3]) if self.layout == "bhsd" else shape

    def turned(self, tensor: Any) -> Any:
        """A view of a tensor in logical order from one in the layout's, and back."""
        return tensor.swapaxes(1, 2) if self.layout == "bhsd" else tensor

    def window(self, library: str) -> tuple[int, int]:
        """Keys seen before and after the diagonal that ends at the bottom right; -1 is unbounded.

        Raises Unsupported where the mask's diagonal ends at the other corner, which differs.
        """
        mask = self.mask
        if not (mask.is_full or mask.align == "bottom-right" or self.is_square):
            raise Unsupported(
                f"{library} aligns its masks at the bottom right; one aligned at the top left is "
                f"the same only where seq_q is seq_k"
            )
        left, right = (-1 if side is None else side for side in (mask.left, mask.right))
        return left, right
