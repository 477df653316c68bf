"""Library `transformer_engine`: DotProductAttention by backend, and how it selects one.

A call of DotProductAttention compares its AttentionParams with those of the call before,
kept in one slot for all modules, and selects a backend anew where they differ. With the
parameter `layers` one call runs so many modules, as a model does; with `windows = alternate`
every second of them has a sliding window, so that neighbours differ; and `fp8 = autocast` runs
them in an fp8 region that leaves attention itself in 16 bits.
Backward alone is not timed: TransformerEngine empties its autograd nodes as it goes, so a graph
can be differentiated once.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from typing import Any

import torch

from regatta_worker.on_torch.case import Asked, Built, Call, Results, Variant
from regatta_worker.on_torch.library import TorchLibrary
from regatta_worker.on_torch.packing import bounds
from regatta_worker.problem.attention import Problem
from regatta_worker.protocol.channel import Message, Unsupported, positive

BACKENDS = {
    "fused": "NVTE_FUSED_ATTN",
    "flash": "NVTE_FLASH_ATTN",
    "unfused": "NVTE_UNFUSED_ATTN",
}
"""By variant, the variable that leaves the backend to choose from, or with 0 takes it away.

Each selection reads them, not the loading of TransformerEngine.
"""

SUMMARIES = {
    "default": "DotProductAttention, the backend it selects",
    "fused": "DotProductAttention, cuDNN alone",
    "flash": "DotProductAttention, flash-attn alone",
    "unfused": "DotProductAttention, unfused alone",
}

PARAMETERS = {"layers": "integer", "fp8": ("autocast",), "windows": ("alternate",)}

ALTERNATE_LEFT = 256
"""Keys to the left that a windowed layer sees, as in models that mix it with full attention."""

LOGGER = "DotProductAttention"


class TransformerEngineWorker(TorchLibrary):
    """NVIDIA's TransformerEngine, from the version that has `attention.dot_product_attention`."""

    NAME = "transformer_engine"
    PACKAGES = (
        "transformer_engine",
        "transformer_engine_torch",
        "transformer_engine_cu12",
        "transformer_engine_cu13",
        "flash-attn",
    )
    # It checks by assertions, and says by ValueError that no backend is left.
    REFUSALS = (RuntimeError, ValueError, AssertionError)

    def load(self) -> None:
        """TransformerEngine, after torch, whose CUDA libraries it takes."""
        import transformer_engine.pytorch as te
        from transformer_engine.common import recipe
        from transformer_engine.pytorch.attention.dot_product_attention import (
            dot_product_attention,
            utils,
        )
        from transformer_engine.pytorch.quantization import FP8GlobalStateManager

        self._te = te
        self._recipe = recipe
        self._fp8_state = FP8GlobalStateManager
        self._dispatch = dot_product_attention
        self._utils = utils

    def variants(self) -> dict[str, Variant]:
        """One module, by the backends that it may select."""
        return {
            name: Variant(
                summary,
                directions=("forward", "both"),
                parameters=PARAMETERS,
                stores_scores=name == "unfused",
            )
            for name, summary in SUMMARIES.items()
        }

    def prepare(self, request: Message) -> Message:
        """As every library, with the backend that was selected, or why none was."""
        self._ruled_out: list[str] = []
        with contextlib.ExitStack() as self._listening:
            try:
                prepared = super().prepare(request)
            except Unsupported as refusal:
                raise Unsupported(" ".join([str(refusal), *self._ruled_out])) from refusal
        prepared["effective"] |= {"backend": self._selected()}
        return prepared

    def build(self, asked: Asked) -> Built:
        """Modules called one after the other on the same q, k and v."""
        problem, params = asked.problem, asked.params
        layers = positive("layers", params.get("layers", 1))
        alternate = params.get("windows") == "alternate"
        _refuse(problem, layers, alternate)
        # Left last: what is selected under these settings is not to be found by the next case.
        asked.settings.callback(self._forget)
        if asked.variant in BACKENDS:
            asked.settings.enter_context(_environment(asked.variant))
        region: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
        if params.get("fp8") == "autocast":
            # It keeps a list of every module's scales, and updates them all in each region.
            asked.settings.callback(self._fp8_state.reset)
            region = self._autocast()
        self._forget()
        modules = [
            self._te.DotProductAttention(
                problem.heads,
                head_dims(problem),
                num_gqa_groups=problem.kv_heads,
                layer_number=number + 1,
                **mask_arguments(problem, alternate and number % 2 == 1),
            )
            for number in range(layers)
        ]
        # Not before: modules keep the level of logging that they are made under.
        self._listening.enter_context(self._listen())
        call = _call(asked, modules, region)
        return Built(call, effective={"layers": layers}, problems=layers)

    def _autocast(self) -> Callable[[], Any]:
        """An fp8 region that leaves attention in the type of its inputs, entered per call."""
        recipe = self._recipe.DelayedScaling(fp8_dpa=False)
        return lambda: self._te.autocast(enabled=True, recipe=recipe)

    def _forget(self) -> None:
        """Has the next call select, whatever it was called with before."""
        self._dispatch._attention_backends["attention_params"] = None
        self._dispatch._attention_backends["backend_selection_requires_update"] = True

    def _selected(self) -> str:
        """The backend of the last call, with its version or number."""
        kept = self._dispatch._attention_backends
        if kept["use_flash_attention"]:
            return f"flash-{kept.get('flash_attention_backend')}"
        if kept["use_fused_attention"]:
            return f"fused-{int(kept['fused_attention_backend'])}"
        return "unfused" if kept["use_unfused_attention"] else "none"

    @contextlib.contextmanager
    def _listen(self) -> Iterator[None]:
        """Notes why selections made within rule backends out, as TransformerEngine logs it."""
        logger, listener = logging.getLogger(LOGGER), _RuledOut(self._ruled_out)
        # Each selection gives its logger the level that is kept here.
        own, level, kept = logger.level, self._utils.AttentionLogging, "_log_level"
        before = getattr(level, kept)
        logger.addFilter(listener)
        setattr(level, kept, logging.DEBUG)
        try:
            yield
        finally:
            setattr(level, kept, before)
            logger.removeFilter(listener)
            logger.setLevel(own)


