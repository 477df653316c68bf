"""Every variant's launches: grids and workspaces, as at the heads of the kernel files."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence

from contracts import CONTRACTS, Kernel, Tile
from driver import Driver, Grid, Problem, Reference, TensorMap, tensor_map


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def naive(driver: Driver, p: Problem, dtype: str, direction: str) -> None:
    planes = p.batch * p.heads
    kernels = CONTRACTS["naive"]

    def run(name: str, *grid: int) -> None:
        x, y, z = grid
        driver.launch(kernels[name], dtype, (x, y, z), p)

    def keys(name: str) -> int:
        return ceil_div(p.seq_k, kernels[name].tiles[0].keys)

    def columns(name: str, n: int) -> int:
        return ceil_div(n, kernels[name].tiles[0].columns)

    if direction == "forward":
        run("scores", keys("scores"), p.seq_q, planes)
        run("softmax", p.seq_q, 1, planes)
        run("out", columns("out", p.head_dim_v), p.seq_q, planes)
    else:
        widest = max(p.head_dim, p.head_dim_v)
        run("delta", p.seq_q, 1, planes)
        run("score_grads", keys("score_grads"), p.seq_q, planes)
        run("query_grads", columns("query_grads", p.head_dim), p.seq_q, planes)
        run("key_grads", columns("key_grads", widest), p.seq_k, p.batch * p.kv_heads)


def by_queries(p: Problem, tile: Tile) -> Grid:
    """The grid of a kernel whose blocks own queries."""
    return ceil_div(p.seq_q, tile.queries), p.heads, p.batch


def by_keys(p: Problem, tile: Tile) -> Grid:
    """The grid of a kernel whose blocks own keys."""
    return ceil_div(p.seq_k, tile.keys), p.kv_heads, p.batch


def flash_simt(driver: Driver, p: Problem, dtype: str, direction: str) -> None:
    kernels = CONTRACTS["flash_simt"]
    tile = kernels[direction].tile_for(p.head_dim, p.head_dim_v)
    if direction == "forward":
        driver.launch(kernels["forward"], dtype, by_queries(p, tile), p, tile=tile)
    else:
        prepare = kernels["prepare"]
        driver.launch(prepare, dtype, by_queries(p, prepare.tiles[0]), p)
        driver.launch(kernels["backward"], dtype, by_keys(p, tile), p, tile=tile)


def split_key(driver: Driver, p: Problem, dtype: str, direction: str) -> None:
    prepare, backward = CONTRACTS["split_key"]["prepare"], CONTRACTS["split_key"]["backward"]
    tile = backward.tile_for(p.head_dim, p.head_dim_v)
    driver.launch(prepare, dtype, by_queries(p, prepare.tiles[0]), p)
    driver.launch(backward, dtype, (p.num_splits, p.kv_heads, p.batch), p, tile=tile)


def flash_mma(driver: Driver, p: Problem, dtype: str, direction: str) -> None:
    if direction == "forward":
        kernel = CONTRACTS["flash_mma"]["forward"]
        tile = kernel.tile_for(p.head_dim, p.head_dim_v)
        driver.launch(kernel, dtype, by_queries(p, tile), p, tile=tile)
    else:
        backward_in_three(driver, "flash_mma_backward", p, dtype)


def backward_in_three(
    driver: Driver, file: str, p: Problem, dtype: str, maps: Sequence[TensorMap] = ()
) -> None:
    """Prepare, the products, finish."""
    kernels = CONTRACTS[file]
    tiles = {name: kernel.tile_for(p.head_dim, p.head_dim_v) for name, kernel in kernels.items()}

    def run(name: str, grid: Callable[[Problem, Tile], Grid], *arguments: TensorMap) -> None:
        tile = tiles[name]
        driver.launch(kernels[name], dtype, grid(p, tile), *arguments, p, tile=tile)

    run("prepare", by_queries)
    run("backward", by_keys, *maps)
    run("finish", by_queries)


def split_kv_part(dtype: str) -> Kernel:
    """The kernel that attends to a part of the keys."""
    return CONTRACTS["split_kv"]["part_f32" if dtype == "f32" else "part"]


def split_kv(driver: Driver, p: Problem, dtype: str, direction: str) -> None:
    part, join = split_kv_part(dtype), CONTRACTS["split_kv"]["join"]
    tile = part.tile_for(p.head_dim)
    rows = p.heads // p.kv_heads * p.seq_q
    driver.launch(
        part,
        dtype,
        (p.num_splits, ceil_div(rows, tile.queries), p.batch * p.kv_heads),
        p,
        tile=tile,
    )
    driver.launch(
        join, dtype, (p.batch * p.heads * p.seq_q, 1, 1), p, tile=join.tile_for(p.head_dim)
    )


def flash_wgmma(driver: Driver, p: Problem, dtype: str, direction: str) -> None:
    """Forward: every tile for the head_dim, one after another, a block a tile."""
    if direction == "backward":
        flash_wgmma_backward(driver, p, dtype)
        return
    kernel = CONTRACTS["flash_wgmma"]["forward"]
    for tile in kernel.tiles:
        if tile.head_dim != p.head_dim:
            continue
        planes = p.batch * p.heads
        maps = [
            tensor_map(driver.call, tensor, dtype, p.batch, seq, heads, p.head_dim, rows)
            for tensor, seq, heads, rows in (
                (p.q, p.seq_q, p.heads, 64),
                (p.k, p.seq_k, p.kv_heads, tile.keys),
                (p.v, p.seq_k, p.kv_heads, tile.keys),
                (p.out, p.seq_q, p.heads, 64),
            )
        ]
        sizes = (
            p.batch,
            p.heads,
            p.kv_heads,
            p.seq_q,
            p.seq_k,
            *p.band(),
            1 if p.mask_right < 0 else planes,
        )
        driver.launch(
            kernel,
            dtype,
            (ceil_div(p.seq_q, tile.queries) * planes, 1, 1),
            *maps,
            ctypes.c_void_p(p.lse),
            *map(ctypes.c_int, sizes),
            ctypes.c_float(p.scale * math.log2(math.e)),
            tile=tile,
        )


def flash_wgmma_backward(driver: Driver, p: Problem, dtype: str) -> None:
    d = p.head_dim
    tile = CONTRACTS["flash_wgmma_backward"]["backward"].tile_for(d)
    maps = [
        tensor_map(driver.call, tensor, dtype, p.batch, seq, heads, d, rows)
        for tensor, seq, heads, rows in (
            (p.q, p.seq_q, p.heads, tile.queries),
            (p.k, p.seq_k, p.kv_heads, tile.keys),
            (p.v, p.seq_k, p.kv_heads, tile.keys),
            (p.dout, p.seq_q, p.heads, tile.queries),
        )
    ]
    backward_in_three(driver, "flash_wgmma_backward", p, dtype, maps)


def reference(driver: Driver, p: Problem, dtype: str, direction: str, results: Reference) -> None:
    """The float64 results of one direction; backward reads forward's."""
    kernels = CONTRACTS["reference"]
    planes, kv_planes = p.batch * p.heads, p.batch * p.kv_heads

    def run(name: str, seq: int, axis: str, planes: int, columns: int = 1) -> None:
        tile = kernels[name].tiles[0]
        grid = (ceil_div(seq, getattr(tile, axis)), planes, ceil_div(columns, tile.columns))
        driver.launch(kernels[name], dtype, grid, p, results)

    if direction == "forward":
        run("lse", p.seq_q, "queries", planes)
        run("out", p.seq_q, "queries", planes, p.head_dim_v)
    else:
        run("delta", p.seq_q, "queries", planes)
        run("dq", p.seq_q, "queries", planes, p.head_dim)
        run("dk", p.seq_k, "keys", kv_planes, p.head_dim)
        run("dv", p.seq_k, "keys", kv_planes, p.head_dim_v)


