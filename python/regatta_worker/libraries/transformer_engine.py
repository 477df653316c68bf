"""Library `transformer_engine`: DotProductAttention by backend, and how it selects one.

A call of DotProductAttention compares its AttentionParams with those of the call before,
kept in one slot for all modules, and selects a backend again if they differ. One call runs
`layers` modules, a parameter, as a model does. With `windows = alternate` every second module has
a sliding window, so that neighbours differ; `fp8 = autocast` runs them in an fp8 region that leaves
attention itself in 16 bits.
Backward alone is not timed: TransformerEngine empties its autograd nodes as it goes, so a graph
can be differentiated once.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch

from regatta_worker.on_torch.case import Call, Results, TorchCase
from regatta_worker.on_torch.library import Library
from regatta_worker.problem.attention import Problem
from regatta_worker.protocol.channel import Unsupported, positive

BACKENDS = {
    "fused": "NVTE_FUSED_ATTN",
    "flash": "NVTE_FLASH_ATTN",
    "unfused": "NVTE_UNFUSED_ATTN",
}
"""By variant, the variable that leaves the backend to choose from, or with 0 takes it away.

Each selection reads them, not the loading of TransformerEngine.
"""

ALTERNATE_LEFT = 256
"""Keys to the left that a windowed layer sees, as in models that mix it with full attention."""

WORKER = Library(
    "transformer_engine",
    packages=(
        "transformer_engine",
        "transformer_engine_torch",
        "transformer_engine_cu12",
        "transformer_engine_cu13",
        "flash-attn",
    ),
    # From the version that has this module.
    modules=("transformer_engine.pytorch.attention.dot_product_attention.dot_product_attention",),
    # It checks by assertions, and says by ValueError that no backend is left.
    refusals=(RuntimeError, ValueError, AssertionError),
)


def attention(case: TorchCase, backend: str) -> Call:
    """Modules called one after the other on the same q, k and v."""
    problem, selection = case.problem, case.module._attention_backends
    layers = positive("layers", case.param("layers", 1))
    alternate = case.params.get("windows") == "alternate"
    _refuse(problem, layers, alternate)
    te = importlib.import_module("transformer_engine.pytorch")

    def forget() -> None:
        """Has the next call select, whatever it was called with before."""
        selection["attention_params"] = None
        selection["backend_selection_requires_update"] = True

    # Left last: what is selected under these settings is not to be found by the next case.
    case.settings.callback(forget)
    if backend in BACKENDS:
        alone = dict.fromkeys(BACKENDS.values(), "0") | {BACKENDS[backend]: "1"}
        case.settings.enter_context(mock.patch.dict(os.environ, alone))
    region: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
    if case.params.get("fp8") == "autocast":
        # It keeps a list of every module's scales, and updates them all in each region.
        quantization = importlib.import_module("transformer_engine.pytorch.quantization")
        case.settings.callback(quantization.FP8GlobalStateManager.reset)
        recipes = importlib.import_module("transformer_engine.common.recipe")
        # Attention stays in the type of its inputs.
        recipe = recipes.DelayedScaling(fp8_dpa=False)
        region = functools.partial(te.autocast, enabled=True, recipe=recipe)
    forget()
    # The widths of keys, and of values if theirs differs.
    widths = (problem.head_dim, problem.head_dim_v)
    modules = [
        te.DotProductAttention(
            problem.heads,
            widths if len(set(widths)) > 1 else problem.head_dim,
            num_gqa_groups=problem.kv_heads,
            layer_number=number + 1,
            **mask_arguments(problem, alternate and number % 2 == 1),
        )
        for number in range(layers)
    ]
    return Call(_run(case, modules, region), problems=layers, selected=lambda: _selected(selection))


for _name, _selects in (
    ("default", "the backend it selects"),
    ("fused", "cuDNN alone"),
    ("flash", "flash-attn alone"),
    ("unfused", "unfused alone"),
):
    WORKER.variant(
        _name,
        f"DotProductAttention, {_selects}",
        on_gpu=False,
        directions=("forward", "both"),
        parameters={"layers": "integer", "fp8": ("autocast",), "windows": ("alternate",)},
        stores_scores=_name == "unfused",
    )(functools.partial(attention, backend=_name))


def _selected(selection: Any) -> dict[str, str]:
    """The backend of the last call, with its version or number."""
    name = "unfused" if selection["use_unfused_attention"] else "none"
    if selection["use_flash_attention"]:
        name = f"flash-{selection.get('flash_attention_backend')}"
    elif selection["use_fused_attention"]:
        name = f"fused-{int(selection['fused_attention_backend'])}"
    return {"backend": name}


def mask_arguments(problem: Problem, windowed: bool) -> dict[str, Any]:
    """A module's mask and layout as arguments; `windowed`: with a window beside the causal mask.

    `causal` is aligned top-left and `causal_bottom_right` as it says; a window without
    either is aligned by `bottom_right_diagonal`. An unbounded side of a window is as wide
    as the longer sequence.
    """
    mask = problem.mask
    bottom_right = mask.align == "bottom-right"
    arguments: dict[str, Any] = {
        "qkv_format": "thd" if problem.varlen else "bshd",
        "attention_type": "self" if problem.is_square else "cross",
    }
    ragged = "padding" if problem.varlen else ""
    left = ALTERNATE_LEFT if windowed else mask.left
    if mask.right == 0:
        causal = "causal" if problem.is_square or not bottom_right else "causal_bottom_right"
        arguments["attn_mask_type"] = "_".join(filter(None, (ragged, causal)))
        arguments["window_size"] = (-1 if left is None else left, 0)
        return arguments
    arguments["attn_mask_type"] = ragged or "no_mask"
    if mask.is_full:
        arguments["window_size"] = (-1, -1)
        return arguments
    longer = max(problem.seq_q, problem.seq_k)
    right = longer if mask.right is None else mask.right
    arguments["window_size"] = (longer if left is None else left, right)
    if not problem.is_square:
        arguments["bottom_right_diagonal"] = bottom_right
    return arguments


def _refuse(problem: Problem, layers: int, alternate: bool) -> None:
    """Refuses problems without meaning, and those that TransformerEngine would not refuse."""
    if problem.layout != "bshd":
        raise Unsupported(
            "DotProductAttention takes bshd, sbhd and thd; it would take views of bhsd for bshd"
        )
    if alternate and layers == 1:
        raise Unsupported("windows=alternate takes turns between layers; give two or more")
    if alternate and not problem.mask.is_causal:
        raise Unsupported("windows=alternate narrows a causal mask in every second layer")


def _run(case: TorchCase, modules: list[Any], region: Callable[[], Any]) -> Callable[[], Results]:
    """The timed call: all layers; the first layer's results come first."""
    problem, inputs = case.problem, case.inputs()
    dout, shape, packing = case.tensors.get("dout"), problem.shape("out"), {}
    if problem.varlen:
        # The longest are given, or they would be read off the device in each call.
        longest = {"max_seqlen_q": problem.seq_q, "max_seqlen_kv": problem.seq_k}
        starts_q, starts_k = case.bounds()
        packing = {"cu_seqlens_q": starts_q, "cu_seqlens_kv": starts_k, **longest}

    def forward() -> Results:
        with region():
            return tuple(module(*inputs, **packing).view(shape) for module in modules)

    def both() -> Results:
        outs = forward()
        gradients = [torch.autograd.grad(out, inputs, dout, retain_graph=True) for out in outs]
        return (outs[0], *gradients[0])

    return forward if problem.direction == "forward" else both
