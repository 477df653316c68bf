"""Library `triton`: a fused kernel of our own, tuned once for a range of lengths or for each."""

from __future__ import annotations

import contextlib
import importlib.metadata
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
import triton

import inputs
from channel import Failed, Message, Unsupported, required
from lengths import Lengths, asked_lengths
from problem import Problem
from reference import ReferenceCache, difference, probes
from torch_worker import DTYPES, TorchWorker, _Case
from triton_flash import attend, autotuned

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


class TritonWorker(TorchWorker):
    """The torch worker's device, clock and census on a kernel of our own.

    Triton compiles for GPUs alone; with TRITON_INTERPRET=1 it runs its kernels on the host,
    element by element, which tells whether they are right and nothing of their speed.
    """

    def __init__(self) -> None:
        super().__init__()
        self._interpreted = bool(triton.knobs.runtime.interpret)

    def hello(self) -> Message:
        """Versions, device and variants."""
        return {
            "worker": "triton",
            "versions": self._versions() | {"triton": importlib.metadata.version("triton")},
            "device": self._describe_device(),
            "variants": [
                {
                    "name": name,
                    "summary": summary,
                    "dtypes": ["f16", "bf16"],
                    "directions": ["forward"],
                    "parameters": {"lengths": "integer"},
                    "stores_scores": False,
                    "tf32": False,
                }
                for name, summary in SUMMARIES.items()
            ],
        }

    def _prepare(self, request: Message) -> Message:
        problem = Problem.from_wire(required(request, "problem"))
        variant, seed = required(request, "variant"), required(request, "seed")
        if variant not in SUMMARIES:
            raise Failed(f"library triton has no variant `{variant}`")
        lengths = _lengths(variant, request.get("params", {}))
        if self._gpu is None and not self._interpreted:
            raise Unsupported("Triton compiles for GPUs, and there is none that torch can use")
        _refuse(problem)
        if self._interpreted and problem.dtype == "bf16":
            raise Unsupported("Triton's interpreter computes in numpy, which has no bfloat16")
        if lengths and problem.seq_q != problem.seq_k:
            raise Unsupported("lengths are of self-attention: seq_q and seq_k must be equal")
        drawn = None if lengths is None else Lengths(problem.seq_q, lengths)
        tensors = {
            name: inputs.torch_input(problem, name, seed, DTYPES[problem.dtype], self._device)
            for name in ("q", "k", "v")
        }
        call = build(problem, variant, tensors, drawn)
        self._poison(problem)
        self._synchronize()
        begin = time.perf_counter_ns()
        results = call()
        self._synchronize()
        first_call_ns = float(time.perf_counter_ns() - begin)
        self._case = _Case(problem, call, contextlib.ExitStack(), earlier_stream=False)
        return {
            "effective": {"lengths": lengths or 1},
            "errors": {"out": self._worst(problem, seed, tensors, results)},
            "probes": {"out": probes(results[0])},
            "first_call_ns": first_call_ns,
        }

    def _worst(
        self,
        problem: Problem,
        seed: int,
        tensors: dict[str, torch.Tensor],
        results: tuple[torch.Tensor, ...],
    ) -> dict[str, float]:
        """The larger error of the longest and the shortest length of a call."""
        exact = self._references.of(problem, seed, tensors)
        errors = [difference(self._arrays, results[0], exact["out"])]
        if len(results) > 1:
            short = replace(problem, seq_q=results[-1].shape[1], seq_k=results[-1].shape[1])
            cut = {name: tensor[:, : short.seq_q] for name, tensor in tensors.items()}
            # Its inputs are the beginning of longer ones, and not those of a case: it must
            # not be kept for one.
            exact = ReferenceCache(self._arrays).of(short, seed, cut)
            errors.append(difference(self._arrays, results[-1], exact["out"]))
        # `not <=`, so that NaN is the larger.
        worst = errors[0]
        for error in errors[1:]:
            worst = worst if error["relative_l2"] <= worst["relative_l2"] else error
        return worst


def build(
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


def _lengths(variant: str, params: Message) -> int | None:
    """Lengths of a call; None is the problem's own, again and again."""
    given = {name: value for name, value in params.items() if value != "auto"}
    lengths = asked_lengths(given)
    given.pop("lengths", None)
    if given:
        raise Failed(f"variant `{variant}` has no parameter `{next(iter(given))}`")
    return lengths


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
