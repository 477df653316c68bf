"""Draws the contents of a declared operator's inputs, like crates/worker/src/operator/draw.rs.

An element is a pure function of the seed, the input's name and the index. tests/vectors/draws.json
has elements of each draw.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from regatta_worker.problem.numbers import ALL, GOLDEN, mixed

CHUNK = 1 << 20
"""Number of elements that are made at a time."""

NORMAL_MEAN = 262_140.0
NORMAL_DEVIATION = math.sqrt(8.0 * (65536.0 * 65536.0 - 1.0) / 12.0)
"""Mean and standard deviation of a sum of eight uniform 16-bit integers."""


def stream(seed: int, name: str) -> int:
    """Returns the start of an input's random stream: FNV-1a of its name, mixed with the seed."""
    hashed = 0xCBF29CE484222325
    for byte in name.encode():
        hashed = ((hashed ^ byte) * 0x0000_0100_0000_01B3) & ALL
    return mixed(seed ^ hashed)


def words(start: int, index: np.ndarray, which: int) -> np.ndarray:
    """Returns word 0 or 1 (`which`) of each element: outputs of SplitMix64."""
    z = (index * np.uint64(2) + np.uint64(which + 1)) * np.uint64(GOLDEN) + np.uint64(start)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def unit(start: int, index: np.ndarray) -> np.ndarray:
    """Draws uniform values in [0, 1)."""
    return (words(start, index, 0) >> np.uint64(11)).astype(np.float64) / float(1 << 53)


def normal(start: int, index: np.ndarray) -> np.ndarray:
    """Draws values of mean 0, variance 1: sums of eight 16-bit integers, exact in any language."""
    total = np.zeros(index.shape, dtype=np.uint64)
    for which in (0, 1):
        word = words(start, index, which)
        for shift in (0, 16, 32, 48):
            total += (word >> np.uint64(shift)) & np.uint64(0xFFFF)
    return (total.astype(np.float64) - NORMAL_MEAN) / NORMAL_DEVIATION


def permutation(start: int, count: int) -> np.ndarray:
    """Returns the integers `0..count`, sorted by their first words."""
    return np.argsort(words(start, np.arange(count, dtype=np.uint64), 0), kind="stable")


def values(tensor: Any, seed: int) -> np.ndarray:
    """Returns all elements of an `InputTensor` in the set of a seed, as float64.

    They are not yet rounded to the tensor's type.
    """
    if tensor.scales is not None:
        scaled = tensor.scales
        return shared_exponents(values(scaled, seed), scaled.dtype, tensor.shape)
    start, count = stream(seed, tensor.name), math.prod(tensor.shape)
    kind, given = tensor.kind, tensor.arguments
    with np.errstate(over="ignore"):
        if kind == "permutation":
            made = permutation(start, int(given[0]))[:count].astype(np.float64)
        elif kind == "lengths":
            low, high = int(given[0]), int(given[1])
            order = permutation(start, count)
            made = low + order * (high - low) // (count - 1) if count > 1 else np.array([high])
            made = made.astype(np.float64)
        elif kind == "constant":
            made = np.full(count, given[0])
        else:
            made = np.empty(count)
            for first in range(0, count, CHUNK):
                index = np.arange(first, min(first + CHUNK, count), dtype=np.uint64)
                made[first : first + CHUNK] = each(kind, given, start, index)
    made = made.reshape(tensor.shape)
    if kind == "l2-normalised":
        made /= np.sqrt((made * made).sum(axis=-1, keepdims=True))
    if tensor.scale is not None:
        if tensor.scale.scales is None:
            by = rounded(values(tensor.scale, seed), tensor.scale.dtype)
        else:
            by = shared_exponents(made, tensor.dtype, tensor.scale.shape)
        for axis, extent in enumerate(tensor.shape):
            by = np.repeat(by, extent // by.shape[axis], axis=axis)
        made /= by
    return made


def shared_exponents(made: np.ndarray, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Returns 2**(floor(log2(largest)) - emax), at least 2**-127, for each block of values of an
    8-bit type, in the shape of an e8m0 scale: `largest` is the block's largest absolute value, emax
    the exponent of the type's largest number (OCP Microscaling Formats v1.0, section 6.3)."""
    extents = zip(made.shape, shape, strict=True)
    blocked = np.abs(made).reshape(
        [n for all_, blocks in extents for n in (blocks, all_ // blocks)]
    )
    largest = blocked.max(axis=tuple(range(1, 2 * len(shape), 2)))
    exponents = np.frexp(largest)[1] - 1 - {"e4m3": 8, "e5m2": 15, "i8": 6}[dtype]
    powers: np.ndarray = np.ldexp(1.0, np.where(largest > 0, exponents, -127).clip(-127, 127))
    return powers


def each(kind: str, given: tuple[float, ...], start: int, index: np.ndarray) -> np.ndarray:
    """Draws elements that depend only on their own words."""
    match kind:
        case "normal":
            return given[0] * normal(start, index)
        case "l2-normalised":
            return normal(start, index)
        case "uniform":
            return given[0] + (given[1] - given[0]) * unit(start, index)
        case "sigmoid":
            return 1.0 / (1.0 + np.exp(-given[0] * normal(start, index)))
        case "log-decay":
            low, high = math.log(given[0]), math.log(given[1])
            return -np.exp(low + (high - low) * unit(start, index))
        case "integers":
            return given[0] + np.floor((given[1] - given[0] + 1.0) * unit(start, index))
        case "bernoulli":
            return (unit(start, index) < given[0]).astype(np.float64)
        case other:
            raise ValueError(f"there is no draw {other!r}")


def rounded(made: np.ndarray, dtype: str) -> np.ndarray:
    """Rounds values to a tensor's type. Returns them as bool, int64 for i32 and i64, or float32,
    which can represent the narrow types."""
    match dtype:
        case "bool":
            return made.astype(np.bool_)
        case "i32" | "i64":
            return made.astype(np.int64)
        case "i8":
            made = np.rint(made).clip(-127, 127)
        case "e4m3" | "e5m2":
            # Mantissa bits, exponent below which numbers are evenly spaced, largest number.
            bits, least, largest = (3, -6, 448) if dtype == "e4m3" else (2, -14, 57344)
            step = np.ldexp(1.0, np.maximum(np.frexp(made)[1] - 1, least) - bits)
            made = (np.rint(made / step) * step).clip(-largest, largest)
        case "f16":
            made = made.astype(np.float32).astype(np.float16)
        case "bf16":
            # Rounds to nearest even.
            encoded = made.astype(np.float32).view(np.uint32)
            odd = (encoded >> np.uint32(16)) & np.uint32(1)
            with np.errstate(over="ignore"):
                kept = (encoded + np.uint32(0x7FFF) + odd) & np.uint32(0xFFFF0000)
            return kept.view(np.float32)
    return made.astype(np.float32)
