"""Declared operators on CuPy arrays, which are views of torch's tensors on the GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cupy
import torch

from regatta_worker.callables.operators.case import OperatorWorker
from regatta_worker.callables.operators.function import FLOATS_OF_8_BITS
from regatta_worker.callables.operators.operands import InputTensor
from regatta_worker.callables.operators.torch_operators import TorchOperators
from regatta_worker.protocol.channel import Failed, Unsupported


class CupyOperators(TorchOperators):
    """Uses the inputs, clock and checks of torch, and passes arrays without a copy."""

    def array(self, tensor: InputTensor, seed: int) -> torch.Tensor:
        if tensor.dtype in ("bf16", *FLOATS_OF_8_BITS):
            raise Unsupported(f"CuPy has no {tensor.dtype}, which input {tensor.name} is")
        if self.gpu is None:
            raise Failed("functions of CuPy arrays take an NVIDIA GPU, and torch finds none")
        return super().array(tensor, seed)

    differentiate = OperatorWorker.differentiate

    def adapted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        views: dict[int, Any] = {}

        def view(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            # A case's inputs stay in place, so that their views are made only once.
            if id(value) not in views:
                views[id(value)] = cupy.from_dlpack(value)
            return views[id(value)]

        def tensor(value: Any) -> Any:
            return torch.from_dlpack(value) if isinstance(value, cupy.ndarray) else value

        def called(**given: Any) -> Any:
            # The function queues its work on torch's current stream, which the clock observes.
            with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
                returned = function(**{name: view(value) for name, value in given.items()})
            several = isinstance(returned, (tuple, list))
            return tuple(map(tensor, returned)) if several else tensor(returned)

        return called


WORKER = CupyOperators
