"""Library `flashinfer`: attention for serving, forward alone: prefill of packed rows and of pages,
decode of pages.

Rows are packed, `[total, heads, width]` (layout NHD), and its causal mask and its window are
aligned bottom-right. All but the call for a single sequence work in two steps: `plan()` on
the host, once for given lengths, which decides how blocks share the keys, and `run()`. Kernels are
compiled with nvcc when they are first used.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from dataclasses import dataclass

import torch

from regatta_worker.on_torch.case import DTYPES, Call, TorchCase, starts
from regatta_worker.on_torch.library import Library
from regatta_worker.problem.attention import Problem
from regatta_worker.protocol.channel import Message, Unsupported, positive

LAYOUT = "NHD"
WORKSPACE_BYTES = 256 << 20
"""For partial results of split keys; FlashInfer recommends 128 MB, servers take more."""
PAGE_ROWS = 16
PAGE_SEED = 7
"""The seed of the order of pages: the same in each process."""

PLAN = {"plan": ("once", "each")}
SPLITS = {"disable_split_kv": ("yes",), "fixed_split_size": "integer"}
BACKEND = {"backend": ("fa2", "fa3")}
PAGES = {"page_size": "integer"}

WORKER = Library(
    "flashinfer",
    packages=("flashinfer-python", "apache-tvm-ffi"),
    modules=("flashinfer",),
    refusals=(RuntimeError, ValueError, NotImplementedError, AssertionError),
)


@WORKER.variant(
    "prefill",
    "single_prefill_with_kv_cache; BatchPrefillWithRaggedKVCacheWrapper for a batch",
    directions=("forward",),
    parameters={**PLAN, **SPLITS, **BACKEND},
)
def prefill(case: TorchCase) -> Call:
    """Packed rows; of one sequence there is nothing to plan."""
    problem, backend = case.problem, _backend(case)
    splits = split_rules(case, fa2=case.effective.get("backend") == "fa2")
    q, k, v = (case.rows(name, "FlashInfer") for name in ("q", "k", "v"))
    mask = masking(problem)
    if problem.batch == 1 and not problem.varlen:
        if given := sorted({*PLAN, *SPLITS} & set(case.params)):
            raise Unsupported(
                f"single_prefill_with_kv_cache, which does one sequence, has no {given[0]}"
            )
        single = case.module.single_prefill_with_kv_cache
        options = {"kv_layout": LAYOUT, "backend": backend, **mask}
        return Call(lambda: (single(q, k, v, **options).unsqueeze(0),))
    wrapper = case.module.BatchPrefillWithRaggedKVCacheWrapper(
        _workspace(case), LAYOUT, backend=backend
    )
    # On the host, where `plan()` reads them.
    lengths = case.bounds(torch.device("cpu"))

    def plan() -> None:
        wrapper.plan(*lengths, *_heads(problem), **_widths(problem), **mask, **splits)

    return planned(case, plan, lambda: wrapper.run(q, k, v))


@WORKER.variant(
    "paged-prefill",
    "BatchPrefillWithPagedKVCacheWrapper",
    directions=("forward",),
    parameters={**PLAN, **SPLITS, **BACKEND, **PAGES},
)
def paged_prefill(case: TorchCase) -> Call:
    problem, backend = case.problem, _backend(case)
    splits = split_rules(case, fa2=case.effective.get("backend") == "fa2")
    q, cache = case.rows("q", "FlashInfer"), Pages.from_case(case)
    wrapper = case.module.BatchPrefillWithPagedKVCacheWrapper(
        _workspace(case), LAYOUT, backend=backend
    )
    qo_indptr = starts([sequence.seq_q for sequence in problem.sequences])
    mask = masking(problem)

    def plan() -> None:
        lengths = (*_heads(problem), cache.rows)
        wrapper.plan(qo_indptr, *cache.table, *lengths, **_widths(problem), **mask, **splits)

    return planned(case, plan, lambda: wrapper.run(q, (cache.k, cache.v)), cache.fill)


@WORKER.variant(
    "paged-decode",
    "BatchDecodeWithPagedKVCacheWrapper, one query a sequence",
    directions=("forward",),
    parameters={**PLAN, **SPLITS, **PAGES, "tensor_cores": ("yes", "no")},
)
def paged_decode(case: TorchCase) -> Call:
    problem = case.problem
    tensor_cores = case.param("tensor_cores", "no") == "yes"
    splits = split_rules(case, fa2=tensor_cores)
    if any(sequence.seq_q != 1 for sequence in problem.sequences):
        raise Unsupported("decoding has one query a sequence: seq_q must be 1")
    if problem.head_dim_v != problem.head_dim:
        raise Unsupported("BatchDecodeWithPagedKVCacheWrapper has one head_dim for keys and values")
    # Bottom-right, a causal mask hides nothing from a single query.
    left = masking(problem)["window_left"]
    # [batch, 1, heads, width] is a view as rows in either layout.
    q = case.tensors["q"] if problem.varlen else case.tensors["q"][:, 0]
    cache, dtype = Pages.from_case(case), DTYPES[problem.dtype]
    wrapper = case.module.BatchDecodeWithPagedKVCacheWrapper(
        _workspace(case), LAYOUT, use_tensor_cores=tensor_cores
    )
    types = {"q_data_type": dtype, "kv_data_type": dtype}

    def plan() -> None:
        lengths = (*_heads(problem), cache.rows)
        wrapper.plan(*cache.table, *lengths, window_left=left, **types, **splits)

    return planned(case, plan, lambda: wrapper.run(q, (cache.k, cache.v)), cache.fill)


def planned(
    case: TorchCase,
    plan: Callable[[], None],
    run: Callable[[], torch.Tensor],
    refresh: Callable[[], None] | None = None,
) -> Call:
    """The call, planned now, or again in each call as when lengths change every time; `run` yields
    packed rows."""
    shape = case.problem.shape("out")
    if case.param("plan", "once") == "once":
        plan()
        return Call(lambda: (run().view(shape),), refresh)

    def both() -> tuple[torch.Tensor]:
        plan()
        return (run().view(shape),)

    return Call(both, refresh, varies=True)


def masking(problem: Problem) -> Message:
    """`causal` and `window_left`; FlashInfer's window counts keys before the query's own."""
    left, _ = problem.window("FlashInfer")
    if problem.mask.right not in (None, 0):
        raise Unsupported("FlashInfer has causal masks and windows to the left; none to the right")
    return {"causal": problem.mask.right == 0, "window_left": left}


def split_rules(case: TorchCase, fa2: bool) -> Message:
    """The rules by which `plan()` splits the keys; those that the kernels ignore are refused."""
    rules: Message = {}
    if "disable_split_kv" in case.params:
        rules["disable_split_kv"] = True
    if "fixed_split_size" in case.params:
        rules["fixed_split_size"] = positive("fixed_split_size", case.params["fixed_split_size"])
    if rules and not fa2:
        raise Unsupported(
            f"{next(iter(rules))} is heeded by the kernels of backend fa2 alone (for decode: "
            'tensor_cores = "yes")'
        )
    return rules


def _backend(case: TorchCase) -> str:
    """The backend that is asked for; `effective` has the one that FlashInfer itself chooses where
    none is."""
    backend: str = case.param("backend") or "auto"
    if backend == "auto":
        # The rule of its own, which is not public: another version may have it elsewhere.
        with contextlib.suppress(ImportError, AttributeError):
            rule = importlib.import_module("flashinfer.utils").determine_attention_backend
            dtype = DTYPES[case.problem.dtype]
            case.effective["backend"] = rule(case.device, 0, False, False, dtype, dtype)
    return backend


def _heads(problem: Problem) -> tuple[int, int, int]:
    return problem.heads, problem.kv_heads, problem.head_dim


def _widths(problem: Problem) -> Message:
    dtype = DTYPES[problem.dtype]
    return {"head_dim_vo": problem.head_dim_v, "q_data_type": dtype, "kv_data_type": dtype}


def _workspace(case: TorchCase) -> torch.Tensor:
    # FlashInfer asks for zeros at first use.
    return torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=case.device)


@dataclass(frozen=True)
class Pages:
    """Keys and values in pages that lie in random order, as in a server that has run a while.

    Filled before the timed call, like a cache. Rows past the end of a sequence hold random
    values, so that a kernel that reads them is found out.
    """

    k: torch.Tensor
    """`[pages, rows, kv_heads, width]`."""
    v: torch.Tensor
    rows: int
    """The rows of a page."""
    table: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
    """The start of each sequence's pages in the list of pages, on the host; that list, in the
    order of sequences, on the device; rows used of each sequence's last page, on the host."""
    fill: Callable[[], None]
    """Writes keys and values as they are now into the pages that they have."""

    @staticmethod
    def from_case(case: TorchCase) -> Pages:
        problem, device = case.problem, case.device
        rows = positive("page_size", case.param("page_size", PAGE_ROWS))
        lengths = [sequence.seq_k for sequence in problem.sequences]
        counts = [-(-length // rows) for length in lengths]
        order = torch.randperm(sum(counts), generator=torch.Generator().manual_seed(PAGE_SEED))
        pages = order.to(device)
        pools = {}
        for name in ("k", "v"):
            tensor = case.tensors[name]
            shape = (len(pages), rows, *tensor.shape[-2:])
            pools[name] = torch.empty(shape, dtype=tensor.dtype, device=device).normal_()

        def fill() -> None:
            for name, pool in pools.items():
                packed = case.tensors[name] if problem.varlen else case.tensors[name].flatten(0, 1)
                for own, places in zip(packed.split(lengths), pages.split(counts), strict=True):
                    values = pool[places].flatten(0, 1)
                    values[: len(own)] = own
                    pool[places] = values.unflatten(0, (len(places), rows))

        fill()
        last = [length - (count - 1) * rows for length, count in zip(lengths, counts, strict=True)]
        used = torch.tensor(last, dtype=torch.int32)
        table = (starts(counts), pages.to(torch.int32), used)
        return Pages(pools["k"], pools["v"], rows, table, fill)
