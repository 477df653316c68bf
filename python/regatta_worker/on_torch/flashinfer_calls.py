"""How FlashInfer is called: attention for serving, forward alone.

Rows are packed, `[total, heads, width]` (layout NHD), and its causal mask and its window are
aligned bottom-right. All but the call for a single sequence work in two steps: `plan()` on
the host, once for given lengths, which decides how blocks share the keys, and `run()`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from regatta_worker.on_torch.case import DTYPES, Built, Tensors
from regatta_worker.on_torch.packing import bounds, rows, starts
from regatta_worker.problem.attention import Problem
from regatta_worker.protocol.channel import Unsupported

NAME = "FlashInfer"
LAYOUT = "NHD"
DEFAULT_PAGE_SIZE = 16
WORKSPACE_BYTES = 256 << 20
"""For partial results of split keys; FlashInfer recommends 128 MB, servers take more."""
PAGE_SEED = 7
"""Of the order of pages: the same in each process."""

Step = Callable[[], torch.Tensor]


@dataclass(frozen=True)
class Steps:
    """A call's two steps."""

    plan: Callable[[], None]
    run: Step
    """Yields packed rows."""
    refresh: Callable[[], None] | None = None
    """Fills what keys and values were copied into, where they were, with their contents now."""

    def built(self, problem: Problem, each: bool) -> Built:
        """The call, planned now, or anew in each call as when lengths change every time."""
        shape = problem.shape("out")
        if not each:
            self.plan()
            return Built(lambda: (self.run().view(shape),), refresh=self.refresh)

        def planned() -> tuple[torch.Tensor]:
            self.plan()
            return (self.run().view(shape),)

        return Built(planned, varies=True, refresh=self.refresh)


def masking(problem: Problem) -> dict[str, Any]:
    """`causal` and `window_left`; FlashInfer's window counts keys before the query's own."""
    mask = problem.mask
    if mask.is_full:
        return {"causal": False, "window_left": -1}
    if mask.right not in (None, 0):
        raise Unsupported("FlashInfer has causal masks and windows to the left; none to the right")
    if mask.align == "top-left" and not problem.is_square:
        raise Unsupported(
            "FlashInfer aligns masks to the bottom right; aligned to the top left they differ "
            "where seq_q and seq_k do"
        )
    left = -1 if mask.left is None else mask.left
    return {"causal": mask.right == 0, "window_left": left}


def single_prefill(flashinfer: Any, problem: Problem, tensors: Tensors, backend: str) -> Step:
    """One sequence; there is nothing to plan."""
    q, k, v = (rows(problem, tensors[name], NAME) for name in ("q", "k", "v"))
    mask = masking(problem)

    def run() -> torch.Tensor:
        return flashinfer.single_prefill_with_kv_cache(
            q, k, v, kv_layout=LAYOUT, backend=backend, **mask
        )

    return run


def ragged_prefill(
    flashinfer: Any, problem: Problem, tensors: Tensors, backend: str, splits: Mapping[str, Any]
) -> Steps:
    """Several sequences, packed."""
    q, k, v = (rows(problem, tensors[name], NAME) for name in ("q", "k", "v"))
    wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(
        _workspace(q.device), LAYOUT, backend=backend
    )
    # On the host, where `plan()` reads them.
    qo_indptr, kv_indptr = bounds(problem, torch.device("cpu"))
    mask, dtype = masking(problem), DTYPES[problem.dtype]

    def plan() -> None:
        wrapper.plan(
            qo_indptr,
            kv_indptr,
            problem.heads,
            problem.kv_heads,
            problem.head_dim,
            head_dim_vo=problem.head_dim_v,
            q_data_type=dtype,
            kv_data_type=dtype,
            **mask,
            **splits,
        )

    return Steps(plan, lambda: wrapper.run(q, k, v))


def paged_prefill(
    flashinfer: Any,
    problem: Problem,
    tensors: Tensors,
    backend: str,
    page_size: int,
    splits: Mapping[str, Any],
) -> Steps:
    """Queries against a cache in pages."""
    q, cache = rows(problem, tensors["q"], NAME), Pages.of(problem, tensors, page_size)
    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(
        _workspace(q.device), LAYOUT, backend=backend
    )
    qo_indptr = starts([sequence.seq_q for sequence in problem.sequences])
    mask, dtype = masking(problem), DTYPES[problem.dtype]

    def plan() -> None:
        wrapper.plan(
            qo_indptr,
            cache.indptr,
            cache.indices,
            cache.last_page_len,
            problem.heads,
            problem.kv_heads,
            problem.head_dim,
            page_size,
            head_dim_vo=problem.head_dim_v,
            q_data_type=dtype,
            kv_data_type=dtype,
            **mask,
            **splits,
        )

    return Steps(plan, lambda: wrapper.run(q, (cache.k, cache.v)), cache.fill)