def workspace_bytes(variant: Launcher, p: Problem, direction: str) -> int:
    if variant is naive:
        return (4 if direction == "forward" else 8) * p.batch * p.heads * p.seq_q * p.seq_k
    if variant is split_kv:
        return 4 * p.num_splits * p.batch * p.heads * p.seq_q * (p.head_dim + 1)
    if variant in (flash_mma, flash_wgmma) and direction == "backward":
        kernel = CONTRACTS[f"{variant.__name__}_backward"]["backward"]
        tile = kernel.tile_for(p.head_dim, p.head_dim_v)
        figures = 8 if variant is flash_wgmma else 0  # lse and delta of a query
        return math.prod(by_queries(p, tile)) * tile.queries * (4 * tile.head_dim + figures)
    return 0


def auto_splits(p: Problem) -> int:
    """PyTorch's rule for float32, _efficient_attention_backward in attention_backward.cu."""
    few = p.kv_heads * p.batch >= 256 and p.seq_k <= 128
    tile = CONTRACTS["split_key"]["backward"].tiles[0]
    return 1 if few else ceil_div(p.seq_k, tile.keys)


Launcher = Callable[[Driver, Problem, str, str], None]
# name -> (launcher, dtypes, directions)
VARIANTS: dict[str, tuple[Launcher, tuple[str, ...], tuple[str, ...]]] = {
    "naive": (naive, ("f32", "f16", "bf16"), ("forward", "backward")),
    "flash_simt": (flash_simt, ("f32",), ("forward", "backward")),
    "split_key": (split_key, ("f32",), ("backward",)),
    "flash_mma": (flash_mma, ("f16", "bf16"), ("forward", "backward")),
    "flash_wgmma": (flash_wgmma, ("f16", "bf16"), ("forward", "backward")),
    "split_kv": (split_kv, ("f32", "f16", "bf16"), ("forward",)),
}


def supports(variant: str, p: Problem, dtype: str) -> bool:
    """Whether a variant's contract admits a problem that any of the others takes."""
    exact = p.head_dim == p.head_dim_v and p.head_dim in (64, 128)
    return dtype in VARIANTS[variant][1] and (exact or variant not in ("flash_wgmma", "split_kv"))
