"""What `num_splits_key` becomes in PyTorch's memory-efficient backward: a computed value.

The op does not tell the value it used, so its rule is repeated here. Source:
`_efficient_attention_backward` in aten/src/ATen/native/transformers/cuda/attention_backward.cu
and the tiles of mem_eff_attention/kernels/cutlassB.h (generate_kernels.py), PyTorch 2.11.
The launch shows the truth: its grid is (splits, heads, batch).
"""

from __future__ import annotations

from typing import Any

from regatta_worker.problem.attention import DTYPE_BYTES, Problem

TILE_SHARED_BYTES = 163 << 10
"""Shared memory of a block with which every tile below fits (compute capability 8.0 and 9.0)."""

SHRUNK_LIMIT = 200
"""Blocks the heuristic allows where gradients of keys and values are staged in memory."""


def tile(problem: Problem) -> tuple[int, int, bool]:
    """Query and key rows of a block, and whether dK and dV are staged in global memory."""
    width = max(problem.head_dim, problem.head_dim_v)
    bucket = next((limit for limit in (32, 64, 128) if width <= limit), 1 << 16)
    if DTYPE_BYTES[problem.dtype] == 4:
        # float32 accumulates in the result itself, so nothing is staged.
        return (64, 64, False) if bucket <= 64 else (128, 64, False)
    block_i, block_j = {32: (64, 64), 64: (64, 64), 128: (128, 128)}.get(bucket, (128, 64))
    return block_i, block_j, bucket > block_i


def effective_splits(
    problem: Problem,
    requested: int | None,
    capability: tuple[int, int],
    shared_bytes: int,
    deterministic: bool = False,
) -> int | None:
    """Splits along the keys for a requested value (`None`: the heuristic).

    `None` where the tiles are not known: another architecture than 8.x and 9.x, or too
    little shared memory for the first choice of tile.
    """
    if not 8 <= capability[0] <= 9 or shared_bytes < TILE_SHARED_BYTES:
        return None
    _, block_j, staged = tile(problem)
    splits = -(-problem.seq_k // block_j)
    parallelism = problem.batch * problem.heads
    if requested is not None:
        splits = min(splits, requested)
    else:
        if parallelism >= 256 and problem.seq_k <= 2 * block_j:
            splits = 1
        if staged:
            # Integer division: 0 from 201 heads on, raised to 1 below.
            splits = min(splits, SHRUNK_LIMIT // parallelism)
    return 1 if deterministic else max(splits, 1)


def splits_here(problem: Problem, requested: int | None, device: Any) -> dict[str, int]:
    """`num_splits_key` as the CUTLASS backward takes it on this device, where that is known."""
    import torch

    if not problem.has_backward or device.type != "cuda":
        return {}
    properties = torch.cuda.get_device_properties(device)
    splits = effective_splits(
        problem,
        requested,
        (properties.major, properties.minor),
        properties.shared_memory_per_block_optin,
        torch.are_deterministic_algorithms_enabled()
        and not torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    return {} if splits is None else {"num_splits_key": splits}
