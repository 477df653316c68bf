"""The FlashInfer worker: what it refuses, and its calls' values against a stand-in."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import support

pytest.importorskip("torch")

import torch

import plain_attention
from plain_attention import flash_mask, made, right, right_twice
from regatta_worker.libraries.flashinfer import planned, split_rules
from regatta_worker.on_torch import flashinfer_calls as calls
from regatta_worker.on_torch.packing import starts
from regatta_worker.protocol.channel import Failed, Unsupported

RAGGED = {"q": [3, 24, 7], "k": [5, 24, 16]}
WINDOW = {"left": 4, "right": None, "align": "bottom-right"}
CAUSAL_WINDOW = {"left": 4, "right": 0, "align": "bottom-right"}


class Wrapper:
    """What FlashInfer's wrappers share: a workspace, a layout, and a plan before each run."""

    def __init__(self, float_workspace_buffer: torch.Tensor, kv_layout: str, **given: Any) -> None:
        assert float_workspace_buffer.dtype == torch.uint8
        assert kv_layout == "NHD"
        self.plans = 0

    def _plan(self, q: Any, k: Any, causal: bool, left: int, pages: Any = None) -> None:
        self.plans += 1
        self.rows, self.mask, self.pages = (q, k), flash_mask(causal, left, -1), pages
        assert all(starts.dtype == torch.int32 for starts in self.rows)

    def _paged(self, q: torch.Tensor, cache: Any) -> torch.Tensor:
        """Over the keys and values of each sequence, out of their pages."""
        indices, last, page_size = self.pages
        lengths, found = [], []
        for first, end, used in zip(*self._ends(), last.tolist(), strict=True):
            pages = indices[first:end].long()
            lengths.append((len(pages) - 1) * page_size + used)
            found.append([x[pages].flatten(0, 1)[: lengths[-1]] for x in cache])
        k, v = (torch.cat(parts) for parts in zip(*found, strict=True))
        return self._attention(q, k, v, starts(lengths))

    def _ends(self) -> tuple[list[int], list[int]]:
        starts = self.rows[1].tolist()
        return starts[:-1], starts[1:]

    def _attention(self, q: Any, k: Any, v: Any, starts_k: Any) -> torch.Tensor:
        return plain_attention.forward(q, k, v, self.mask, (self.rows[0], starts_k))


