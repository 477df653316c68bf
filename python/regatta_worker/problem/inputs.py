"""The inputs: element `index` of a tensor is a pure function of seed, tensor and index.

SplitMix64 (Steele, Lea, Flood, OOPSLA 2014), so that every worker makes the same numbers;
docs/PROTOCOL.md, "The inputs", has the formula and test vectors. One formula in signed 64-bit
integers, which NumPy, torch and XLA let wrap around. Made in chunks, because each element passes
through a few 64-bit temporaries.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from regatta_worker.problem.arrays import Arrays, Shape
from regatta_worker.problem.attention import Problem
from regatta_worker.problem.planes import Planes

TENSORS = {"q": 0, "k": 1, "v": 2, "dout": 3}
CHUNK = 1 << 22
"""Elements made at a time: 32 MiB for each 64-bit temporary."""


def _signed(value: int) -> int:
    """The int64 with the lowest 64 bits of this value: torch has no unsigned arithmetic."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


GOLDEN = _signed(0x9E3779B97F4A7C15)
MIX = ((30, _signed(0xBF58476D1CE4E5B9)), (27, _signed(0x94D049BB133111EB)))


def names(problem: Problem) -> tuple[str, ...]:
    return tuple(TENSORS) if problem.has_backward else ("q", "k", "v")


def start(seed: int, tensor: str) -> int:
    """The start to which the products of a tensor's indices are added."""
    return _signed(seed + ((TENSORS[tensor] << 40) + 1) * GOLDEN)


def random_bits(index: Any, begin: Any) -> Any:
    """53 bits for each int64 index of the tensor that `begin` is the `start` of."""
    z = index * GOLDEN + begin
    for shift, factor in MIX:
        z = (z ^ _shifted(z, shift)) * factor
    return _shifted(z ^ _shifted(z, 31), 11)


def _shifted(z: Any, bits: int) -> Any:
    """`z >> bits` without the sign: what the arithmetic shift copied in is masked out."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def uniform(bits: Any) -> Any:
    """Values of mean 0 and variance 1, of bits in float64."""
    return (2.0 * (bits / float(1 << 53)) - 1.0) * math.sqrt(3.0)


def elements(arrays: Arrays, seed: int, tensor: str, index: Any) -> Any:
    """The elements at these places in float64, not yet rounded."""
    return uniform(arrays.float64(random_bits(index, start(seed, tensor))))


def fill(arrays: Arrays, out: Any, tensor: str, seed: int, first: int = 0) -> None:
    """Writes elements from `first` on into memory that is there, however it lies: rounded to
    float32, and from there to its type."""
    of_one = math.prod(out.shape[1:])
    if of_one > CHUNK and out.ndim > 1:
        for number in range(len(out)):
            fill(arrays, out[number], tensor, seed, first + number * of_one)
        return
    at_once = max(1, CHUNK // max(1, of_one))
    for at in range(0, len(out), at_once):
        some = out[at : at + at_once]
        begin = first + at * of_one
        index = arrays.positions(begin, begin + math.prod(some.shape))
        made = _rounded(arrays, elements(arrays, seed, tensor, index), some.dtype)
        some[...] = made.reshape(some.shape)


def _rounded(arrays: Arrays, values: Any, dtype: Any) -> Any:
    return arrays.cast(arrays.cast(values, arrays.xp.float32), dtype)


def block(arrays: Arrays, seed: int, tensor: str, first: int, shape: Shape, dtype: Any) -> Any:
    out = arrays.empty(shape, dtype)
    fill(arrays, out, tensor, seed, first)
    return out


def whole(arrays: Arrays, problem: Problem, tensor: str, seed: int, dtype: Any) -> Any:
    """A tensor, logical in shape; where the layout is `bhsd` it lies so in memory."""
    out = arrays.empty(problem.laid_out(tensor), dtype)
    fill(arrays, problem.turned(out), tensor, seed)
    return problem.turned(out)


@dataclass(frozen=True)
class MemoryOrder:
    """The order in which the elements of a tensor lie in memory."""

    shape: tuple[int, ...]
    axes: tuple[int, ...]
    """Outermost first; none where other elements lie between them."""

    def before(self, index: Any, further: Any) -> Any:
        """The elements that a rotation of the memory by `further` elements moved to `index`, or
        `index` itself if other elements lie between those of the tensor."""
        if not self.axes:
            return index
        natural = tuple(range(len(self.shape)))
        place = (self._numbered(index, natural, self.axes) - further) % math.prod(self.shape)
        return self._numbered(place, self.axes, natural)

    def _numbered(self, number: Any, order: tuple[int, ...], other: tuple[int, ...]) -> Any:
        """Numbers of elements, counted with the axes in one order, as they are in the other."""
        if order == other:
            return number
        coordinates, found = {}, 0
        for axis in reversed(order):
            coordinates[axis] = number % self.shape[axis]
            number = number // self.shape[axis]
        for axis in other:
            found = found * self.shape[axis] + coordinates[axis]
        return found


def part(
    arrays: Arrays,
    problem: Problem,
    tensor: str,
    planes: Planes,
    dtype: Any,
    order: MemoryOrder | None = None,
) -> Any:
    """Alike planes' parts of a tensor, `[1, rows, heads, width]`, each of the inputs of its call:
    the heads of one after those of the other. The other elements are not made. `order` is that of
    tensors that are rotated."""
    heads, width = problem.shape(tensor)[-2:]
    rows, own = len(planes[0].rows(tensor)), len(planes[0].heads(tensor)) * width
    size = math.prod(problem.shape(tensor))
    table = [
        (
            (plane.rows(tensor).start * heads + plane.heads(tensor).start) * width,
            start(plane.seed, tensor),
            int(size * plane.along),
        )
        for plane in planes
    ]
    firsts, begins, further = arrays.integers([list(row) for row in zip(*table, strict=True)])
    out = arrays.empty((rows, len(planes), own), dtype)
    at_once = max(1, CHUNK // (len(planes) * own))
    for first in range(0, rows, at_once):
        some = arrays.positions(first, min(first + at_once, rows))[:, None, None]
        index = some * (heads * width) + firsts[:, None] + arrays.positions(0, own)
        if order and any(plane.along for plane in planes):
            index = order.before(index, further[:, None])
        values = uniform(arrays.float64(random_bits(index, begins[:, None])))
        out[first : first + at_once] = _rounded(arrays, values, dtype)
    return out.reshape(1, rows, -1, width)
