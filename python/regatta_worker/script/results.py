"""The results of a timed function, as far as another process can compare it: some elements of each
array, and the norm of each part of it."""

from __future__ import annotations

import dataclasses
import itertools
import math
import sys
from collections.abc import Iterator
from typing import Any

from regatta_worker.protocol.channel import Message

MOST_ARRAYS = 32
SAMPLES = 512
"""Elements of each array that are sent."""
PARTS = 64
"""Parts of each array, in memory's order, whose norms are sent."""


def outputs(returned: Any) -> list[Message]:
    """Each array of what a call returned; none where it returned no array."""
    return [found for found in map(_output, arrays(returned)) if found]


def arrays(value: Any, depth: int = 0) -> Iterator[Any]:
    """The arrays in what a call returned."""
    found: list[Any] = []
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        found = [value]
    elif depth < 4:
        if isinstance(value, dict):
            inner = list(value.values())
        elif isinstance(value, (list, tuple)):
            inner = list(value)
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            inner = [getattr(value, each.name) for each in dataclasses.fields(value)]
        else:
            inner = []
        found = [array for each in inner[:MOST_ARRAYS] for array in arrays(each, depth + 1)]
    yield from found[:MOST_ARRAYS]


def _output(array: Any) -> Message | None:
    """Shape, dtype, elements at places that follow from the length alone, and norms of parts."""
    about = {
        "shape": [int(size) for size in array.shape],
        "dtype": str(getattr(array.dtype, "name", array.dtype)).removeprefix("torch."),
    }
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(array, torch.Tensor):
        values = _of_torch(torch, array)
    elif numpy is not None:
        values = _of_numpy(numpy, array)
    else:
        return None
    return None if values is None else about | values


def _places(length: int) -> list[int]:
    """Places of elements, spread by the golden ratio so that no stride of a shape hides some."""
    if length <= SAMPLES:
        return list(range(length))
    step = (math.sqrt(5) - 1) / 2
    return [int(((number + 1) * step) % 1 * length) for number in range(SAMPLES)]


def _bounds(length: int) -> list[int]:
    parts = min(PARTS, max(1, length // SAMPLES))
    return [length * part // parts for part in range(parts + 1)]


def _of_torch(torch: Any, tensor: Any) -> Message | None:
    tensor = tensor.detach()
    if tensor.is_sparse or tensor.is_quantized or tensor.device.type == "meta":
        return None
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    flat = tensor.reshape(-1)
    bounds = _bounds(len(flat))
    places = torch.tensor(_places(len(flat)), dtype=torch.int64, device=flat.device)
    narrow = flat.element_size() == 1 and flat.is_floating_point()
    values = (flat.float() if narrow else flat)[places].double().tolist()
    norms = [
        float(flat[begin:end].float().norm(dtype=torch.float64))
        for begin, end in itertools.pairwise(bounds)
    ]
    return {"values": values, "norms": norms}


def _of_numpy(numpy: Any, array: Any) -> Message | None:
    array = numpy.asarray(array)
    if array.dtype.kind not in "fiubc":
        # jax's bfloat16 is of another kind, and can be made float32.
        if array.dtype.kind != "V" or array.dtype.names:
            return None
        array = array.astype(numpy.float32)
    if array.dtype.kind == "c":
        array = numpy.stack([array.real, array.imag], axis=-1)
    flat = numpy.ravel(array)
    bounds = _bounds(len(flat))
    values = flat[_places(len(flat))].astype(numpy.float64).tolist()
    norms = [
        float(numpy.linalg.norm(flat[begin:end].astype(numpy.float64)))
        for begin, end in itertools.pairwise(bounds)
    ]
    return {"values": values, "norms": norms}