class Ragged(Wrapper):
    def plan(
        self, qo_indptr: Any, kv_indptr: Any, num_qo_heads: int, num_kv_heads: int,
        head_dim_qk: int, head_dim_vo: Any = None, causal: bool = False, window_left: int = -1,
        q_data_type: Any = "float16", kv_data_type: Any = None, fixed_split_size: Any = None,
        disable_split_kv: bool = False,
    ) -> None:  # fmt: skip
        self._plan(qo_indptr, kv_indptr, causal, window_left)

    def run(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return self._attention(q, k, v, self.rows[1])


class Paged(Wrapper):
    def plan(
        self, qo_indptr: Any, paged_kv_indptr: Any, paged_kv_indices: Any,
        paged_kv_last_page_len: Any, num_qo_heads: int, num_kv_heads: int, head_dim_qk: int,
        page_size: int, head_dim_vo: Any = None, causal: bool = False, window_left: int = -1,
        q_data_type: Any = "float16", kv_data_type: Any = None, fixed_split_size: Any = None,
        disable_split_kv: bool = False,
    ) -> None:  # fmt: skip
        pages = (paged_kv_indices, paged_kv_last_page_len, page_size)
        self._plan(qo_indptr, paged_kv_indptr, causal, window_left, pages)

    def run(self, q: torch.Tensor, paged_kv_cache: Any) -> torch.Tensor:
        return self._paged(q, paged_kv_cache)


class Decode(Wrapper):
    def plan(
        self, indptr: Any, indices: Any, last_page_len: Any, num_qo_heads: int, num_kv_heads: int,
        head_dim: int, page_size: int, window_left: int = -1, q_data_type: Any = "float16",
        kv_data_type: Any = None, fixed_split_size: Any = None, disable_split_kv: bool = False,
    ) -> None:  # fmt: skip
        one_each = torch.arange(len(indptr), dtype=torch.int32)
        self._plan(one_each, indptr, False, window_left, (indices, last_page_len, page_size))

    def run(self, q: torch.Tensor, paged_kv_cache: Any) -> torch.Tensor:
        return self._paged(q, paged_kv_cache)


def single(
    q: Any, k: Any, v: Any, causal: bool = False, kv_layout: str = "NHD", window_left: int = -1,
    backend: str = "auto",
) -> torch.Tensor:  # fmt: skip
    assert kv_layout == "NHD"
    mask = flash_mask(causal, window_left, -1)
    return plain_attention.forward(q[None], k[None], v[None], mask)[0]


STAND_IN = SimpleNamespace(
    single_prefill_with_kv_cache=single,
    BatchPrefillWithRaggedKVCacheWrapper=Ragged,
    BatchPrefillWithPagedKVCacheWrapper=Paged,
    BatchDecodeWithPagedKVCacheWrapper=Decode,
)


@pytest.mark.parametrize("mask", [support.FULL, support.CAUSAL_BR, WINDOW, CAUSAL_WINDOW])
def test_values(mask: dict[str, Any]) -> None:
    cross = {"mask": mask, "kv_heads": 2, "seq_q": 9, "seq_k": 21}
    for layout in ("bshd", "bhsd"):
        problem, tensors = made(batch=1, layout=layout, head_dim_v=8, **cross)
        run = calls.single_prefill(STAND_IN, problem, tensors, "auto")
        right(problem, tensors, (run().unsqueeze(0),))
        problem, tensors = made(batch=3, layout=layout, **cross | {"seq_q": 1})
        steps = calls.paged_decode(STAND_IN, problem, tensors, 4, True, {})
        right_twice(problem, tensors, steps.built(problem, each=False))
    for axes in (cross, {"mask": mask, "kv_heads": 2, "varlen": RAGGED}):
        problem, tensors = made(batch=3, **axes)
        steps = calls.ragged_prefill(STAND_IN, problem, tensors, "fa2", {})
        right_twice(problem, tensors, steps.built(problem, each=False))
        # Pages are filled from the inputs, whose contents are others by now.
        problem, tensors = made(batch=3, **axes)
        steps = calls.paged_prefill(STAND_IN, problem, tensors, "fa2", 4, {})
        right_twice(problem, tensors, steps.built(problem, each=False))


def test_decode_of_lengths_that_differ() -> None:
    problem, tensors = made(varlen={"q": [1, 1], "k": [5, 24]}, seq_q=1, seq_k=24)
    steps = calls.paged_decode(STAND_IN, problem, tensors, 4, False, {})
    right(problem, tensors, steps.built(problem, False)())


def test_square_causal_has_no_alignment() -> None:
    problem, tensors = made(mask=support.CAUSAL)
    steps = calls.ragged_prefill(STAND_IN, problem, tensors, "fa3", {})
    right(problem, tensors, steps.built(problem, False)())


def test_pages_lie_in_random_order() -> None:
    problem, tensors = made(batch=2, seq_q=1, seq_k=30)
    pages = calls.Pages.of(problem, tensors, 4)
    assert sorted(pages.indices.tolist()) == list(range(16))
    assert pages.indices.tolist() != list(range(16))
    assert pages.last_page_len.tolist() == [2, 2]
    assert pages.k[pages.indices[7].long(), 2:].abs().min().item() > 0.0


@pytest.mark.parametrize(("each", "plans"), [(False, 1), (True, 3)])
def test_plan_is_made_once_or_in_each_call(
    each: bool, plans: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrappers: list[Ragged] = []

    def wrapper(*given: Any, **named: Any) -> Ragged:
        wrappers.append(Ragged(*given, **named))
        return wrappers[-1]

    monkeypatch.setattr(STAND_IN, "BatchPrefillWithRaggedKVCacheWrapper", wrapper)
    problem, tensors = made(batch=2)
    steps = calls.ragged_prefill(STAND_IN, problem, tensors, "fa2", {})
    call = steps.built(problem, each)
    for _ in range(3):
        results = call()
    right(problem, tensors, results)
    assert wrappers[-1].plans == plans
    assert planned(problem, {"plan": "each" if each else "once"}, steps, {}).varies == each


@pytest.mark.parametrize(
    ("words", "make", "arguments", "axes"),
    [
        ("bottom right", "ragged_prefill", ("fa2", {}), {"mask": support.CAUSAL, "seq_q": 9}),
        ("to the right", "ragged_prefill", ("fa2", {}), {"mask": {**WINDOW, "right": 2}}),
        ("bhsd", "ragged_prefill", ("fa2", {}), {"layout": "bhsd"}),
        ("one query", "paged_decode", (4, True, {}), {"seq_q": 2}),
        ("one head_dim", "paged_decode", (4, True, {}), {"seq_q": 1, "head_dim_v": 8}),
    ],
)
def test_refusals(words: str, make: str, arguments: Any, axes: dict[str, Any]) -> None:
    problem, tensors = made(**{"batch": 2, "seq_k": 24, **axes})
    with pytest.raises(Unsupported, match=words):
        getattr(calls, make)(STAND_IN, problem, tensors, *arguments)


def test_splits_are_refused_where_they_would_not_be_heeded() -> None:
    params = {"disable_split_kv": "yes", "fixed_split_size": 8}
    assert split_rules(params, fa2=True) == {"disable_split_kv": True, "fixed_split_size": 8}
    assert split_rules({}, fa2=False) == {}
    with pytest.raises(Unsupported, match="fa2"):
        split_rules(params, fa2=False)
    with pytest.raises(Failed):
        split_rules({"fixed_split_size": 0}, fa2=True)
