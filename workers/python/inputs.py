"""The inputs: element `index` of a tensor is a pure function of seed, tensor and index.

SplitMix64 (Steele, Lea, Flood, OOPSLA 2014), so that every worker makes the same
numbers; docs/PROTOCOL.md, "The inputs", has the formula and test vectors. Made in
chunks, because each element passes through a few 64-bit temporaries.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from problem import Problem

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

    counter = (TENSORS[tensor] << 40) + first + 1
    z = np.arange(counter, counter + count, dtype=np.uint64) * np.uint64(GOLDEN)
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


def _signed(value: int) -> int:
    """The int64 with the bits of this unsigned value: torch has no 64-bit unsigned arithmetic."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def _shifted(z: torch.Tensor, bits: int) -> torch.Tensor:
    """`z >> bits` without the sign: what the arithmetic shift copied in is masked out."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def torch_elements(seed: int, tensor: str, first: int, count: int, device: Any) -> torch.Tensor:
    """The same elements made on `device`, in float64; int64 products wrap around."""
    import torch

    counter = (TENSORS[tensor] << 40) + first + 1
    z = torch.arange(counter, counter + count, dtype=torch.int64, device=device)
    z = z * _signed(GOLDEN) + _signed(seed)
    for shift, factor in MIX:
        z = (z ^ _shifted(z, shift)) * _signed(factor)
    z = z ^ _shifted(z, 31)
    unit = _shifted(z, 11).to(torch.float64) / float(1 << 53)
    return (2.0 * unit - 1.0) * math.sqrt(3.0)


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
