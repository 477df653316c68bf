"""Functions of torch tensors, on everything that libraries on torch share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from regatta_worker.callables.function import Function
from regatta_worker.callables.load import Guarded, Target
from regatta_worker.on_torch.case import DTYPES, Asked, Built, Results, Variant
from regatta_worker.on_torch.library import TorchLibrary
from regatta_worker.on_torch.variants import by_autograd
from regatta_worker.problem.attention import Problem


class TorchFunctions(Guarded, TorchLibrary):
    """Gradients are autograd's, of a function that does not name `dout`."""

    # Any other exception is a mistake of the function's, which no suite may allow.
    REFUSALS = (NotImplementedError,)

    def __init__(self, target: Target, functions: dict[str, Function]) -> None:
        self.NAME = target.name
        self._target, self._functions = target, functions
        super().__init__()

    def load(self) -> None:
        """Nothing: the functions are there."""

    def variants(self) -> dict[str, Variant]:
        """A function each."""
        return {name: function.variant(True) for name, function in self._functions.items()}

    def build(self, asked: Asked) -> Built:
        """The function on views that lie as the layout says."""
        problem, function = asked.problem, self._functions[asked.variant]
        turn = _between(problem)
        names = ("q", "k", "v", "dout") if problem.has_backward else ("q", "k", "v")
        given = {name: turn(asked.tensors[name]) for name in names}
        bound = self._bound(function, problem, asked.params)
        unchecked = [DTYPES[problem.dtype]]

        def called(*tensors: torch.Tensor) -> Results:
            results = function.several(bound(*tensors), problem)
            if unchecked:
                function.check(results, problem, unchecked[0])
                # Shapes are looked at again after the last timed call; here it would cost.
                unchecked.clear()
            return tuple(turn(result) for result in results)

        if problem.direction == "forward" or function.makes_gradients:
            tensors = tuple(given.values())
            return Built(lambda: called(*tensors))
        inputs = tuple(given[name].requires_grad_() for name in ("q", "k", "v"))
        dout = asked.tensors["dout"]
        built = by_autograd(problem, lambda: called(*inputs)[0], inputs, dout)

        def logical() -> Results:
            *out, dq, dk, dv = built.call()
            return (*out, turn(dq), turn(dk), turn(dv))

        return Built(logical, earlier_stream=built.earlier_stream, refresh=built.refresh)

    def _bound(
        self, function: Function, problem: Problem, params: Mapping[str, Any]
    ) -> Callable[..., Any]:
        """The function, of tensors."""
        return function.bound(problem, params)


def _between(problem: Problem) -> Callable[[Any], Any]:
    """From a logical tensor to a view in the layout's order, and back."""
    if problem.layout == "bhsd":
        return lambda tensor: tensor.transpose(1, 2)
    return lambda tensor: tensor


WORKER = TorchFunctions
