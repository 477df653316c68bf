"""Functions of JAX arrays, compiled and timed as JAX's own kernels are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from regatta_worker.callables.function import Function
from regatta_worker.callables.load import Guarded
from regatta_worker.libraries.jax import DTYPES, JaxWorker
from regatta_worker.libraries.jax import Function as JaxFunction
from regatta_worker.problem import Problem
from regatta_worker.problem.variant import Variant


class JaxFunctions(Guarded, JaxWorker):
    """Functions are jitted. `jax.vjp` computes the gradients of one that does not take `dout`."""

    # Any other exception is an error of the function, which a suite cannot permit.
    REFUSALS = (NotImplementedError,)
    functions: dict[str, Function]

    def variants(self) -> dict[str, Variant]:
        # XLA's default precision for float32 products on Ampere and later.
        found = {name: function.variant(True) for name, function in self.functions.items()}
        return {
            name: replace(variant, tf32=variant.tf32 or self.gpu is not None)
            for name, variant in found.items()
        }

    def attend(
        self, problem: Problem, variant: str, params: Mapping[str, Any]
    ) -> tuple[JaxFunction, JaxFunction | None]:
        """Returns the function, which checks the shapes of its results while it is traced."""
        function = self.functions[variant]
        bound = function.bound(problem, params)

        def results(*tensors: Any) -> tuple[Any, ...]:
            found = function.several(bound(*tensors), problem)
            function.check(found, problem, DTYPES[problem.dtype])
            return found

        if function.makes_gradients and problem.has_backward:
            return results, lambda dout, *qkv: results(*qkv, dout)
        return lambda *qkv: results(*qkv)[0], None


WORKER = JaxFunctions
