"""Functions of CuPy arrays, which are views of torch's tensors on the GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cupy
import torch

from regatta_worker.callables.function import Function
from regatta_worker.callables.torch_functions import TorchFunctions
from regatta_worker.callables.torch_functions import preload as preload
from regatta_worker.on_torch.case import TorchCase
from regatta_worker.protocol.channel import Failed, Unsupported


class CupyFunctions(TorchFunctions):
    """Uses the inputs, clock, counts and checks of torch, and passes arrays without a copy.

    CuPy cannot differentiate a function: one that makes gradients must take `dout`.
    """

    DIFFERENTIATED = False

    def bound(self, function: Function, case: TorchCase) -> Callable[..., Any]:
        if case.problem.dtype == "bf16":
            raise Unsupported("CuPy has no bf16")
        if self.gpu is None:
            raise Failed("functions of CuPy arrays take an NVIDIA GPU, and torch finds none")
        bound = function.bound(case.problem, case.params)
        seen: tuple[torch.Tensor, ...] = ()
        views: list[Any] = []

        def called(*tensors: torch.Tensor) -> Any:
            nonlocal seen, views
            if list(map(id, seen)) != list(map(id, tensors)):
                # A case's inputs stay in place, so that their views are made only once.
                seen, views = tensors, [cupy.from_dlpack(tensor) for tensor in tensors]
            # The function queues its work on torch's current stream, which the clock observes.
            with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
                returned = bound(*views)
            several = isinstance(returned, (tuple, list))
            return tuple(map(_tensor, returned)) if several else _tensor(returned)

        return called


def _tensor(returned: Any) -> Any:
    """Returns a CuPy array as a tensor over the same memory, and any other value unchanged."""
    return torch.from_dlpack(returned) if isinstance(returned, cupy.ndarray) else returned


WORKER = CupyFunctions
