"""Library `xformers`: memory_efficient_attention, as its users call it and by operator."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from regatta_worker.on_torch.case import DTYPES, HALVES, Asked, Built, Variant
from regatta_worker.on_torch.library import TorchLibrary
from regatta_worker.on_torch.variants import Access, autograd_call, splits_here
from regatta_worker.problem.attention import Problem
from regatta_worker.protocol.channel import Message, Unsupported

ACCESS = {"access": ("views", "copies")}
SPLITS = {"num_splits_key": "integer"}


class XformersWorker(TorchLibrary):
    """`xformers.ops.memory_efficient_attention`, backward through its autograd function."""

    NAME = "xformers"
    PACKAGES = ("xformers", "flash-attn")
    # Invalid inputs, and no operator for valid ones; asserts are of its operators.
    REFUSALS = (RuntimeError, ValueError, AssertionError)

    def load(self) -> None:
        """`xformers.ops`: what is missing of its compiled part its operators say themselves."""
        import xformers.ops

        self._xformers = xformers.ops

    def variants(self) -> dict[str, Variant]:
        """The public entry with its own choice of operator, and each operator."""
        every, entry = tuple(DTYPES), "memory_efficient_attention"
        return {
            "default": Variant(f"{entry}, default arguments", every, parameters=ACCESS | SPLITS),
            "cutlass": Variant(f"{entry}, CUTLASS operators", every, parameters=ACCESS | SPLITS),
            "flash": Variant(f"{entry}, FlashAttention-2 operators", HALVES, parameters=ACCESS),
            "flash3": Variant(f"{entry}, FlashAttention-3 operators", HALVES, parameters=ACCESS),
        }

    def build(self, asked: Asked) -> Built:
        """The call, with the operators chosen or left to xFormers."""
        problem, word = asked.problem, asked.params.get("access", "views")
        access = Access(problem, copies=word == "copies")
        bias = _bias(self._xformers.fmha.attn_bias, problem, asked.tensors["q"].device)
        op = None if asked.variant == "default" else self._operators(asked.variant)
        inputs = self._inputs(problem, access, asked, bias)
        used = self._dispatched(problem, inputs) if op is None else _supporting(problem, op, inputs)
        effective: Message = {"access": word} | _names(problem, used)
        splits = asked.params.get("num_splits_key")
        if splits is not None:
            if not problem.has_backward:
                raise Unsupported("memory_efficient_attention's forward has no num_splits_key")
            asked.settings.enter_context(_splitting(self._xformers.fmha.cutlass.BwOp, splits))
        if used and used[1] is self._xformers.fmha.cutlass.BwOp:
            handed_over = _sentinel(used[1]) if splits is None else splits
            effective |= splits_here(problem, handed_over, self._device)
        chosen = {} if op is None else {"op": op}

        def attend(*logical: torch.Tensor) -> torch.Tensor:
            q, k, v = _bmhk(problem, *logical)
            out = self._xformers.memory_efficient_attention(q, k, v, attn_bias=bias, **chosen)
            return _logical(problem, out)

        built = autograd_call(problem, asked.tensors, access, attend)
        return replace(built, effective=effective)

    def _operators(self, name: str) -> tuple[Any, Any]:
        module = getattr(self._xformers.fmha, name, None)
        if module is None:
            raise Unsupported(f"this xFormers has no operators of the name fmha.{name}")
        return module.FwOp, module.BwOp

    def _inputs(self, problem: Problem, access: Access, asked: Asked, bias: Any) -> Any:
        """What xFormers' own checks look at: strides, types and the kind of mask."""
        given = access.read(*(asked.tensors[name] for name in ("q", "k", "v")))
        query, key, value = _bmhk(problem, *given)
        return self._xformers.fmha.Inputs(query=query, key=key, value=value, attn_bias=bias)

    def _dispatched(self, problem: Problem, inputs: Any) -> tuple[Any, Any] | None:
        """The operators that xFormers chooses; None where a release has no such functions."""
        try:
            forward = self._xformers.fmha._dispatch_fw(inputs, problem.has_backward)
            if not problem.has_backward:
                return forward, None
            packed = forward.VARLEN_LSE_PACKED if problem.varlen else None
            return forward, self._xformers.fmha._dispatch_bw(inputs, packed)
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


def _sentinel(operator: Any) -> int | None:
    """What the CUTLASS backward hands over where nothing is asked for: -1 from 0.0.26 to
    0.0.28.post3, which its kernel takes for 1, and None since. Only its source tells."""
    with contextlib.suppress(OSError, TypeError):
        return -1 if "num_splits_key=-1" in inspect.getsource(operator) else None
    return None


@contextlib.contextmanager
def _splitting(operator: Any, num_splits_key: int) -> Iterator[None]:
    """Hands the CUTLASS backward this value where xFormers hands over None.

    -1 is what it handed over from 0.0.26 to 0.0.28.post3 (issue 1176).
    """
    original = operator.OPERATOR

    def with_splits(*args: Any, **named: Any) -> Any:
        return original(*args, **named | {"num_splits_key": num_splits_key})

    operator.OPERATOR = staticmethod(with_splits)
    try:
        yield
    finally:
        operator.OPERATOR = original


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
    top_left, bottom_right = square or mask.align == "top-left", mask.align == "bottom-right"
    if problem.varlen:
        lengths = [list(lengths) for lengths in problem.varlen]
        blocks = biases.BlockDiagonalMask.from_seqlens(*lengths, device=device)
        if mask.is_full:
            return blocks
        if mask.is_causal:
            return blocks.make_causal() if top_left else blocks.make_causal_from_bottomright()
        if mask.right == 0 and mask.left is not None:
            size = mask.left + 1
            if top_left:
                return blocks.make_local_attention(size)
            return blocks.make_local_attention_from_bottomright(size)
        raise Unsupported("xFormers has no block-diagonal mask with a window to the right")
    if mask.is_full:
        return None
    if mask.is_causal:
        if top_left:
            return biases.LowerTriangularMask()
        return biases.LowerTriangularFromBottomRightMask()
    if mask.left is None or mask.right is None:
        raise Unsupported("xFormers has no mask with a window to one side only, unless causal")
    if not (square or bottom_right):
        raise Unsupported("xFormers' local masks are aligned at the bottom right")
    if mask.right == 0:
        return biases.LowerTriangularFromBottomRightLocalAttentionMask(mask.left + 1)
    return biases.LocalAttentionFromBottomRightMask(mask.left, mask.right)


WORKER = XformersWorker