def paged_decode(
    flashinfer: Any,
    problem: Problem,
    tensors: Tensors,
    page_size: int,
    tensor_cores: bool,
    splits: Mapping[str, Any],
) -> Steps:
    """One query a sequence against a cache in pages."""
    if any(sequence.seq_q != 1 for sequence in problem.sequences):
        raise Unsupported("decoding has one query a sequence: seq_q must be 1")
    if problem.head_dim_v != problem.head_dim:
        raise Unsupported("BatchDecodeWithPagedKVCacheWrapper has one head_dim for keys and values")
    # Bottom-right, a causal mask hides nothing from a single query.
    window = masking(problem)["window_left"]
    # [batch, 1, heads, width] is a view as rows in either layout.
    q = tensors["q"] if problem.varlen else tensors["q"][:, 0]
    cache, dtype = Pages.of(problem, tensors, page_size), DTYPES[problem.dtype]
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
        _workspace(q.device), LAYOUT, use_tensor_cores=tensor_cores
    )

    def plan() -> None:
        wrapper.plan(
            cache.indptr,
            cache.indices,
            cache.last_page_len,
            problem.heads,
            problem.kv_heads,
            problem.head_dim,
            page_size,
            window_left=window,
            q_data_type=dtype,
            kv_data_type=dtype,
            **splits,
        )

    return Steps(plan, lambda: wrapper.run(q, (cache.k, cache.v)), cache.fill)


def _workspace(device: torch.device) -> torch.Tensor:
    # FlashInfer asks for zeros at first use.
    return torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=device)


@dataclass(frozen=True)
class Pages:
    """Keys and values in pages that lie in random order, as in a server that has run a while.

    Filled before the timed call, like a cache. Rows past the end of a sequence hold random
    values, so that a kernel that reads them is found out.
    """

    k: torch.Tensor
    """`[pages, page_size, kv_heads, width]`."""
    v: torch.Tensor
    indptr: torch.Tensor
    """Where each sequence's pages begin in `indices`; on the host."""
    indices: torch.Tensor
    """Pages of the sequences in turn; on the device."""
    last_page_len: torch.Tensor
    """Rows used of each sequence's last page; on the host."""
    fill: Callable[[], None]
    """Writes keys and values as they are now into the pages that they have."""

    @staticmethod
    def of(problem: Problem, tensors: Tensors, page_size: int) -> Pages:
        """The problem's keys and values; pages are of `page_size` rows."""
        lengths = [sequence.seq_k for sequence in problem.sequences]
        counts = [-(-length // page_size) for length in lengths]
        device = tensors["k"].device
        order = torch.randperm(sum(counts), generator=torch.Generator().manual_seed(PAGE_SEED))
        indices = order.to(device)
        k, v = (_pool(tensors[name], len(indices), page_size) for name in ("k", "v"))

        def fill() -> None:
            for pool, name in ((k, "k"), (v, "v")):
                _into_pages(problem, tensors[name], pool, indices, counts)

        fill()
        last = [
            length - (count - 1) * page_size for length, count in zip(lengths, counts, strict=True)
        ]
        last_page_len = torch.tensor(last, dtype=torch.int32)
        return Pages(k, v, starts(counts), indices.to(torch.int32), last_page_len, fill)


def _pool(tensor: torch.Tensor, pages: int, page_size: int) -> torch.Tensor:
    shape = (pages, page_size, *tensor.shape[-2:])
    return torch.empty(shape, dtype=tensor.dtype, device=tensor.device).normal_()


def _into_pages(
    problem: Problem,
    tensor: torch.Tensor,
    pool: torch.Tensor,
    indices: torch.Tensor,
    counts: list[int],
) -> None:
    page_size, heads, width = pool.shape[1:]
    first = 0
    for number, (sequence, count) in enumerate(zip(problem.sequences, counts, strict=True)):
        begin = sequence.k_start
        kept = tensor[begin : begin + sequence.seq_k] if problem.varlen else tensor[number]
        held = pool[indices[first : first + count]].view(-1, heads, width)
        held[: sequence.seq_k] = kept
        pool[indices[first : first + count]] = held.view(count, page_size, heads, width)
        first += count
