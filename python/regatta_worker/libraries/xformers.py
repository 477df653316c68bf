"""Library `xformers`: memory_efficient_attention, as its users call it and by operator."""

from __future__ import annotations

import functools
from typing import Any
from unittest import mock

import torch

from regatta_worker.census.private import CUTLASS_SPLITS
from regatta_worker.on_torch.case import DTYPES, Access, Call, TorchCase
from regatta_worker.on_torch.library import Library
from regatta_worker.problem.attention import Problem
from regatta_worker.problem.variant import HALVES
from regatta_worker.protocol.channel import Unsupported

WORKER = Library(
    "xformers",
    packages=("xformers", "flash-attn"),
    # The operators name the missing parts of its compiled code themselves.
    modules=("xformers.ops",),
    # Invalid inputs, and no operator for valid ones; asserts are of its operators.
    refusals=(RuntimeError, ValueError, AssertionError),
)


def attention(case: TorchCase, operators: str | None) -> Call:
    """`memory_efficient_attention`, backward through its autograd function, with the operators
    chosen or left to xFormers."""
    problem, fmha = case.problem, case.module.fmha
    bias = _bias(fmha.attn_bias, problem, case.device)
    op = None if operators is None else _operators(fmha, operators)
    given = Access(case).read(*(case.tensors[name] for name in ("q", "k", "v")))
    query, key, value = _bmhk(problem, *given)
    # The inputs of xFormers' own checks: strides, types and the kind of mask.
    inputs = fmha.Inputs(query=query, key=key, value=value, attn_bias=bias)
    used = _dispatched(fmha, problem, inputs) if op is None else _supporting(problem, op, inputs)
    case.effective |= _names(problem, used)
    splits = case.params.get("num_splits_key")
    if splits is not None:
        if not problem.has_backward:
            raise Unsupported("memory_efficient_attention's forward has no num_splits_key")
        original = fmha.cutlass.BwOp.OPERATOR

        def split(*args: Any, **named: Any) -> Any:
            """With the value in the place of what xFormers passes."""
            return original(*args, **named | {"num_splits_key": splits})

        patch = mock.patch.object(fmha.cutlass.BwOp, "OPERATOR", staticmethod(split))
        case.settings.enter_context(patch)
    chosen = {} if op is None else {"op": op}

    def attend(*logical: torch.Tensor) -> torch.Tensor:
        q, k, v = _bmhk(problem, *logical)
        out = case.module.memory_efficient_attention(q, k, v, attn_bias=bias, **chosen)
        return _logical(problem, out)

    return case.differentiable(attend)


_SPLITS = {**Access.DECLARED, "num_splits_key": "integer"}
for _name, _operators_of, _dtypes, _parameters in (
    ("default", "default arguments", tuple(DTYPES), _SPLITS),
    ("cutlass", "CUTLASS operators", tuple(DTYPES), _SPLITS),
    ("flash", "FlashAttention-2 operators", HALVES, Access.DECLARED),
    ("flash3", "FlashAttention-3 operators", HALVES, Access.DECLARED),
):
    _added = WORKER.variant(
        _name,
        f"memory_efficient_attention, {_operators_of}",
        on_gpu=False,
        dtypes=_dtypes,
        parameters=_parameters,
        effective_from_grid=CUTLASS_SPLITS,
    )
    _added(functools.partial(attention, operators=None if _name == "default" else _name))


def _operators(fmha: Any, name: str) -> tuple[Any, Any]:
    module = getattr(fmha, name, None)
    if module is None:
        raise Unsupported(f"this xFormers has no operators of the name fmha.{name}")
    return module.FwOp, module.BwOp


def _dispatched(fmha: Any, problem: Problem, inputs: Any) -> tuple[Any, Any] | None:
    """The operators that xFormers chooses; None where a release has no such functions."""
    try:
        forward = fmha._dispatch_fw(inputs, problem.has_backward)
        if not problem.has_backward:
            return forward, None
        packed = forward.VARLEN_LSE_PACKED if problem.varlen else None
        return forward, fmha._dispatch_bw(inputs, packed)
    except NotImplementedError as error:
        # Several lines with indents, a paragraph for each operator.
        raise Unsupported(" ".join(str(error).split())) from error
    except (AttributeError, TypeError):
        return None


def _supporting(problem: Problem, op: tuple[Any, Any], inputs: Any) -> tuple[Any, Any]:
    """The operators; refused where they say that they do not support the inputs.

    Given both, xFormers asks the forward operator alone, and backward fails in an assert.
    """
    used = (op[0], op[1] if problem.has_backward else None)
    for operator in used:
        if operator is not None and (reasons := operator.not_supported_reasons(inputs)):
            raise Unsupported(f"{operator.NAME}: {'; '.join(reasons)}")
    return used


def _names(problem: Problem, used: tuple[Any, Any] | None) -> dict[str, str]:
    """The operators that the timed call runs, by xFormers' names, which hold their versions."""
    if used is None:
        return {}
    forward, backward = used
    ran = {"forward_operator": forward.NAME} if problem.has_forward else {}
    return ran | ({} if backward is None else {"backward_operator": backward.NAME})


def _bmhk(problem: Problem, *logical: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """q, k, v as xFormers takes them, without a copy: `[batch, seq, heads, width]`.

    A packed batch is one row; where heads share keys it is `[batch, seq, groups, heads in
    a group, width]`, with keys and values expanded over the group.
    """
    q, k, v = (x.unsqueeze(0) for x in logical) if problem.varlen else logical
    if problem.heads == problem.kv_heads:
        return q, k, v
    group = problem.heads // problem.kv_heads
    k, v = (x.unsqueeze(3).expand(-1, -1, -1, group, -1) for x in (k, v))
    return q.unflatten(2, (problem.kv_heads, group)), k, v


def _logical(problem: Problem, out: torch.Tensor) -> torch.Tensor:
    if problem.heads != problem.kv_heads:
        out = out.flatten(2, 3)
    return out.squeeze(0) if problem.varlen else out


def _bias(biases: Any, problem: Problem, device: torch.device) -> Any:
    """The `attn_bias` that says the problem's mask, None for a full one."""
    mask, square = problem.mask, problem.is_square
    top_left = square or mask.align == "top-left"
    if problem.varlen:
        lengths = [list(lengths) for lengths in problem.varlen]
        blocks = biases.BlockDiagonalMask.from_seqlens(*lengths, device=device)
        if mask.is_full:
            return blocks
        if mask.right != 0:
            raise Unsupported("xFormers has no block-diagonal mask with a window to the right")
        if mask.left is None:
            return blocks.make_causal() if top_left else blocks.make_causal_from_bottomright()
        local = "make_local_attention" if top_left else "make_local_attention_from_bottomright"
        return getattr(blocks, local)(mask.left + 1)
    if mask.is_full:
        return None
    if mask.is_causal:
        name = "LowerTriangularMask" if top_left else "LowerTriangularFromBottomRightMask"
        return getattr(biases, name)()
    if mask.left is None or mask.right is None:
        raise Unsupported("xFormers has no mask with a window to one side only, unless causal")
    if not square and top_left:
        raise Unsupported("xFormers' local masks are aligned at the bottom right")
    if mask.right == 0:
        return biases.LowerTriangularFromBottomRightLocalAttentionMask(mask.left + 1)
    return biases.LocalAttentionFromBottomRightMask(mask.left, mask.right)
