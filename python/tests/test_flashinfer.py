"""The FlashInfer worker: what it refuses, and its calls' values against a stand-in."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import support

pytest.importorskip("torch")

import torch

from regatta_worker.libraries.flashinfer import planned, split_rules
from regatta_worker.on_torch import flashinfer_calls as calls
from regatta_worker.problem import inputs
from regatta_worker.problem.attention import Problem
from regatta_worker.problem.reference import Arrays, ReferenceCache
from regatta_worker.protocol.channel import Failed, Unsupported

RAGGED = {"q": [3, 24, 7], "k": [5, 24, 16]}
WINDOW = {"left": 4, "right": None, "align": "bottom-right"}
CAUSAL_WINDOW = {"left": 4, "right": 0, "align": "bottom-right"}


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, window_left: int
) -> torch.Tensor:
    """One sequence in NHD, with FlashInfer's masks: both aligned to the bottom right."""
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q, k) / q.shape[-1] ** 0.5
    offset = k.shape[0] - q.shape[0]
    rows = torch.arange(q.shape[0])[:, None] + offset
    columns = torch.arange(k.shape[0])[None, :]
    if causal:
        scores = scores.masked_fill(columns > rows, -torch.inf)
    if window_left >= 0:
        scores = scores.masked_fill(columns < rows - window_left, -torch.inf)
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), v)


