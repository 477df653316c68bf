"""A problem as `jax.nn.dot_product_attention` is asked for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from regatta_worker.problem.attention import Problem
from regatta_worker.protocol.channel import Unsupported


@dataclass(frozen=True)
class Attend:
    """How a case is computed, on tensors in the caller's layout."""

    forward: Callable[..., Any]
    """Of `q, k, v`."""
    results: Callable[..., tuple[Any, ...]] | None = None
    """Of `q, k, v, dout`: all results of the direction. None: JAX differentiates `forward`."""


def _mask_arguments(problem: Problem) -> dict[str, Any]:
    """How `dot_product_attention` is told the mask.

    Its `is_causal` and `local_window_size` are aligned top-left (`jnp.tril` and
    `query <= key + left` in jax/_src/nn/functions.py); the other alignment has to be
    an explicit boolean mask, unless both mean the same.
    """
    mask, seq_q, seq_k = problem.mask, problem.seq_q, problem.seq_k
    if mask.is_full:
        return {}
    if problem.has_blind_query:
        raise Unsupported(
            "jax.nn.dot_product_attention gives a query that sees no key the mean of all "
            "values, not 0, and this mask leaves such queries"
        )
    if mask.align == "top-left" or problem.is_square:
        if mask.is_causal:
            return {"is_causal": True}
        unbounded = max(seq_q, seq_k)
        window = tuple(unbounded if side is None else side for side in (mask.left, mask.right))
        return {"is_causal": mask.right == 0, "local_window_size": window}
    rows, columns = np.arange(seq_q)[:, None], np.arange(seq_k)[None, :]
    visible = mask.visible(rows, columns, mask.offset(seq_q, seq_k))
    return {"mask": jnp.asarray(visible[None, None])}


def attention(problem: Problem, implementation: str) -> Callable[..., Any]:
    """Attention on tensors in the caller's layout.

    The library takes BTNH alone. A BHSD caller's tensors are transposed inside the
    compiled function: that is JAX's way, and XLA decides whether it costs a copy.
    """
    masking = _mask_arguments(problem)
    transposed = problem.layout == "bhsd"

    def attend(*tensors: Any) -> Any:
        if transposed:
            tensors = tuple(jnp.swapaxes(tensor, 1, 2) for tensor in tensors)
        out = jax.nn.dot_product_attention(*tensors, implementation=implementation, **masking)
        return jnp.swapaxes(out, 1, 2) if transposed else out

    return attend


def with_gradients(attend: Callable[..., Any], qkv: tuple[Any, ...], dout: Any) -> Any:
    """Attention, and the gradients of its inputs."""
    out, pull_back = jax.vjp(attend, *qkv)
    return (out, *pull_back(dout))
