"""The differences between NumPy and torch, where inputs are made and references computed."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Arrays:
    """A module of arrays on one device."""

    xp: Any
    empty: Callable[[Shape, Any], Any]
    """Uninitialised memory of a shape and type."""
    cast: Callable[[Any, Any], Any]
    """An array as one of another type, on this device."""
    positions: Callable[[int, int], Any]
    """Integers `first .. last`, in 64 bits."""
    integers: Callable[[list[list[int]]], Any]
    """A table of integers, in 64 bits."""
    zeros: Callable[[Shape], Any]
    """float64 zeros."""
    kept_zeros: Callable[[Shape], Any]
    to_kept: Callable[[Any], Any]
    """A result where it is kept: on the host, unless made for a device's own memory."""
    host_copy: Callable[[Any], Any]
    """A copy on the host, whatever becomes of the array."""
    score_elements: int
    """Elements of the largest temporary, of which about five live at a time."""
    threads: int

    @staticmethod
    def for_numpy() -> Arrays:
        """On the host, one thread for each core: NumPy's own loops use one only."""
        import numpy as np

        return Arrays(
            xp=np,
            empty=np.empty,
            cast=lambda x, dtype: np.asarray(x).astype(dtype),
            positions=lambda first, last: np.arange(first, last, dtype=np.int64),
            integers=lambda table: np.array(table, dtype=np.int64),
            zeros=np.zeros,
            kept_zeros=np.zeros,
            to_kept=lambda x: x,
            host_copy=lambda x: np.array(x),
            score_elements=1 << 21,
            threads=len(os.sched_getaffinity(0)),
        )

    @staticmethod
    def for_torch(device: Any) -> Arrays:
        """On a torch device, results on the host."""
        import torch

        return Arrays(
            xp=torch,
            empty=lambda shape, dtype: torch.empty(shape, dtype=dtype, device=device),
            cast=lambda x, dtype: x.to(device=device, dtype=dtype),
            positions=lambda first, last: torch.arange(first, last, device=device),
            integers=lambda table: torch.tensor(table, dtype=torch.int64, device=device),
            zeros=lambda shape: torch.zeros(shape, dtype=torch.float64, device=device),
            kept_zeros=lambda shape: torch.zeros(shape, dtype=torch.float64),
            to_kept=lambda x: x.cpu(),
            host_copy=lambda x: x.detach().to("cpu", copy=True),
            score_elements=1 << (22 if torch.device(device).type == "cpu" else 25),
            threads=1,
        )

    def float64(self, x: Any) -> Any:
        return self.cast(x, self.xp.float64)

    def kept_there(self) -> Arrays:
        """The same, with results that stay where they are computed."""
        return replace(self, to_kept=lambda x: x, kept_zeros=self.zeros)
