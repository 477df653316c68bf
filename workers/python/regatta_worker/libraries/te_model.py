"""Library `te_model`: a model of TransformerEngine's selection, for machines without it.

How often `transformer_engine` selects a backend in a call does not depend on the device.
Here the same parameters (`layers`, `fp8`, `windows`, `comparison`) go through a model of its
cache (on_torch/te_selection.py), and attention itself is torch's. It is not TransformerEngine, and
its times say nothing of TransformerEngine's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from regatta_worker.libraries.transformer_engine import ALTERNATE_LEFT, PARAMETERS
from regatta_worker.on_torch.case import DTYPES, Asked, Built, Call, Results, Variant
from regatta_worker.on_torch.library import TorchLibrary
from regatta_worker.on_torch.te_selection import (
    COMPARISONS,
    AttentionParams,
    Recipe,
    SelectionCache,
    fp8_meta,
)
from regatta_worker.on_torch.variants import Access, build_sdpa
from regatta_worker.problem.attention import Mask, Problem
from regatta_worker.protocol.channel import Unsupported, positive

SLOTS = {"one-slot": 1, "two-slots": 2}

SUMMARIES = {
    "one-slot": "a model of TransformerEngine's selection, which keeps the last; torch's SDPA",
    "two-slots": "a model of TransformerEngine's selection, if it kept the last two; torch's SDPA",
}


@dataclass(frozen=True)
class Layer:
    """One module: its own problem and fp8 state, and torch's call for it."""

    problem: Problem
    meta: dict[str, Any]
    attend: Call

    def params(self) -> AttentionParams:
        """Gathered anew for each call, as a module does that does not know what changed."""
        problem = self.problem
        left = problem.mask.left
        return AttentionParams(
            qkv_dtype=problem.dtype,
            qkv_layout="bshd_bshd_bshd",
            batch_size=problem.batch,
            num_heads=problem.heads,
            num_gqa_groups=problem.kv_heads,
            max_seqlen_q=problem.seq_q,
            max_seqlen_kv=problem.seq_k,
            head_dim_qk=problem.head_dim,
            head_dim_v=problem.head_dim_v,
            attn_mask_type="causal" if problem.mask.right == 0 else "no_mask",
            window_size=(-1 if left is None else left, 0 if problem.mask.right == 0 else -1),
            bottom_right_diagonal=problem.mask.align == "bottom-right",
            is_training=True,
            fp8="recipe" in self.meta,
            fp8_meta=self.meta,
        )


class TeModelWorker(TorchLibrary):
    """The model's cache in front of torch's SDPA."""

    NAME = "te_model"

    def variants(self) -> dict[str, Variant]:
        """By the number of selections kept; a backward alone selects nothing."""
        return {
            name: Variant(
                summary, tuple(DTYPES), ("forward", "both"), PARAMETERS, stores_scores=True
            )
            for name, summary in SUMMARIES.items()
        }

    def build(self, asked: Asked) -> Built:
        """Layers called one after the other on the same q, k and v, each asking the cache."""
        problem, params = asked.problem, asked.params
        number = positive("layers", params.get("layers", 1))
        alternate = params.get("windows") == "alternate"
        if alternate and number == 1:
            raise Unsupported("windows=alternate takes turns between layers; give two or more")
        if alternate and not problem.mask.is_causal:
            raise Unsupported("windows=alternate narrows a causal mask in every second layer")
        if problem.mask.left is not None or problem.mask.right not in (None, 0):
            raise Unsupported("the model has full and causal masks; see windows=alternate")
        region = Recipe() if params.get("fp8") == "autocast" else None
        windowed = replace(problem, mask=Mask(ALTERNATE_LEFT, 0, problem.mask.align))
        layers = []
        for index in range(number):
            own = windowed if alternate and index % 2 == 1 else problem
            # Forward and both alone: nothing is made of the inputs that could be out of date.
            attend = build_sdpa(own, asked.tensors, Access(own, copies=False)).call
            layers.append(Layer(own, fp8_meta(region), attend))
        same = COMPARISONS[params.get("comparison", "today")]
        cache = SelectionCache(SLOTS[asked.variant], same)
        effective = {"layers": number, "backend": cache.backend(layers[0].params())}
        return Built(_call(layers, cache), effective, problems=number)


def _call(layers: list[Layer], cache: SelectionCache) -> Callable[[], Results]:
    """All layers in turn; the first one's results."""

    def call() -> Results:
        first: tuple[torch.Tensor, ...] = ()
        for layer in layers:
            if cache.backend(layer.params()) == "none":
                raise RuntimeError("no backend is left for these parameters")
            results = layer.attend()
            first = first or results
        return first

    return call


WORKER = TeModelWorker
