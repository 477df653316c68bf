"""Library `fla`: softmax attention of flash-linear-attention (fla-core), in Triton."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from regatta_worker.on_torch.case import Asked, Built, Variant
from regatta_worker.on_torch.library import TorchLibrary
from regatta_worker.on_torch.packing import bounds
from regatta_worker.on_torch.variants import Access, autograd_call
from regatta_worker.problem.attention import Problem
from regatta_worker.protocol.channel import Unsupported

MOST_HEAD_DIM = 256
"""Of queries and keys: one block of the kernel holds all of it."""


class FlaWorker(TorchLibrary):
    """`fla.ops.attn.parallel_attn`, backward through its autograd function.

    Up to 0.5.2 that function is given to `torch.compile`. From 0.5.0 on a release may hand the
    work to TileLang, where that is installed. The import asks what GPU there is.
    """

    NAME = "fla"
    PACKAGES = ("fla-core", "einops", "tilelang")
    # The operator asserts what it takes.
    REFUSALS = (RuntimeError, ValueError, AssertionError)

    def load(self) -> None:
        """`fla.ops.attn`: the package that is called fla-core, or flash-linear-attention."""
        from fla.ops.attn import parallel_attn

        self._attend = parallel_attn

    def compiles(self) -> bool:
        """True where there is a GPU, which Triton compiles for alone."""
        return self._gpu is not None

    def variants(self) -> dict[str, Variant]:
        """One operator."""
        return {"parallel": Variant("parallel_attn of fla.ops.attn: causal softmax attention")}

    def build(self, asked: Asked) -> Built:
        """The operator, causal, on sequences of one length or packed."""
        if not self.compiles():
            raise Unsupported("Triton compiles for GPUs, and there is none that torch can use")
        problem, tensors = asked.problem, asked.tensors
        given = _window(problem, inspect.signature(self._attend).parameters)
        if problem.head_dim > MOST_HEAD_DIM:
            raise Unsupported(f"parallel_attn takes a head_dim of at most {MOST_HEAD_DIM}")
        if any(sequence.seq_q != sequence.seq_k for sequence in problem.sequences):
            raise Unsupported("parallel_attn is of self-attention: seq_q and seq_k must be equal")
        if problem.varlen:
            # Its kernels count in int64, as its users hand them over.
            given["cu_seqlens"] = bounds(problem, tensors["q"].device)[0].long()

        def attend(*logical: torch.Tensor) -> torch.Tensor:
            rows = (x.unsqueeze(0) for x in logical) if problem.varlen else logical
            out: torch.Tensor = self._attend(*rows, **given)
            return out.squeeze(0) if problem.varlen else out

        return autograd_call(problem, tensors, Access(problem, copies=False), attend)


def _window(problem: Problem, parameters: Any) -> dict[str, Any]:
    """The mask as the operator is given it: causal, and from 0.5.0 on with a window.

    `window_size` counts the query's own position.
    """
    mask = problem.mask
    if mask.is_causal:
        return {}
    if mask.right != 0 or mask.left is None:
        raise Unsupported("parallel_attn is causal; it has no other mask but a window behind")
    if "window_size" not in parameters:
        raise Unsupported("parallel_attn has no window before fla-core 0.5.0")
    return {"window_size": mask.left + 1}


WORKER = FlaWorker
