"""Launches of flash_wgmma and split_kv in every form that the harness itself may choose."""

from __future__ import annotations

import ctypes
import math

import torch

from contracts import CONTRACTS, Tile
from driver import Driver, Launch, Tensor, TensorMap
from driver import tensor_map as encode
from guarded import Guarded, guarded
from launch import ceil_div, split_kv_part

Config = tuple[str, Tile]  # dtype, tile

# ---------------------------------------------------------------- flash_wgmma

WGMMA = CONTRACTS["flash_wgmma"]["forward"]
FLASH: dict[str, Config] = {  # kernel: dtype, tile
    WGMMA.name(dtype, tile): (dtype, tile) for dtype in WGMMA.dtypes for tile in WGMMA.tiles
}
STUDIED = next(tile for tile in WGMMA.tiles if (tile.head_dim, tile.keys) == (128, 128))
FLASH_STUDY: dict[str, Config] = {  # the same without one of the kernel's choices
    "flash_wgmma_bf16_d128_m128_n128_unheld": ("bf16", STUDIED),
    "flash_wgmma_bf16_d128_m128_n128_unturned": ("bf16", STUDIED),
    "flash_wgmma_bf16_d128_m128_n128_eager": ("bf16", STUDIED),
    "flash_wgmma_bf16_d64_m128_n128": (
        "bf16",
        Tile(head_dim=64, queries=128, keys=128, threads=384, shared_bytes=83_200),
    ),
}


def tensor_map(driver: Driver, tensor: torch.Tensor, rows: int) -> TensorMap:
    where = Tensor(tensor.data_ptr(), *tensor.stride()[:3])
    dtype = {torch.float16: "f16", torch.bfloat16: "bf16"}[tensor.dtype]
    batch, seq, heads, head_dim = tensor.shape
    return encode(driver.call, where, dtype, batch, seq, heads, head_dim, rows)


def flash_launch(
    driver: Driver, name: str, config: Config, problem: Guarded, block_per_sm: bool
) -> Launch:
    _, tile = config
    tiles = ceil_div(problem.seq_q, tile.queries) * problem.batch * problem.heads
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    grid = min(tiles, sms) if block_per_sm else tiles
    maps = [
        tensor_map(driver, problem.q, 64),
        tensor_map(driver, problem.k, tile.keys),
        tensor_map(driver, problem.v, tile.keys),
        tensor_map(driver, problem.out, 64),
    ]
    sizes = (
        problem.batch,
        problem.heads,
        problem.kv_heads,
        problem.seq_q,
        problem.seq_k,
        problem.low,
        problem.high,
        flash_section(problem, block_per_sm),
    )
    return Launch(
        driver,
        "flash_wgmma",
        name,
        tile,
        (grid, 1, 1),
        *maps,
        ctypes.c_void_p(problem.lse.data_ptr()),
        *map(ctypes.c_int, sizes),
        ctypes.c_float(problem.scale * math.log2(math.e)),
    )


def flash_section(problem: Guarded, block_per_sm: bool) -> int:
    """Heads whose tiles are taken before others are begun: see the kernel's contract."""
    if problem.high >= problem.seq_k:
        return 1
    all_heads = problem.batch * problem.heads
    if block_per_sm:
        return all_heads
    bytes_of_kv_head = 2 * problem.seq_k * problem.head_dim * 2
    kv_heads = max(1, (32 << 20) // bytes_of_kv_head)  # half of L2
    return min(kv_heads * (problem.heads // problem.kv_heads), all_heads)


# ---------------------------------------------------------------- split_kv


def split_slots(dtype: str, head_dim: int) -> int:
    blocks = 1 if (dtype, head_dim) == ("f32", 128) else 2
    sms: int = torch.cuda.get_device_properties(0).multi_processor_count
    return blocks * sms


def automatic_splits(problem: Guarded) -> int:
    """The kernel's rule: the fewest splits whose last wave is nearly as full as the best."""
    rows = problem.heads // problem.kv_heads * problem.seq_q
    part = split_kv_part(problem.dtype).tile_for(problem.head_dim)
    tiles = ceil_div(rows, part.queries) * problem.batch * problem.kv_heads
    slots = split_slots(problem.dtype, problem.head_dim)
    most = max(1, min(128, ceil_div(problem.seq_k, 256)))
    waves = [n * tiles / slots for n in range(1, most + 1)]
    fullness = [w / math.ceil(w) for w in waves]
    return 1 + next(i for i, f in enumerate(fullness) if f >= 0.85 * max(fullness))


def split_launches(driver: Driver, problem: Guarded, num_splits: int) -> tuple[Launch, Launch]:
    """The two kernels of one call, bound to a poisoned workspace."""
    rows = problem.heads // problem.kv_heads * problem.seq_q
    all_rows = problem.batch * problem.heads * problem.seq_q
    kernels = split_kv_part(problem.dtype), CONTRACTS["split_kv"]["join"]
    tiles = [kernel.tile_for(problem.head_dim) for kernel in kernels]
    workspace, _ = guarded((num_splits * all_rows * (problem.head_dim + 1),), torch.float32)
    given = problem.contract()
    given.workspace, given.num_splits = workspace.data_ptr(), num_splits
    grids = (
        (num_splits, ceil_div(rows, tiles[0].queries), problem.batch * problem.kv_heads),
        (all_rows, 1, 1),
    )
    part, join = (
        Launch(driver, "split_kv", kernel.name(problem.dtype, tile), tile, grid, given)
        for kernel, tile, grid in zip(kernels, tiles, grids, strict=True)
    )
    part.workspace = workspace
    return part, join
