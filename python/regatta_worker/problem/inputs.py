"""The inputs: element `index` of a tensor is a pure function of seed, tensor and index.

SplitMix64 (Steele, Lea, Flood, OOPSLA 2014), so that every worker makes the same
numbers; docs/PROTOCOL.md, "The inputs", has the formula and test vectors. Made in
chunks, because each element passes through a few 64-bit temporaries.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from regatta_worker.problem.attention import Problem
from regatta_worker.problem.planes import Plane

if TYPE_CHECKING:
    import numpy as np
    import torch

TENSORS = {"q": 0, "k": 1, "v": 2, "dout": 3}
GOLDEN = 0x9E3779B97F4A7C15
MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
CHUNK = 1 << 22
"""Elements made at a time: 32 MiB for each 64-bit temporary."""


def numpy_elements(seed: int, tensor: str, first: int, count: int) -> np.ndarray:
    """Elements `first .. first + count` in float64, not yet rounded."""
    import numpy as np

    return _numpy_values(seed, tensor, np.arange(first, first + count, dtype=np.uint64))


def _numpy_values(seed: int, tensor: str, index: np.ndarray) -> np.ndarray:
    """The elements at these places, in float64."""
    import numpy as np

    z = (index + np.uint64((TENSORS[tensor] << 40) + 1)) * np.uint64(GOLDEN)
    z += np.uint64(seed)
    for shift, factor in MIX:
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    z ^= z >> np.uint64(31)
    unit = (z >> np.uint64(11)).astype(np.float64) / float(1 << 53)
    return (2.0 * unit - 1.0) * math.sqrt(3.0)


def numpy_input(problem: Problem, tensor: str, seed: int, dtype: Any) -> np.ndarray:
    """A whole tensor in logical order, rounded to float32 and from there to `dtype`."""
    import numpy as np

    shape = problem.shape(tensor)
    flat = np.empty(math.prod(shape), dtype=dtype)
    for first in range(0, flat.size, CHUNK):
        chunk = flat[first : first + CHUNK]
        chunk[:] = numpy_elements(seed, tensor, first, chunk.size).astype(np.float32).astype(dtype)
    return flat.reshape(shape)


def numpy_part(problem: Problem, tensor: str, seed: int, plane: Plane, dtype: Any) -> np.ndarray:
    """A plane's part of a tensor, `[1, rows, heads, width]`, the other elements not made."""
    import numpy as np

    rows, stride, inner = _places(problem, tensor, plane)
    part = np.empty((len(rows), len(inner)), dtype=dtype)
    columns = np.arange(inner.start, inner.stop, dtype=np.uint64)
    at_once = max(1, CHUNK // len(inner))
    for first in range(0, len(rows), at_once):
        some = rows[first : first + at_once]
        index = np.arange(some.start, some.stop, dtype=np.uint64)[:, None] * np.uint64(stride)
        made = _numpy_values(seed, tensor, index + columns)
        part[first : first + at_once] = made.astype(np.float32).astype(dtype)
    return part.reshape(1, len(rows), len(plane.heads(tensor)), -1)


def _places(problem: Problem, tensor: str, plane: Plane) -> tuple[range, int, range]:
    """Of a plane: its rows, elements from one row of a tensor to the next, and its own in one."""
    heads, width = problem.shape(tensor)[-2:]
    own = plane.heads(tensor)
    return plane.rows(tensor), heads * width, range(own.start * width, own.stop * width)


def _signed(value: int) -> int:
    """The int64 with the bits of this unsigned value: torch has no 64-bit unsigned arithmetic."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def _shifted(z: torch.Tensor, bits: int) -> torch.Tensor:
    """`z >> bits` without the sign: what the arithmetic shift copied in is masked out."""
    return (z >> bits).bitwise_and_((1 << (64 - bits)) - 1)


def torch_elements(seed: int, tensor: str, first: int, count: int, device: Any) -> torch.Tensor:
    """The same elements made on `device`, in float64; int64 products wrap around."""
    import torch

    return _torch_values(seed, tensor, torch.arange(first, first + count, device=device))


def _torch_values(seed: int, tensor: str, index: torch.Tensor) -> torch.Tensor:
    """The elements at these places, in float64; the places are overwritten."""
    import torch

    z = index.add_((TENSORS[tensor] << 40) + 1).mul_(_signed(GOLDEN)).add_(_signed(seed))
    for shift, factor in MIX:
        z.bitwise_xor_(_shifted(z, shift)).mul_(_signed(factor))
    z.bitwise_xor_(_shifted(z, 31))
    unit = _shifted(z, 11).to(torch.float64).div_(float(1 << 53))
    return unit.mul_(2.0).sub_(1.0).mul_(math.sqrt(3.0))


def torch_block(
    seed: int, tensor: str, first: int, shape: tuple[int, ...], dtype: torch.dtype, device: Any
) -> torch.Tensor:
    """Elements from `first` on, in this shape, rounded to float32 and from there to `dtype`."""
    import torch

    flat = torch.empty(math.prod(shape), dtype=dtype, device=device)
    for at in range(0, flat.numel(), CHUNK):
        chunk = flat[at : at + CHUNK]
        made = torch_elements(seed, tensor, first + at, chunk.numel(), device)
        chunk.copy_(made.to(torch.float32))
    return flat.view(shape)


def torch_input(
    problem: Problem, tensor: str, seed: int, dtype: torch.dtype, device: Any
) -> torch.Tensor:
    """A whole tensor on `device`, rounded to float32 and from there to `dtype`.

    Logical in shape; where the layout is `bhsd` it lies so in memory and is a strided view.
    """
    logical = torch_block(seed, tensor, 0, problem.shape(tensor), dtype, device)
    if problem.layout == "bhsd":
        return logical.transpose(1, 2).contiguous().transpose(1, 2)
    return logical


def torch_fill(tensor: torch.Tensor, name: str, seed: int, first: int = 0) -> None:
    """Writes an input's elements from `first` on into memory that is there, however it lies."""
    of_one = math.prod(tensor.shape[1:])
    if of_one > CHUNK and tensor.ndim > 1:
        for number, inner in enumerate(tensor):
            torch_fill(inner, name, seed, first + number * of_one)
        return
    at_once = max(1, CHUNK // max(1, of_one))
    for at in range(0, len(tensor), at_once):
        some = tensor[at : at + at_once]
        made = torch_elements(seed, name, first + at * of_one, some.numel(), tensor.device)
        some.copy_(made.view(some.shape).float())


def torch_part(
    problem: Problem, tensor: str, seed: int, plane: Plane, dtype: torch.dtype, device: Any
) -> torch.Tensor:
    """A plane's part of a tensor, `[1, rows, heads, width]`, the other elements not made."""
    import torch

    rows, stride, inner = _places(problem, tensor, plane)
    part = torch.empty((len(rows), len(inner)), dtype=dtype, device=device)
    columns = torch.arange(inner.start, inner.stop, device=device)
    at_once = max(1, CHUNK // len(inner))
    for first in range(0, len(rows), at_once):
        some = rows[first : first + at_once]
        index = torch.arange(some.start, some.stop, device=device)[:, None] * stride
        made = _torch_values(seed, tensor, index + columns)
        part[first : first + at_once].copy_(made.float())
    return part.view(1, len(rows), len(plane.heads(tensor)), -1)
