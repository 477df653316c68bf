"""Declared operators on JAX arrays, compiled and timed as JAX's own kernels are."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from regatta_worker.callables.load import Guarded
from regatta_worker.callables.operators.case import OperatorCase, OperatorWorker
from regatta_worker.callables.operators.function import FLOATS_OF_8_BITS, lacking
from regatta_worker.callables.operators.operands import Gradients, InputTensor, on_host
from regatta_worker.libraries.jax import OnJax
from regatta_worker.protocol.channel import Message, Unsupported

DTYPES: Mapping[str, Any] = {
    "f32": jnp.float32,
    "f16": jnp.float16,
    "bf16": jnp.bfloat16,
    "i8": jnp.int8,
    "i32": jnp.int32,
    "i64": jnp.int64,
    "bool": jnp.bool_,
    **{name: getattr(jnp, at) for name, at in FLOATS_OF_8_BITS.items() if hasattr(jnp, at)},
}


# The old array is passed only for its memory; JAX would drop it as unused.
@functools.partial(jax.jit, donate_argnums=0, keep_unused=True)
def _rolled(given: jax.Array, source: jax.Array, rows: int) -> jax.Array:
    return jnp.roll(source, rows, axis=0 if source.ndim else None)


class JaxOperators(Guarded, OperatorWorker, OnJax[OperatorCase]):
    """Functions are jitted. JAX arrays are immutable, so new arrays replace the old ones."""

    DTYPES = DTYPES

    def array(self, tensor: InputTensor, seed: int) -> jax.Array:
        if why := lacking("jax").get(tensor.dtype):
            raise Unsupported(f"{why}, which input {tensor.name} is")
        return jax.device_put(tensor.drawn(seed).astype(DTYPES[tensor.dtype]), self.device)

    def replaced(self, given: jax.Array, source: jax.Array, rows: int) -> jax.Array:
        replaced: jax.Array = _rolled(given, source, rows)
        return replaced

    def host(self, value: Any) -> np.ndarray:
        return on_host(np.asarray(value))

    def same(self, given: jax.Array, drawn: jax.Array) -> bool:
        return bool(jnp.array_equal(given, drawn))

    def differentiate(self, case: OperatorCase, gradients: Gradients) -> None:
        forward, arranged = case.bound, case.arranged
        names = [name for name in case.given if name not in gradients.given]
        places = [names.index(name) for name in gradients.by]

        def differentiated(arrays: Sequence[Any]) -> tuple[Any, Callable[..., Any]]:
            def outputs(*inputs: Any) -> tuple[Any, ...]:
                given = list(arrays)
                for place, one in zip(places, inputs, strict=True):
                    given[place] = one
                return gradients.outputs(forward(*given))

            found: tuple[Any, Any] = jax.vjp(outputs, *(arrays[place] for place in places))
            return found

        def both(of_outputs: tuple[Any, ...], *arrays: Any) -> tuple[Any, ...]:
            outputs, pull_back = differentiated(arrays)
            return (*outputs, *pull_back(of_outputs))

        def of_outputs() -> tuple[Any, ...]:
            return tuple(case.given[name] for name in gradients.given)

        if gradients.direction == "both":
            case.bound, case.arranged = both, lambda: [of_outputs(), *arranged()]
            return
        pulled_back = jax.jit(lambda *arrays: differentiated(arrays)[1])
        case.bound = lambda pull_back, of_outputs: pull_back(of_outputs)
        case.arranged = lambda: [pulled_back(*arranged()), of_outputs()]

    def compiled(self, case: OperatorCase) -> Any:
        return case.bound

    def recordings(self, case: OperatorCase) -> list[Message]:
        return []

    def called_first(self, case: OperatorCase) -> tuple[Any, Message]:
        for output in case.operands.outputs:
            if output.in_place is not None:
                raise Unsupported(
                    f"JAX arrays cannot be written into, and the output {output.name} is left in "
                    f"the state {output.in_place}: declare it without `in_place`, and return it"
                )
        case.bound, parts = self.compile(case.bound, case.arguments)
        return self.first_call(case.bound, case.arguments, parts)


WORKER = JaxOperators
