"""Library `flash_attn`: FlashAttention 2, 3 and 4, each where its own package is installed."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

import torch

from regatta_worker.on_torch.case import Asked, Built, Results, Tensors, Variant
from regatta_worker.on_torch.flash_variants import UNBOUNDED, band
from regatta_worker.on_torch.library import TorchLibrary
from regatta_worker.on_torch.packing import packing
from regatta_worker.on_torch.variants import Access, autograd_call, operator_call
from regatta_worker.problem.attention import Problem
from regatta_worker.protocol.channel import Unsupported

MODULES = {
    "fa2": ("flash_attn.flash_attn_interface",),
    # Either registers the operators of `torch.ops.flash_attn_3`; the second is xFormers' copy.
    "fa3": ("flash_attn_interface", "xformers.ops.fmha.flash3"),
    "fa4": ("flash_attn.cute.interface",),
}
"""By generation, the modules that have it; the first that can be imported is used."""
ACCESS = {"access": ("views", "copies")}


class FlashAttnWorker(TorchLibrary):
    """Three generations under one name; they need not be installed together."""

    NAME = "flash_attn"
    # xFormers brings a copy of FlashAttention-3.
    PACKAGES = ("flash-attn", "flash-attn-3", "flash-attn-4", "nvidia-cutlass-dsl", "xformers")
    # FlashAttention-4 asserts what it takes.
    REFUSALS = (RuntimeError, ValueError, AssertionError)

    def load(self) -> None:
        """Imports each generation by itself: one that is absent says nothing of the others."""
        self._modules: dict[str, ModuleType] = {}
        self._missing: dict[str, str] = {}
        for variant, modules in MODULES.items():
            reasons = []
            for module in modules:
                try:
                    self._modules[variant] = _imported(variant, module)
                    break
                except Exception as error:
                    traceback.print_exc()
                    reasons.append(
                        f"{module} cannot be imported here: {type(error).__name__}: {error}"
                    )
            else:
                self._missing[variant] = "; ".join(reasons)
        if not self._modules:
            raise ImportError("; ".join(self._missing.values()))

    def variants(self) -> dict[str, Variant]:
        """By generation."""
        return {
            "fa2": Variant("FlashAttention-2, flash_attn_func", parameters=ACCESS),
            "fa3": Variant(
                "FlashAttention-3, flash_attn_3::fwd and ::bwd called directly",
                parameters=ACCESS | {"num_splits": "integer"},
            ),
            "fa4": Variant(
                "FlashAttention-4 (CuTe DSL), _flash_attn_fwd and _flash_attn_bwd",
                parameters=ACCESS,
            ),
        }

    def build(self, asked: Asked) -> Built:
        """The call of one generation."""
        problem, tensors, variant = asked.problem, asked.tensors, asked.variant
        if variant in self._missing:
            raise Unsupported(self._missing[variant])
        word = asked.params.get("access", "views")
        access = Access(problem, copies=word == "copies")
        effective: dict[str, Any] = {"access": word}
        if variant == "fa2":
            built = build_fa2(self._modules[variant], problem, tensors, access)
            return replace(built, effective=effective)
        if variant == "fa4":
            built = build_fa4(self._modules[variant], problem, tensors, access)
            return replace(built, effective=effective)
        splits = asked.params.get("num_splits")
        # Below 1 the heuristic decides, and does not tell.
        chosen = {} if splits is None or splits < 1 else {"num_splits": splits}
        return replace(build_fa3(problem, tensors, access, splits), effective=effective | chosen)


def _imported(variant: str, module: str) -> ModuleType:
    found = importlib.import_module(module)
    # xFormers' module can be imported where its copy was not built.
    if variant == "fa3" and not hasattr(torch.ops.flash_attn_3, "fwd"):
        raise ImportError("it registers no operator torch.ops.flash_attn_3.fwd")
    return found


def _lengths(problem: Problem, tensors: Tensors) -> dict[str, Any]:
    names = ("cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k")
    return dict(zip(names, packing(problem, tensors["q"].device), strict=True))


def build_fa2(library: ModuleType, problem: Problem, tensors: Tensors, access: Access) -> Built:
    """`flash_attn_func` or `flash_attn_varlen_func`: the raw operators differ by release."""
    causal, left, right = band(problem)
    lengths = _lengths(problem, tensors) if problem.varlen else {}
    function = library.flash_attn_varlen_func if problem.varlen else library.flash_attn_func

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return function(q, k, v, **lengths, causal=causal, window_size=(left, right))

    return autograd_call(problem, tensors, access, attend)


def build_fa3(problem: Problem, tensors: Tensors, access: Access, num_splits: int | None) -> Built:
    """`torch.ops.flash_attn_3`; `num_splits` of the keys in forward, `None` the heuristic."""
    if num_splits is not None and not problem.has_forward:
        raise Unsupported("flash_attn_3::bwd has no num_splits; forward has")
    operators = torch.ops.flash_attn_3
    causal, left, right = band(problem)
    given = _lengths(problem, tensors) | {
        "softmax_scale": problem.head_dim**-0.5,
        "is_causal": causal,
        "window_size_left": left,
        "window_size_right": right,
    }
    splits = {} if num_splits is None else {"num_splits": num_splits}

    def forward(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        out, logsumexp, *_ = operators.fwd(q, k, v, **given, **splits)
        return out, logsumexp

    def backward(dout: torch.Tensor, *saved: torch.Tensor) -> Results:
        return tuple(operators.bwd(dout, *saved, **given)[:3])

    return operator_call(problem, tensors, access, forward, backward)


def build_fa4(library: ModuleType, problem: Problem, tensors: Tensors, access: Access) -> Built:
    """The halves of `flash_attn.cute`'s autograd function; the first call compiles."""
    causal, left, right = band(problem)
    given: Mapping[str, Any] = _lengths(problem, tensors) | {
        "causal": causal,
        "window_size_left": None if left == UNBOUNDED else left,
        "window_size_right": None if right == UNBOUNDED else right,
    }

    def forward(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        out, logsumexp, *_ = library._flash_attn_fwd(
            q, k, v, **given, return_lse=problem.has_backward
        )
        return out, logsumexp

    def backward(
        dout: torch.Tensor,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        out: torch.Tensor,
        logsumexp: torch.Tensor,
    ) -> Results:
        return tuple(library._flash_attn_bwd(q, k, v, out, dout, logsumexp, **given)[:3])

    return operator_call(problem, tensors, access, forward, backward)


WORKER = FlashAttnWorker
