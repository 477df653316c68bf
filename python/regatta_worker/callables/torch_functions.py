"""Functions of torch tensors, on everything that libraries on torch share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from regatta_worker.callables.function import Function
from regatta_worker.callables.load import Guarded, Target
from regatta_worker.on_torch.case import DTYPES, Call, Results, TorchCase, by_autograd
from regatta_worker.on_torch.kept import import_autograd
from regatta_worker.on_torch.library import Library, TorchWorker

preload = import_autograd


class TorchFunctions(Guarded, TorchWorker):
    """Gradients are autograd's, of a function that does not name `dout`."""

    DIFFERENTIATED = True

    def __init__(self, target: Target, functions: dict[str, Function]) -> None:
        # Any other exception is a mistake of the function's, which no suite may allow.
        library = Library(target.name, refusals=(NotImplementedError,))
        for name, function in functions.items():
            build = functools.partial(self.call_of, function)
            variant = vars(function.variant(self.DIFFERENTIATED))
            library.variant(name, on_gpu=False, **variant)(build)
        super().__init__(library)
        self._target, self.TESTED = target, target.code

    def bound(self, function: Function, case: TorchCase) -> Callable[..., Any]:
        """The function, of tensors."""
        return function.bound(case.problem, case.params)

    def call_of(self, function: Function, case: TorchCase) -> Call:
        """The function on views that lie as the layout says."""
        problem, turned = case.problem, case.problem.turned
        given = {name: turned(tensor) for name, tensor in case.tensors.items()}
        bound = self.bound(function, case)
        unchecked = [DTYPES[problem.dtype]]

        def called(*tensors: torch.Tensor) -> Results:
            results = function.several(bound(*tensors), problem)
            if unchecked:
                function.check(results, problem, unchecked[0])
                # Shapes are looked at again after the last timed call; here it would cost.
                unchecked.clear()
            return tuple(turned(result) for result in results)

        if problem.direction == "forward" or function.makes_gradients:
            tensors = tuple(given.values())
            return Call(lambda: called(*tensors))
        inputs = tuple(given[name].requires_grad_() for name in ("q", "k", "v"))
        call = by_autograd(problem, lambda: called(*inputs)[0], inputs, case.tensors["dout"])

        def logical() -> Results:
            *out, dq, dk, dv = call.run()
            return (*out, turned(dq), turned(dk), turned(dv))

        return replace(call, run=logical)


WORKER = TorchFunctions
