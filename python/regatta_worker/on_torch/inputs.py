"""The contents of torch tensors, changed where they lie: a CUDA graph replays, hot stays hot."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Hashable, Iterable, Mapping

import torch

from regatta_worker.problem.input_sets import LAST, CaseInputs, InputSets, in_turn, seed_of
from regatta_worker.problem.inputs import MemoryOrder
from regatta_worker.problem.planes import DRAW

Tensors = Mapping[str, torch.Tensor]
Fill = Callable[[torch.Tensor, str, int], None]
"""Writes what input `name` has in the set of this seed into a tensor."""

SHARE_OF_FREE = 4
"""Sets may take at most 1/`SHARE_OF_FREE` of the free memory."""

STEP = 0.6180339887498949
"""By what part of a tensor its contents lie further on than a sample before: the golden
section comes back to no place it had."""


class MadeTensors:
    """Tensors of sets, kept for the next cases: most of these have the same shapes and seed."""

    def __init__(self, limit: int = 0) -> None:
        """They take `limit` bytes, or all are made again."""
        self._limit = limit
        self._kept: dict[Hashable, torch.Tensor] = {}

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self._kept.values())

    def get(self, like: torch.Tensor, name: str, seed: int, fill: Fill) -> torch.Tensor:
        """Input `name` of the set of this seed, as another one lies in memory."""
        key = _key(like, name, seed)
        if key not in self._kept:
            made = torch.empty_like(like)
            fill(made, name, seed)
            self._kept[key] = made
        return self._kept[key]

    def make_room(self, tensors: Tensors, seeds: Iterable[int] = ()) -> None:
        """Drops all where there would be more than the limit with sets of these seeds."""
        wanted = [(_key(x, name, seed), x.nbytes) for seed in seeds for name, x in tensors.items()]
        size = sum(nbytes for key, nbytes in wanted if key not in self._kept)
        if self.nbytes + size > self._limit:
            self.clear()

    def clear(self) -> bool:
        """Drops all; returns False if there were none."""
        there = bool(self._kept)
        self._kept.clear()
        return there


def _key(like: torch.Tensor, name: str, seed: int) -> Hashable:
    return name, like.shape, like.stride(), like.dtype, seed


class TorchInputSets(InputSets):
    """Working tensors whose contents are another set's in each sample."""

    def __init__(
        self,
        tensors: Tensors,
        of: CaseInputs,
        fill: Fill,
        refresh: Callable[[], None] | None = None,
        free_bytes: int | None = None,
        made: MadeTensors | None = None,
    ) -> None:
        """`tensors` hold the current set; `refresh` is called after each change of them.

        Sets are made once, beside the tensors, where `made` has none of an earlier case, and
        copied in turn, all tensors at once, so that the making leaves no more in a cache than
        the inputs. In each sample but the last they lie at another place in memory, the end put
        before the beginning, so that no two samples have the same contents. Without room for
        that, or where `free_bytes` is 0, each sample has a set that is made in them.
        """
        self._tensors, self._seed, self._fill, self._refresh = tensors, of.seed, fill, refresh
        self._made = made or MadeTensors()
        self._copies: dict[int, list[tuple[torch.Tensor, torch.Tensor]]] = {}
        """By set, where its tensors are copied to, and they."""
        self._samples = 0
        self._first = DRAW.random()
        """The distance of the contents before the first sample: no call can make them before."""
        sets, size = max(3, of.sets), sum(tensor.nbytes for tensor in tensors.values())
        free = self._free() if free_bytes is None else free_bytes
        if sets * size <= free // SHARE_OF_FREE:
            self._made.make_room(tensors, (seed_of(of.seed, number) for number in range(sets)))
            with contextlib.suppress(torch.OutOfMemoryError):
                self._copies = {
                    number: [_as_they_lie(tensor, made[name]) for name, tensor in tensors.items()]
                    for number in range(sets)
                    for made in (self._make(number),)
                }
        numbers = in_turn(sets) if self._copies else of.numbers
        super().__init__(
            of, self._put_in_place, lambda e: isinstance(e, torch.OutOfMemoryError), numbers
        )
        if not self._copies:
            self._made.clear()
        self.held_bytes = self._made.nbytes

    def forget(self) -> None:
        self._copies = {}
        self._made.make_room({})

    def _make(self, number: int) -> Tensors:
        seed, like = seed_of(self._seed, number), self._tensors.items()
        return {name: self._made.get(tensor, name, seed, self._fill) for name, tensor in like}

    def _write(self, tensors: Tensors, number: int) -> None:
        for name, tensor in tensors.items():
            self._fill(tensor, name, seed_of(self._seed, number))

    def _put_in_place(self, number: int) -> None:
        self._samples, self.along = self._samples + 1, 0.0
        # Not through `.data`: whoever looks at a tensor's version is to see that it changed.
        with torch.no_grad():
            if not self._copies:
                self._write(self._tensors, number)
            else:
                self.along = 0.0 if number == LAST else (self._first + self._samples * STEP) % 1.0
                for into, source in self._copies[number]:
                    _copy_along(into, source, self.along)
        if self._refresh:
            self._refresh()
        if self._on_gpu():
            torch.cuda.synchronize()

    def _on_gpu(self) -> bool:
        return any(tensor.is_cuda for tensor in self._tensors.values())

    def _free(self) -> int:
        if self._on_gpu():
            # Memory that torch's allocator caches is free as well.
            idle = int(torch.cuda.memory_reserved() - torch.cuda.memory_allocated())
            return int(torch.cuda.mem_get_info()[0]) + idle
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _copy_along(into: torch.Tensor, source: torch.Tensor, along: float) -> None:
    """Copies a source, this part of it further on, its end before its beginning."""
    further = int(len(into) * along)
    if further == 0 or into.ndim != 1:
        into.copy_(source)
        return
    into[further:].copy_(source[:-further])
    into[:further].copy_(source[-further:])


def turner(tensors: Tensors, refresh: Callable[[], None] | None) -> Callable[[], None]:
    """Turns each tensor in its memory by a number of elements that is drawn; `refresh` follows."""
    flat = [_flat(tensor) for tensor in tensors.values() if _dense(tensor)]

    def turn() -> None:
        with torch.no_grad():
            for tensor in flat:
                tensor.copy_(torch.roll(tensor, DRAW.randrange(len(tensor))))
        if refresh:
            refresh()

    return turn


def _as_they_lie(into: torch.Tensor, source: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Both with their elements in the order of memory, or as they are where others lie between
    those of one."""
    flat = _dense(into) and _dense(source)
    return (_flat(into), _flat(source)) if flat else (into, source)


def _dense(tensor: torch.Tensor) -> bool:
    return bool(memory_order(tensor).axes)


def memory_order(tensor: torch.Tensor) -> MemoryOrder:
    """The order of a tensor's elements in memory."""
    shape, strides = tuple(tensor.shape), tensor.stride()
    axes = sorted(range(len(shape)), key=lambda axis: (strides[axis], -axis), reverse=True)
    elements = 1
    for axis in reversed(axes):
        if shape[axis] > 1 and strides[axis] != elements:
            return MemoryOrder(shape, ())
        elements *= shape[axis]
    return MemoryOrder(shape, tuple(axes))


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().as_strided((tensor.numel(),), (1,))
