"""The launch contracts of ../contracts.toml: names, tiles, threads and shared memory."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence

import tomllib

KERNELS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


@dataclasses.dataclass(frozen=True)
class Tile:
    """One size that a kernel is compiled in."""

    threads: int
    shared_bytes: int = 0
    head_dim: int = 0
    """The largest that it takes; 0: any."""
    queries: int = 1
    keys: int = 1
    columns: int = 1


class Kernel:
    """The entry points that differ in dtype and tile alone."""

    def __init__(
        self, file: str, entry: str, tiles: list[dict[str, int]], dtypes: Sequence[str] = ()
    ) -> None:
        self.file, self.entry, self.dtypes = file, entry, dtypes
        self.tiles = [Tile(**tile) for tile in tiles]

    def tile_for(self, *head_dims: int) -> Tile:
        """The tile of the smallest compiled head_dim that holds these."""
        return next(t for t in self.tiles if t.head_dim == 0 or t.head_dim >= max(head_dims))

    def name(self, dtype: str, tile: Tile) -> str:
        """The entry point of a dtype and a tile."""
        return self.entry.format(dtype=dtype, **dataclasses.asdict(tile))


def contracts() -> dict[str, dict[str, Kernel]]:
    """File -> kernel -> its contract."""
    with open(f"{KERNELS}/contracts.toml", "rb") as file:
        read = tomllib.load(file)
    return {
        file: {name: Kernel(file, **kernel) for name, kernel in kernels.items()}
        for file, kernels in read.items()
    }


CONTRACTS = contracts()
FILES = list(CONTRACTS)
