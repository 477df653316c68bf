"""Sequences packed row after row, `[total, heads, width]`, and where each begins."""

from __future__ import annotations

from typing import Any

import torch

from regatta_worker.problem.attention import Problem
from regatta_worker.protocol.channel import Unsupported


def starts(lengths: list[int]) -> torch.Tensor:
    """Where each sequence begins, and the total: int32, on the host."""
    return torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)


def bounds(problem: Problem, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """`cu_seqlens_q` and `cu_seqlens_k`, of a batch of equal lengths too."""
    sequences = problem.sequences
    lengths = ([s.seq_q for s in sequences], [s.seq_k for s in sequences])
    return starts(lengths[0]).to(device), starts(lengths[1]).to(device)


def packing(problem: Problem, device: torch.device) -> tuple[Any, Any, int | None, int | None]:
    """`cu_seqlens_q`, `cu_seqlens_k` and the longest of each; all None for an even batch."""
    if not problem.varlen:
        return None, None, None, None
    return *bounds(problem, device), problem.seq_q, problem.seq_k


def rows(problem: Problem, tensor: torch.Tensor, library: str) -> torch.Tensor:
    """The tensor as packed rows: a view, never a copy; `library` is whose wish that is."""
    if problem.varlen:
        return tensor
    if problem.batch == 1:
        return tensor[0]
    if problem.layout == "bhsd":
        raise Unsupported(
            f"{library} takes the rows of a batch packed, and those of a batch in bhsd are no "
            "view of it"
        )
    return tensor.flatten(0, 1)
