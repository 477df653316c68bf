"""The contents of torch tensors, changed where they lie: a CUDA graph replays, hot stays hot."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping

import torch

from input_sets import InputSets, fresh, in_turn, seed_of

Tensors = Mapping[str, torch.Tensor]
Fill = Callable[[torch.Tensor, str, int], None]
"""Writes what input `name` has in the set of this seed into a tensor."""

FRESH_ELEMENTS = {"cuda": 1 << 22, "cpu": 1 << 16}
"""Of all inputs, by device: up to so many are made anew for each sample, which takes about a
millisecond; of more, sets are made once and copied."""

SHARE_OF_FREE = 4
"""Sets may take one part in so many of the memory that is free."""


class TorchInputSets(InputSets):
    """Working tensors whose contents are another set's in each sample."""

    def __init__(
        self,
        tensors: Tensors,
        seed: int,
        asked: int,
        fill: Fill,
        refresh: Callable[[], None] | None = None,
        numbers: Iterator[int] | None = None,
        place: int = 0,
        free_bytes: int | None = None,
    ) -> None:
        """`tensors` hold set `place`; `refresh` follows each change of theirs; `numbers` are
        the sets for samples that have one of their own.

        Each set is made beside them and copied, all tensors at once, so that the making
        leaves no more in a cache than the inputs. Where there is no room beside them, or
        `free_bytes` is 0, it is made in them.
        """
        self._tensors, self._seed, self._fill, self._refresh = tensors, seed, fill, refresh
        sets = max(3, asked)
        self._beside: dict[int, Tensors] = {}
        size = sum(tensor.nbytes for tensor in tensors.values())
        elements = sum(tensor.numel() for tensor in tensors.values())
        free = self._free() if free_bytes is None else free_bytes
        most_fresh = FRESH_ELEMENTS["cuda" if self._on_gpu() else "cpu"]
        self._go_round = elements > most_fresh and sets * size <= free // SHARE_OF_FREE
        before = self._allocated()
        try:
            if self._go_round:
                self._beside = {number: self._made(number) for number in range(sets)}
                numbers = in_turn(sets)
            elif size <= free // SHARE_OF_FREE:
                self._beside = {0: {name: torch.empty_like(x) for name, x in tensors.items()}}
        except torch.OutOfMemoryError:
            self._beside, self._go_round = {}, False
        super().__init__(asked, numbers or fresh(), self._put_in_place, _no_memory, place)
        self.held_bytes = self._allocated() - before

    def forget(self) -> None:
        """Gives back what lies beside the inputs: no more samples are taken."""
        self._beside = {}

    def _made(self, number: int) -> Tensors:
        made = {name: torch.empty_like(tensor) for name, tensor in self._tensors.items()}
        self._write(made, number)
        return made

    def _write(self, tensors: Tensors, number: int) -> None:
        for name, tensor in tensors.items():
            self._fill(tensor, name, seed_of(self._seed, number))

    def _put_in_place(self, number: int) -> None:
        # Not through `.data`: whoever looks at a tensor's version is to see that it changed.
        with torch.no_grad():
            if not self._beside:
                self._write(self._tensors, number)
            else:
                source = self._beside[number if self._go_round else 0]
                if not self._go_round:
                    self._write(source, number)
                for name, tensor in self._tensors.items():
                    tensor.copy_(source[name])
        if self._refresh:
            self._refresh()
        if self._on_gpu():
            torch.cuda.synchronize()

    def _on_gpu(self) -> bool:
        return any(tensor.is_cuda for tensor in self._tensors.values())

    def _free(self) -> int:
        if self._on_gpu():
            return torch.cuda.mem_get_info()[0]
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

    def _allocated(self) -> int:
        return torch.cuda.memory_allocated() if self._on_gpu() else 0


def _no_memory(error: Exception) -> bool:
    return isinstance(error, torch.OutOfMemoryError)