@contextlib.contextmanager
def _environment(backend: str) -> Iterator[None]:
    """One backend to choose from, until the end."""
    before = {variable: os.environ.get(variable) for variable in BACKENDS.values()}
    os.environ.update(dict.fromkeys(before, "0") | {BACKENDS[backend]: "1"})
    try:
        yield
    finally:
        for variable, value in before.items():
            if value is None:
                del os.environ[variable]
            else:
                os.environ[variable] = value


class _RuledOut(logging.Filter):
    """Keeps the sentences in which a backend is ruled out, each once, and drops the rest.

    The rest is the whole configuration, tensors included, at each selection.
    """

    def __init__(self, sentences: list[str]) -> None:
        super().__init__()
        self._sentences = sentences

    def filter(self, record: logging.LogRecord) -> bool:
        if str(record.msg).startswith("Disabling "):
            sentence = record.getMessage().strip().rstrip(".") + "."
            if sentence not in self._sentences:
                self._sentences.append(sentence)
        return record.levelno >= logging.WARNING


def head_dims(problem: Problem) -> int | tuple[int, int]:
    """`kv_channels`: the width of keys, and of values where it is another."""
    if problem.head_dim == problem.head_dim_v:
        return problem.head_dim
    return problem.head_dim, problem.head_dim_v


def mask_arguments(problem: Problem, windowed: bool) -> dict[str, Any]:
    """What tells a module its mask and layout; `windowed`: with a window beside the causal mask.

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
    """What TransformerEngine would not refuse itself, and what has no meaning."""
    if problem.layout != "bshd":
        raise Unsupported(
            "DotProductAttention takes bshd, sbhd and thd; it would take views of bhsd for bshd"
        )
    if alternate and layers == 1:
        raise Unsupported("windows=alternate takes turns between layers; give two or more")
    if alternate and not problem.mask.is_causal:
        raise Unsupported("windows=alternate narrows a causal mask in every second layer")


def _call(asked: Asked, modules: list[Any], region: Callable[[], Any]) -> Call:
    """The timed call: all layers; the first layer's results come first."""
    problem, tensors = asked.problem, asked.tensors
    inputs = tuple(tensors[name].requires_grad_(problem.has_backward) for name in ("q", "k", "v"))
    dout, shape = tensors.get("dout"), problem.shape("out")
    packing = _packing(problem, inputs[0].device)

    def forward() -> Results:
        with region():
            return tuple(module(*inputs, **packing).view(shape) for module in modules)

    def both() -> Results:
        outs = forward()
        gradients = [torch.autograd.grad(out, inputs, dout, retain_graph=True) for out in outs]
        return (outs[0], *gradients[0])

    return forward if problem.direction == "forward" else both


def _packing(problem: Problem, device: torch.device) -> dict[str, Any]:
    """Where the sequences of a ragged batch begin and end; nothing for an even one."""
    if not problem.varlen:
        return {}
    starts_q, starts_k = bounds(problem, device)
    return {
        "cu_seqlens_q": starts_q,
        "cu_seqlens_kv": starts_k,
        # Given, or it would be read off the device in each call.
        "max_seqlen_q": problem.seq_q,
        "max_seqlen_kv": problem.seq_k,
    }


WORKER = TransformerEngineWorker
