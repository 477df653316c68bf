"""Library `torch`: SDPA by backend, the operators beneath it, FlexAttention and varlen_attn."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from regatta_worker.census.private import CUTLASS_SPLITS
from regatta_worker.on_torch.case import Access, Call, Results, TorchCase, by_autograd
from regatta_worker.on_torch.library import Library
from regatta_worker.problem.attention import Problem
from regatta_worker.problem.variant import HALVES
from regatta_worker.protocol.channel import Unsupported

EVERY = ("f32", *HALVES)
# No float32 kernel on a GPU.
FUSED = {"dtypes": EVERY, "gpu": {"dtypes": HALVES}}
# The CUTLASS kernels split each float32 product into three of TF32 and keep float32's accuracy;
# the unfused path obeys torch's switch.
UNFUSED = {
    "dtypes": EVERY,
    "stores_scores": True,
    "gpu": {"tf32": torch.backends.cuda.matmul.allow_tf32},
}
SDPA = "scaled_dot_product_attention"

WORKER = Library("torch")


def sdpa(case: TorchCase, backend: SDPBackend) -> Call:
    """`F.scaled_dot_product_attention` with a backend selected.

    `is_causal` is aligned top-left. Any other mask is given as a boolean tensor, and the
    backend says itself whether it takes one.
    """
    case.settings.enter_context(sdpa_kernel(backend))
    mask = case.problem.mask
    is_causal = mask.is_causal and (mask.align == "top-left" or case.problem.is_square)
    bias, grouped = None, case.grouped
    if not is_causal and not mask.is_full:
        seq_q, seq_k = case.problem.seq_q, case.problem.seq_k
        rows = torch.arange(seq_q, device=case.device)[:, None]
        columns = torch.arange(seq_k, device=case.device)[None, :]
        bias = mask.visible(rows, columns, mask.offset(seq_q, seq_k))

    def attend(*logical: torch.Tensor) -> torch.Tensor:
        q, k, v = (x.transpose(1, 2) for x in logical)
        out = F.scaled_dot_product_attention(
            q, k, v, attn_mask=bias, is_causal=is_causal, enable_gqa=grouped
        )
        return out.transpose(1, 2)

    return case.differentiable(attend)


for _name, _summary, _backend, _declared in (
    ("math", "unfused", SDPBackend.MATH, UNFUSED),
    ("flash", "FlashAttention 2", SDPBackend.FLASH_ATTENTION, FUSED),
    ("efficient", "memory-efficient (CUTLASS)", SDPBackend.EFFICIENT_ATTENTION, {"dtypes": EVERY}),
    ("cudnn", "cuDNN", SDPBackend.CUDNN_ATTENTION, FUSED),
):
    _added = WORKER.variant(
        f"sdpa-{_name}",
        f"{SDPA}, {_summary}",
        on_gpu=False,
        packed=False,
        parameters=Access.DECLARED,
        **_declared,
    )
    _added(functools.partial(sdpa, backend=_backend))


# On a CPU the two are unsupported in the dispatcher's words.
@WORKER.variant(
    "efficient",
    "aten::_efficient_attention_forward and _backward called directly",
    on_gpu=False,
    dtypes=EVERY,
    parameters={**Access.DECLARED, "num_splits_key": "integer"},
    effective_from_grid=CUTLASS_SPLITS,
)
def efficient(case: TorchCase) -> Call:
    """The CUTLASS kernels of xFormers.

    `num_splits_key` goes to the operator as it is: None is the heuristic, -1 the value that
    xFormers 0.0.26 to 0.0.28 passed for it, which the operator takes for 1 (xFormers issue 1176).
    """
    problem, splits = case.problem, case.params.get("num_splits_key")
    if case.grouped and problem.has_backward:
        raise Unsupported("_efficient_attention_backward wants as many kv_heads as heads")
    if case.grouped and problem.kv_heads != 1:
        raise Unsupported(
            "_efficient_attention_forward wants as many kv_heads as heads: one key-value head "
            "can be repeated as a view, several cannot"
        )
    if splits is not None and not problem.has_backward:
        raise Unsupported("_efficient_attention_forward has no num_splits_key; backward has")
    kind, window = _custom_mask(problem)
    packing, aten, grouped = case.packing(), torch.ops.aten, case.grouped

    def forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, Any]:
        if grouped:
            k, v = (x.expand(-1, -1, problem.heads, -1) for x in (k, v))
        out, *saved = aten._efficient_attention_forward(
            q, k, v, None, *packing, 0.0, kind, problem.has_backward, **window
        )
        return out, saved

    def backward(
        dout: torch.Tensor, q: Any, k: Any, v: Any, out: torch.Tensor, saved: Any
    ) -> Results:
        logsumexp, seed, offset, *longest = saved
        starts = packing[:2]
        gradients = aten._efficient_attention_backward(
            dout, q, k, v, None, out, *starts, *longest, logsumexp, 0.0, seed, offset, kind, False,
            num_splits_key=splits, **window,
        )  # fmt: skip
        found: Results = gradients[:3]
        return found

    # A packed batch is one row of BMHK.
    return case.operators(forward, backward, batched=True)


def _custom_mask(problem: Problem) -> tuple[int, dict[str, int]]:
    """`custom_mask_type` (0 none, 1 causal top-left, 2 bottom-right) and `window_size`.

    `window_size` counts the query's own position: key `j` is seen while `j > i - window_size`.
    """
    mask = problem.mask
    if mask.is_full:
        return 0, {}
    if mask.right != 0:
        raise Unsupported(
            "_efficient_attention_forward: custom_mask_type: none, causal from the top left or "
            "causal from the bottom right; its window reaches to the left only"
        )
    kind = 1 if problem.is_square or mask.align == "top-left" else 2
    return kind, {} if mask.left is None else {"window_size": mask.left + 1}


@WORKER.variant(
    "flash",
    "aten::_flash_attention_forward and _backward called directly: FlashAttention 2",
    on_gpu=False,
    parameters=Access.DECLARED,
)
def flash(case: TorchCase) -> Call:
    """FlashAttention-2 without SDPA around it."""
    causal, left, right = case.flash_mask()
    window = {"window_size_left": left, "window_size_right": right}
    starts_q, starts_k, longest_q, longest_k = case.packing()
    longest = (longest_q or case.problem.seq_q, longest_k or case.problem.seq_k)
    lengths, aten = (starts_q, starts_k, *longest), torch.ops.aten

    def forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, Any]:
        out, logsumexp, rng_state, unused, _ = aten._flash_attention_forward(
            q, k, v, *lengths, 0.0, causal, False, **window
        )
        return out, (logsumexp, rng_state, unused)

    def backward(dout: Any, q: Any, k: Any, v: Any, out: Any, saved: Any) -> Results:
        logsumexp, rng_state, unused = saved
        gradients: Results = aten._flash_attention_backward(
            dout, q, k, v, out, logsumexp, *lengths, 0.0, causal, rng_state, unused, **window
        )
        return gradients

    return case.operators(forward, backward)


@WORKER.variant(
    "flex",
    "FlexAttention under torch.compile, the mask as blocks",
    # A packed batch would need a mask of documents.
    packed=False,
    dtypes=(*HALVES, "f32"),
    parameters={"backend": ("triton", "flash")},
)
def flex(case: TorchCase) -> Call:
    """The call, which is compiled when it is first made."""
    # Dynamo keeps what it compiled for a function, eight shapes of it at most, and runs the
    # next one unfused: each case begins and ends with nothing kept.
    torch.compiler.reset()
    case.settings.callback(torch.compiler.reset)
    return flex_call(case, torch.compile(flex_attention, dynamic=False))


def flex_call(case: TorchCase, attend: Callable[..., Any]) -> Call:
    """`flex_attention`, which is `attend`, on views in its order `[batch, heads, seq, width]`."""
    problem, backend = case.problem, case.param("backend")
    blocks = None
    if not problem.mask.is_full:
        lengths = (problem.seq_q, problem.seq_k)
        blocks = create_block_mask(mask_function(problem), None, None, *lengths, case.device)
    options = None if backend is None else {"BACKEND": backend.upper()}
    grouped, inputs = case.grouped, case.inputs()

    def forward() -> torch.Tensor:
        q, k, v = (tensor.transpose(1, 2) for tensor in inputs)
        out = attend(q, k, v, block_mask=blocks, enable_gqa=grouped, kernel_options=options)
        return out.transpose(1, 2)

    return by_autograd(problem, forward, inputs, case.tensors.get("dout"))


def mask_function(problem: Problem) -> Callable[..., torch.Tensor]:
    """True if query `i` sees key `j`, as FlexAttention asks; the bounds are constants in it."""
    offset = problem.mask.offset(problem.seq_q, problem.seq_k)
    left, right = problem.mask.left, problem.mask.right
    ahead, behind = offset + (right or 0), offset - (left or 0)

    def causal(b: Any, h: Any, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
        return j <= i + ahead

    def windowed(b: Any, h: Any, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
        return j >= i + behind

    def band(b: Any, h: Any, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
        return causal(b, h, i, j) & windowed(b, h, i, j)

    if left is None:
        return causal
    return windowed if right is None else band


@WORKER.variant("varlen", "torch.nn.attention.varlen.varlen_attn, FlashAttention 2 on packed rows")
def varlen(case: TorchCase) -> Call:
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError as error:
        raise Unsupported(f"torch {torch.__version__} has no varlen_attn: {error}") from error
    return varlen_call(case, varlen_attn)


def varlen_call(case: TorchCase, attend: Callable[..., Any]) -> Call:
    """`varlen_attn`, which is `attend`; a batch of equal lengths is packed by a view."""
    problem, options = case.problem, {}
    if not problem.mask.is_full:
        options["window_size"] = problem.window("varlen_attn")
        if "window_size" not in inspect.signature(attend).parameters:
            raise Unsupported(
                f"varlen_attn of torch {torch.__version__} has no window_size, by which masks are "
                "given"
            )
    starts = case.bounds()
    packed = {name: case.rows(name, "varlen_attn") for name in case.tensors}
    inputs = tuple(packed[name].requires_grad_(problem.has_backward) for name in ("q", "k", "v"))
    shapes = [problem.shape(name) for name in problem.results]

    def forward() -> torch.Tensor:
        return attend(*inputs, *starts, problem.seq_q, problem.seq_k, **options)

    call = by_autograd(problem, forward, inputs, packed.get("dout"))

    def run() -> Results:
        return tuple(x.view(shape) for x, shape in zip(call.run(), shapes, strict=True))

    return replace(call, run=run)
