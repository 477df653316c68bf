"""Library `triton`: a fused kernel of our own, tuned once for a range of lengths or for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
import triton

from regatta_worker.on_torch.case import Asked, Built, Results, Tensors, Variant
from regatta_worker.on_torch.library import TorchLibrary
from regatta_worker.on_torch.triton_flash import attend, autotuned
from regatta_worker.problem.attention import Problem
from regatta_worker.problem.lengths import Lengths
from regatta_worker.problem.planes import chosen
from regatta_worker.problem.reference import ReferenceCache, difference, worst
from regatta_worker.protocol.channel import Failed, Message, Unsupported

SUMMARIES = {
    "flash": "fused forward in Triton, tuned once for all lengths up to a power of two",
    "flash-exact": "the same kernel, tuned anew for each length",
}

HEAD_DIMS = (64, 128)
MOST_GRID_Y = 65535
"""Blocks in y of a CUDA grid: batch times heads."""


def tuning_key(variant: str, seq_q: int) -> int:
    """What the autotuner of a variant takes a problem for: lengths alike in it share a choice."""
    return seq_q if variant == "flash-exact" else triton.next_power_of_2(seq_q)


class TritonWorker(TorchLibrary):
    """A kernel of our own, by what every library on torch shares.

    Triton compiles for GPUs alone; with TRITON_INTERPRET=1 it runs its kernels on the host,
    element by element, which tells whether they are right and nothing of their speed.
    """

    NAME = "triton"
    PACKAGES = ("triton",)

    def variants(self) -> dict[str, Variant]:
        """One kernel under two ways to key its tuning."""
        # What its configurations differ in: a case that asks for one is not tuned.
        parameters = {"lengths": "integer", "BLOCK_Q": "integer", "num_warps": "integer"}
        return {
            name: Variant(summary, directions=("forward",), parameters=parameters)
            for name, summary in SUMMARIES.items()
        }

    def build(self, asked: Asked) -> Built:
        """A call of the problem itself, or of lengths that are new in each call."""
        problem, lengths = asked.problem, asked.params.get("lengths")
        interpreted = bool(triton.knobs.runtime.interpret)
        if self._gpu is None and not interpreted:
            raise Unsupported("Triton compiles for GPUs, and there is none that torch can use")
        _refuse(problem)
        if interpreted and problem.dtype == "bf16":
            raise Unsupported("Triton's interpreter computes in numpy, which has no bfloat16")
        if lengths and problem.seq_q != problem.seq_k:
            raise Unsupported("lengths are of self-attention: seq_q and seq_k must be equal")
        drawn = None if lengths is None else Lengths(problem.seq_q, lengths)
        call = calls(problem, asked.variant, asked.tensors, drawn)
        several = drawn is not None
        return Built(call, {"lengths": lengths or 1}, problems=lengths or 1, varies=several)

    def errors(self, problem: Problem, seed: int, tensors: Tensors, results: Results) -> Message:
        """The larger error of the longest and the shortest length of a call."""
        errors = super().errors(problem, seed, tensors, results[:1])
        if len(results) > 1:
            short = replace(problem, seq_q=results[-1].shape[1], seq_k=results[-1].shape[1])
            cut = {name: tensor[:, : short.seq_q] for name, tensor in tensors.items()}
            # Its inputs are the beginning of longer ones, and not those of a case: it must
            # not be kept for one.
            exact = ReferenceCache(self._arrays).of(short, seed, cut)
            of_short = difference(self._arrays, results[-1], exact["out"])
            errors["out"] = worst(errors["out"], of_short)
        return errors

    def checked(self, problem: Problem, seed: int, results: Results) -> Message:
        """Where a call draws its lengths, the larger error of its longest and its shortest."""
        if self._prepared().built.varies is False:
            return super().checked(problem, seed, results)
        of_lengths = []
        for result in (results[0], results[-1]):
            length = result.shape[1]
            own = replace(problem, seq_q=length, seq_k=length)
            named = {"out": result}
            if tuple(result.shape) != own.shape("out"):
                raise Failed(f"out is {tuple(result.shape)}, not {own.shape('out')}")
            of_lengths.append(self.errors_of_planes(problem, seed, chosen(problem, length), named))
        return {"errors": {"out": worst(*(errors["out"] for errors in of_lengths))}, "probes": {}}


def calls(
    problem: Problem, variant: str, tensors: dict[str, torch.Tensor], drawn: Lengths | None
) -> Callable[[], tuple[torch.Tensor, ...]]:
    """One call: the problem itself, or the lengths that are drawn for it, longest first.

    Each case has an autotuner of its own: what one has tuned is new to the next.
    """
    kernel = autotuned()

    def of(seq_q: int, seq_k: int) -> torch.Tensor:
        q, k, v = tensors["q"][:, :seq_q], tensors["k"][:, :seq_k], tensors["v"][:, :seq_k]
        diagonal = problem.mask.offset(seq_q, seq_k)
        key = tuning_key(variant, seq_q)
        return attend(kernel, q, k, v, problem.mask.is_causal, diagonal, key)

    def several(lengths: Lengths) -> Iterator[torch.Tensor]:
        for length in lengths.draw():
            yield of(length, length)

    if drawn is None:
        return lambda: (of(problem.seq_q, problem.seq_k),)
    return lambda: tuple(several(drawn))


def _refuse(problem: Problem) -> None:
    """Says what the kernel does not do."""
    if problem.dtype not in ("f16", "bf16"):
        raise Unsupported(f"the kernel takes f16 and bf16, not {problem.dtype}")
    if problem.has_backward:
        raise Unsupported("the kernel has no backward")
    if problem.varlen:
        raise Unsupported("the kernel takes no packed ragged batch")
    if problem.head_dim not in HEAD_DIMS or problem.head_dim_v != problem.head_dim:
        raise Unsupported(
            f"the kernel takes head_dim 64 and 128, the same for values, not {problem.head_dim} "
            f"and {problem.head_dim_v}"
        )
    if not problem.mask.is_full and not problem.mask.is_causal:
        raise Unsupported("the kernel's masks are full and causal; it has no window")
    if problem.batch * problem.heads > MOST_GRID_Y:
        raise Unsupported(f"batch * heads is at most {MOST_GRID_Y}, the blocks of a grid in y")


WORKER = TritonWorker
