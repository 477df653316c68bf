"""How each torch variant is called.

Tensors are logical, `[batch, seq, heads, width]`, and lie in memory as the caller's
layout says; a variant reaches them through views. A variant's `build` does what
precedes the timed call (forward, where only backward is timed) and returns that call.
Results are logical too and are left as the library lays them out, as its users get
them: a copy into the caller's order is made only under `access=copies`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend

from regatta_worker.on_torch.case import Built, Results, Tensors
from regatta_worker.on_torch.cutlass_splits import effective_splits
from regatta_worker.on_torch.packing import packing
from regatta_worker.problem.attention import Mask, Problem
from regatta_worker.protocol.channel import Unsupported

SDPA_BACKENDS = {
    "sdpa-math": SDPBackend.MATH,
    "sdpa-flash": SDPBackend.FLASH_ATTENTION,
    "sdpa-efficient": SDPBackend.EFFICIENT_ATTENTION,
    "sdpa-cudnn": SDPBackend.CUDNN_ATTENTION,
}


def _ordered(logical: torch.Tensor, layout: str) -> torch.Tensor:
    """The tensor lying in memory in this order; a copy only if it does not already."""
    if layout == "bhsd":
        return logical.transpose(1, 2).contiguous().transpose(1, 2)
    return logical.contiguous()


class Access:
    """The parameter `access`: strided views, or the needless copies a wrapper may make.

    `copies` is `.transpose(1, 2).contiguous()` of each input into the order the caller
    does not hold, and of the result back (flash-attention issue 827).
    """

    def __init__(self, problem: Problem, copies: bool) -> None:
        if copies and problem.varlen:
            raise Unsupported("access=copies: a packed batch has no heads to transpose")
        self._copies = copies
        self._layout = problem.layout
        self._other = "bshd" if problem.layout == "bhsd" else "bhsd"

    def read(self, *tensors: torch.Tensor) -> Results:
        """What the kernel is given."""
        if not self._copies:
            return tensors
        return tuple(_ordered(tensor, self._other) for tensor in tensors)

    def deliver(self, *results: torch.Tensor) -> Results:
        """What the caller is given."""
        if not self._copies:
            return results
        return tuple(_ordered(result, self._layout) for result in results)


def autograd_call(
    problem: Problem,
    tensors: Tensors,
    access: Access,
    attend: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor],
) -> Built:
    """`attend(q, k, v)` on logical tensors, and its gradient by autograd."""
    inputs = tuple(tensors[name].requires_grad_(problem.has_backward) for name in ("q", "k", "v"))

    def forward() -> torch.Tensor:
        return access.deliver(attend(*access.read(*inputs)))[0]

    return by_autograd(problem, forward, inputs, tensors.get("dout"))


def by_autograd(
    problem: Problem, forward: Callable[[], torch.Tensor], inputs: Results, dout: Any
) -> Built:
    """The problem's direction of a differentiable forward.

    For backward it is run here, and anew for other contents: a graph for each.
    """

    def gradient(out: torch.Tensor) -> Results:
        found: Results = torch.autograd.grad(out, inputs, dout, retain_graph=True)
        return found

    if problem.direction == "forward":
        return Built(lambda: (forward(),))
    if problem.direction == "backward":
        saved = [forward()]

        def refresh() -> None:
            # First, or there would be two graphs at a time.
            saved.clear()
            saved.append(forward())

        return Built(lambda: gradient(saved[0]), earlier_stream=True, refresh=refresh)

    def both() -> Results:
        out = forward()
        return (out.detach(), *gradient(out))

    return Built(both)


def written(into: Any, values: Any) -> None:
    """What forward made of other contents, written over what it made before, at the same
    addresses. Both are tensors, or tuples of them and of what no contents change."""
    if isinstance(into, torch.Tensor):
        # Inputs that are given as they lie have been changed already.
        if into.data_ptr() != values.data_ptr():
            into.copy_(values)
    elif isinstance(into, (tuple, list)):
        for one, value in zip(into, values, strict=True):
            written(one, value)


def operator_call(
    problem: Problem,
    tensors: Tensors,
    access: Access,
    forward: Callable[..., tuple[torch.Tensor, Any]],
    backward: Callable[..., Results],
) -> Built:
    """Operators that are called apart, without autograd.

    `forward(q, k, v)` yields `out` and whatever else `backward(dout, q, k, v, out, saved)`
    takes of it to make the three gradients; all in the order of the logical tensors.
    """
    inputs = tuple(tensors[name] for name in ("q", "k", "v"))
    dout = tensors.get("dout")

    def made() -> tuple[Results, torch.Tensor, Any]:
        given = access.read(*inputs)
        return given, *forward(*given)

    def gradient(given: Results, out: torch.Tensor, saved: Any) -> Results:
        return access.deliver(*backward(*access.read(dout), *given, out, saved))

    if problem.direction == "forward":
        return Built(lambda: access.deliver(made()[1]))
    if problem.direction == "backward":
        before = made()
        return Built(lambda: gradient(*before), refresh=lambda: written(before, made()))

    def both() -> Results:
        now = made()
        return (*access.deliver(now[1]), *gradient(*now))

    return Built(both)


def build_sdpa(problem: Problem, tensors: Tensors, access: Access) -> Built:
    """`F.scaled_dot_product_attention`; the caller has selected the backend.

    `is_causal` is aligned top-left. Any other mask is given as a boolean tensor, and the
    backend says itself whether it takes one.
    """
    if problem.varlen:
        raise Unsupported("scaled_dot_product_attention takes no packed ragged batch")
    is_causal = problem.mask.is_causal and (problem.mask.align == "top-left" or problem.is_square)
    bias = None
    if not is_causal and not problem.mask.is_full:
        bias = _boolean_mask(problem, tensors["q"].device)
    grouped = problem.heads != problem.kv_heads

    def attend(*logical: torch.Tensor) -> torch.Tensor:
        q, k, v = (x.transpose(1, 2) for x in logical)
        out = F.scaled_dot_product_attention(
            q, k, v, attn_mask=bias, is_causal=is_causal, enable_gqa=grouped
        )
        return out.transpose(1, 2)

    return autograd_call(problem, tensors, access, attend)


def _boolean_mask(problem: Problem, device: torch.device) -> torch.Tensor:
    rows = torch.arange(problem.seq_q, device=device)[:, None]
    columns = torch.arange(problem.seq_k, device=device)[None, :]
    return problem.mask.visible(rows, columns, problem.mask.offset(problem.seq_q, problem.seq_k))


def _custom_mask(mask: Mask, square: bool) -> tuple[int, dict[str, int]]:
    """`custom_mask_type` (0 none, 1 causal top-left, 2 bottom-right) and `window_size`.

    `window_size` counts the query's own position: key `j` is seen while `j > i - window_size`.
    """
    if mask.is_full:
        return 0, {}
    if mask.right != 0:
        raise Unsupported(
            "_efficient_attention_forward: custom_mask_type is none, causal from the top left or "
            "causal from the bottom right; its window reaches to the left only"
        )
    kind = 1 if square or mask.align == "top-left" else 2
    return kind, {} if mask.left is None else {"window_size": mask.left + 1}


def build_efficient(
    problem: Problem, tensors: Tensors, access: Access, num_splits_key: int | None
) -> Built:
    """`aten::_efficient_attention_forward` and `_backward`, the CUTLASS kernels of xFormers.

    `num_splits_key` goes to the op as it is: `None` is the heuristic, -1 the value that
    xFormers 0.0.26 to 0.0.28 passed for it, which the op takes for 1 (xFormers issue 1176).
    """
    if problem.heads != problem.kv_heads:
        if problem.has_backward:
            raise Unsupported("_efficient_attention_backward wants as many kv_heads as heads")
        if problem.kv_heads != 1:
            raise Unsupported(
                "_efficient_attention_forward wants as many kv_heads as heads: one key-value head "
                "can be repeated as a view, several cannot"
            )
    if num_splits_key is not None and not problem.has_backward:
        raise Unsupported("_efficient_attention_forward has no num_splits_key; backward has")
    custom_mask_type, window = _custom_mask(problem.mask, problem.is_square)
    cu_seqlens_q, cu_seqlens_k, max_q, max_k = packing(problem, tensors["q"].device)
    aten = torch.ops.aten
    inputs = tuple(tensors[name] for name in ("q", "k", "v"))
    dout = tensors.get("dout")
    if problem.varlen:
        # A packed batch is one row of BMHK.
        inputs = tuple(x.unsqueeze(0) for x in inputs)
        dout = None if dout is None else dout.unsqueeze(0)

    def forward() -> tuple[Results, Results, tuple[Any, ...]]:
        q, k, v = access.read(*inputs)
        if problem.heads != problem.kv_heads:
            k, v = (x.expand(-1, -1, problem.heads, -1) for x in (k, v))
        out, logsumexp, seed, offset, seqlen_q, seqlen_k = aten._efficient_attention_forward(
            q,
            k,
            v,
            None,
            cu_seqlens_q,
            cu_seqlens_k,
            max_q,
            max_k,
            0.0,
            custom_mask_type,
            problem.has_backward,
            **window,
        )
        return (q, k, v), (out, logsumexp, seed, offset), (seqlen_q, seqlen_k)

    def backward(saved: tuple[Results, Results, tuple[Any, ...]]) -> Results:
        (q, k, v), (out, logsumexp, seed, offset), (seqlen_q, seqlen_k) = saved
        gradients = aten._efficient_attention_backward(
            access.read(dout)[0],
            q,
            k,
            v,
            None,
            out,
            cu_seqlens_q,
            cu_seqlens_k,
            seqlen_q,
            seqlen_k,
            logsumexp,
            0.0,
            seed,
            offset,
            custom_mask_type,
            False,
            num_splits_key=num_splits_key,
            **window,
        )
        return access.deliver(*gradients[:3])

    def unpacked(results: Results) -> Results:
        return tuple(x.squeeze(0) for x in results) if problem.varlen else results

    if problem.direction == "forward":
        return Built(lambda: unpacked(access.deliver(forward()[1][0])))
    if problem.direction == "backward":
        saved = forward()
        return Built(lambda: unpacked(backward(saved)), refresh=lambda: written(saved, forward()))

    def both() -> Results:
        saved = forward()
        return unpacked((*access.deliver(saved[1][0]), *backward(saved)))

    return Built(both)


def splits_here(problem: Problem, requested: int | None, device: torch.device) -> dict[str, int]:
    """`num_splits_key` as the CUTLASS backward takes it on this device, where that is known."""
    if not problem.has_backward or device.type != "cuda":
        return {}
    properties = torch.cuda.get_device_properties(device)
    splits = effective_splits(
        problem,
        requested,
        (properties.major, properties.minor),
        properties.shared_memory_per_block_optin,
        torch.are_deterministic_algorithms_enabled()
        and not torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    return {} if splits is None else {"num_splits_key": splits}