class Wrapper:
    """What FlashInfer's wrappers share: a workspace, a layout, and a plan before each run."""

    def __init__(self, float_workspace_buffer: torch.Tensor, kv_layout: str, **given: Any) -> None:
        assert float_workspace_buffer.dtype == torch.uint8
        assert kv_layout == "NHD"
        self.given, self.plans = given, 0
        self.planned: dict[str, Any] = {}

    def _plan(self, **planned: Any) -> None:
        self.plans, self.planned = self.plans + 1, planned
        made.append(self)

    def _rows(self, indptr: torch.Tensor) -> list[slice]:
        return [
            slice(*pair) for pair in zip(indptr[:-1].tolist(), indptr[1:].tolist(), strict=True)
        ]

    def _sequences(self, cache: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Keys and values of each sequence, out of their pages."""
        p, found = self.planned, []
        for rows, last in zip(self._rows(p["indptr"]), p["last"].tolist(), strict=True):
            pages = p["indices"][rows].long()
            count = (len(pages) - 1) * p["page_size"] + last
            found.append(tuple(x[pages].flatten(0, 1)[:count] for x in cache))
        return found


class Ragged(Wrapper):
    def plan(
        self,
        qo_indptr: torch.Tensor,
        kv_indptr: torch.Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        head_dim_vo: int | None = None,
        causal: bool = False,
        window_left: int = -1,
        q_data_type: Any = "float16",
        kv_data_type: Any = None,
        fixed_split_size: int | None = None,
        disable_split_kv: bool = False,
    ) -> None:
        assert qo_indptr.dtype == kv_indptr.dtype == torch.int32
        self._plan(q=qo_indptr, k=kv_indptr, mask=(causal, window_left))

    def run(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        rows = zip(self._rows(self.planned["q"]), self._rows(self.planned["k"]), strict=True)
        return torch.cat([attention(q[a], k[b], v[b], *self.planned["mask"]) for a, b in rows])


class Paged(Wrapper):
    def plan(
        self,
        qo_indptr: torch.Tensor,
        paged_kv_indptr: torch.Tensor,
        paged_kv_indices: torch.Tensor,
        paged_kv_last_page_len: torch.Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        page_size: int,
        head_dim_vo: int | None = None,
        causal: bool = False,
        window_left: int = -1,
        q_data_type: Any = "float16",
        kv_data_type: Any = None,
        fixed_split_size: int | None = None,
        disable_split_kv: bool = False,
    ) -> None:
        self._plan(
            q=qo_indptr,
            indptr=paged_kv_indptr,
            indices=paged_kv_indices,
            last=paged_kv_last_page_len,
            page_size=page_size,
            mask=(causal, window_left),
        )

    def run(self, q: torch.Tensor, paged_kv_cache: Any) -> torch.Tensor:
        rows = zip(self._rows(self.planned["q"]), self._sequences(paged_kv_cache), strict=True)
        return torch.cat([attention(q[a], *kv, *self.planned["mask"]) for a, kv in rows])


class Decode(Wrapper):
    def plan(
        self,
        indptr: torch.Tensor,
        indices: torch.Tensor,
        last_page_len: torch.Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        window_left: int = -1,
        q_data_type: Any = "float16",
        kv_data_type: Any = None,
        fixed_split_size: int | None = None,
        disable_split_kv: bool = False,
    ) -> None:
        self._plan(
            indptr=indptr,
            indices=indices,
            last=last_page_len,
            page_size=page_size,
            window=window_left,
        )

    def run(self, q: torch.Tensor, paged_kv_cache: Any) -> torch.Tensor:
        pairs = zip(q, self._sequences(paged_kv_cache), strict=True)
        window = self.planned["window"]
        return torch.cat([attention(row[None], *kv, False, window) for row, kv in pairs])


def single(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = False,
    kv_layout: str = "NHD",
    window_left: int = -1,
    backend: str = "auto",
) -> torch.Tensor:
    assert kv_layout == "NHD"
    return attention(q, k, v, causal, window_left)


made: list[Wrapper] = []
"""The wrapper of each plan."""
STAND_IN = SimpleNamespace(
    single_prefill_with_kv_cache=single,
    BatchPrefillWithRaggedKVCacheWrapper=Ragged,
    BatchPrefillWithPagedKVCacheWrapper=Paged,
    BatchDecodeWithPagedKVCacheWrapper=Decode,
)


class TestValues:
    def setup_method(self) -> None:
        made.clear()

    def of(self, **axes: Any) -> tuple[Problem, dict[str, torch.Tensor]]:
        problem = Problem.from_wire(support.wire(**axes))
        tensors = {
            name: inputs.torch_input(problem, name, 3, torch.float32, torch.device("cpu"))
            for name in ("q", "k", "v")
        }
        return problem, tensors

    def right_again(self, problem: Problem, tensors: Any, built: Any) -> None:
        """Also once other contents lie where these did, such as in the pages of a cache."""
        (out,) = built()
        self.right(problem, tensors, out)
        support.put(4, tensors, {}, built.refresh)
        (out,) = built()
        self.right(problem, tensors, out)
        support.put(3, tensors, {}, built.refresh)

    def right(self, problem: Problem, tensors: Any, out: torch.Tensor) -> None:
        assert tuple(out.shape) == problem.shape("out")
        exact = ReferenceCache(Arrays.of_torch(torch.device("cpu"))).of(problem, 3, tensors)["out"]
        exact = torch.as_tensor(exact).view(out.shape)
        torch.testing.assert_close(out.double(), exact, atol=1e-5, rtol=1e-5)

    def test_one_sequence(self) -> None:
        for mask in (support.FULL, support.CAUSAL_BR, WINDOW, CAUSAL_WINDOW):
            for layout in ("bshd", "bhsd"):
                axes = {"batch": 1, "seq_q": 9, "seq_k": 24, "kv_heads": 2, "head_dim_v": 8}
                problem, tensors = self.of(mask=mask, layout=layout, **axes)
                run = calls.single_prefill(STAND_IN, problem, tensors, "auto")
                self.right(problem, tensors, run().unsqueeze(0))

    def test_batches(self) -> None:
        for mask in (support.FULL, support.CAUSAL_BR, CAUSAL_WINDOW):
            for axes in ({"batch": 3, "seq_q": 9, "seq_k": 21}, {"batch": 3, "varlen": RAGGED}):
                problem, tensors = self.of(mask=mask, kv_heads=2, **axes)
                ragged = calls.ragged_prefill(STAND_IN, problem, tensors, "fa2", {})
                paged = calls.paged_prefill(STAND_IN, problem, tensors, "fa2", 4, {})
                for steps in (ragged, paged):
                    self.right_again(problem, tensors, steps.built(problem, each=False))

    def test_square_causal_has_no_alignment(self) -> None:
        problem, tensors = self.of(mask=support.CAUSAL)
        (out,) = calls.ragged_prefill(STAND_IN, problem, tensors, "fa3", {}).built(problem, False)()
        self.right(problem, tensors, out)

    def test_decode(self) -> None:
        for mask in (support.FULL, support.CAUSAL_BR, CAUSAL_WINDOW):
            for layout in ("bshd", "bhsd"):
                axes = {"batch": 3, "seq_q": 1, "seq_k": 21, "kv_heads": 2}
                problem, tensors = self.of(mask=mask, layout=layout, **axes)
                steps = calls.paged_decode(STAND_IN, problem, tensors, 4, True, {})
                self.right_again(problem, tensors, steps.built(problem, each=False))
        ragged = {"q": [1, 1], "k": [5, 24]}
        problem, tensors = self.of(varlen=ragged, seq_q=1, seq_k=24)
        (out,) = calls.paged_decode(STAND_IN, problem, tensors, 4, False, {}).built(
            problem, False
        )()
        self.right(problem, tensors, out)

    def test_pages_lie_in_random_order(self) -> None:
        problem, tensors = self.of(batch=2, seq_q=1, seq_k=30)
        pages = calls.Pages.of(problem, tensors, 4)
        assert sorted(pages.indices.tolist()) == list(range(16))
        assert pages.indices.tolist() != list(range(16))
        assert pages.last_page_len.tolist() == [2, 2]
        assert pages.k[pages.indices[7].long(), 2:].abs().min().item() > 0.0

    def test_plan_is_made_once_or_in_each_call(self) -> None:
        for each, plans in ((False, 1), (True, 3)):
            problem, tensors = self.of(batch=2)
            steps = calls.ragged_prefill(STAND_IN, problem, tensors, "fa2", {})
            call = steps.built(problem, each)
            for _ in range(3):
                (out,) = call()
            self.right(problem, tensors, out)
            assert made[-1].plans == plans
            built = planned(problem, {"plan": "each" if each else "once"}, steps, {})
            assert built.varies == each

    def test_refusals(self) -> None:
        prefill, decode = calls.ragged_prefill, calls.paged_decode
        for words, make, arguments, axes in (
            ("bottom right", prefill, ("fa2", {}), {"mask": support.CAUSAL, "seq_q": 9}),
            ("to the right", prefill, ("fa2", {}), {"mask": {**WINDOW, "right": 2}}),
            ("bhsd", prefill, ("fa2", {}), {"layout": "bhsd"}),
            ("one query", decode, (4, True, {}), {"seq_q": 2}),
            ("one head_dim", decode, (4, True, {}), {"seq_q": 1, "seq_k": 9, "head_dim_v": 8}),
        ):
            problem, tensors = self.of(**{"batch": 2, "seq_k": 24, **axes})
            with pytest.raises(Unsupported, match=words):
                make(STAND_IN, problem, tensors, *arguments)

    def test_splits_are_refused_where_they_would_not_be_heeded(self) -> None:
        params = {"disable_split_kv": "yes", "fixed_split_size": 8}
        assert split_rules(params, fa2=True) == {"disable_split_kv": True, "fixed_split_size": 8}
        assert split_rules({}, fa2=False) == {}
        with pytest.raises(Unsupported, match="fa2"):
            split_rules(params, fa2=False)
        with pytest.raises(Failed):
            split_rules({"fixed_split_size": 0}, fa2=True)
