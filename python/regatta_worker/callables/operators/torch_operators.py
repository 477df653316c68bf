"""Declared operators on torch tensors, on a GPU if torch sees one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from regatta_worker.callables.load import Guarded
from regatta_worker.callables.operators.case import OperatorCase, OperatorWorker
from regatta_worker.callables.operators.function import FLOATS_OF_8_BITS
from regatta_worker.callables.operators.operands import WHOLE, Gradients, InputTensor
from regatta_worker.on_torch.case import Call
from regatta_worker.on_torch.library import TimedOnTorch, import_autograd
from regatta_worker.protocol.channel import Failed, Message

DTYPES: Mapping[str, torch.dtype] = {
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i8": torch.int8,
    "i32": torch.int32,
    "i64": torch.int64,
    "bool": torch.bool,
    **{name: getattr(torch, at) for name, at in FLOATS_OF_8_BITS.items() if hasattr(torch, at)},
}


class TorchOperators(Guarded, OperatorWorker, TimedOnTorch[OperatorCase]):
    """Functions of torch tensors."""

    DTYPES = DTYPES

    def array(self, tensor: InputTensor, seed: int) -> torch.Tensor:
        drawn = torch.from_numpy(tensor.drawn(seed))
        return drawn.to(device=self.device, dtype=DTYPES[tensor.dtype])

    def replaced(self, given: torch.Tensor, source: torch.Tensor, rows: int) -> torch.Tensor:
        with torch.no_grad():
            if rows == 0:
                given.copy_(source)
            else:
                given[rows:].copy_(source[:-rows])
                given[:rows].copy_(source[-rows:])
        return given

    def host(self, value: Any) -> np.ndarray:
        dtype = torch.float32 if value.dtype.is_floating_point else torch.int64
        host: np.ndarray = value.detach().to(device="cpu", dtype=dtype).numpy()
        return host

    def check_type(self, case: OperatorCase, name: str, value: Any, dtype: str) -> None:
        if type(value) is not torch.Tensor:
            kind = type(value).__name__
            raise Failed(f"{case.where} returned {name} as {kind}; return a plain torch tensor")
        super().check_type(case, name, value, dtype)
        if value.device.type != self.device.type:
            raise Failed(
                f"{case.where} returned {name} on {value.device}; return it on {self.device}"
            )

    def same(self, given: torch.Tensor, drawn: torch.Tensor) -> bool:
        return bool(torch.equal(given, drawn))

    def differentiate(self, case: OperatorCase, gradients: Gradients) -> None:
        import_autograd()
        forward, arranged = case.bound, case.arranged
        inputs = tuple(case.given[name].requires_grad_() for name in gradients.by)
        of_outputs = tuple(case.given[name] for name in gradients.given)

        def gradient(*outputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            found: tuple[torch.Tensor, ...] = torch.autograd.grad(
                outputs, inputs, of_outputs, retain_graph=True
            )
            return found

        def both(*tensors: Any) -> tuple[torch.Tensor, ...]:
            outputs = gradients.outputs(forward(*tensors))
            return (*(out.detach() for out in outputs), *gradient(*outputs))

        case.by_autograd = True
        if gradients.direction == "both":
            case.bound = both
            return
        case.bound, case.earlier_stream = gradient, True
        # Forward builds a new graph for each contents.
        case.arranged = lambda: list(gradients.outputs(forward(*arranged())))

    def called_first(self, case: OperatorCase) -> tuple[Any, Message]:
        # Fills memory with NaN that the function is likely to allocate for its results.
        for output in case.operands.returned:
            if output.dtype not in WHOLE:
                self.poison([output.shape], DTYPES[output.dtype])
        self.wait()
        return super().called_first(case)

    def timed_call(self, case: OperatorCase) -> Call:
        earlier_stream, by_autograd = case.earlier_stream, case.by_autograd
        return Call(case.call, earlier_stream=earlier_stream, by_autograd=by_autograd)

    def free_memory(self) -> bool:
        if self.gpu:
            torch.cuda.empty_cache()
        return super().free_memory()


WORKER = TorchOperators
