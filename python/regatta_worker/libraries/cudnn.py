"""Library `cudnn`: attention through the cuDNN frontend, its plans apart from their execution."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from regatta_worker.on_torch.case import Asked, Built, Variant
from regatta_worker.on_torch.cudnn_graphs import Execution, Graphs
from regatta_worker.on_torch.library import Done, TorchLibrary
from regatta_worker.protocol.channel import Unsupported


class CudnnWorker(TorchLibrary):
    """cuDNN as NVIDIA's own Python package offers it, below PyTorch's and JAX's use of it."""

    NAME = "cudnn"
    PACKAGES = ("nvidia-cudnn-frontend",)
    REFUSALS: tuple[type[Exception], ...] = (RuntimeError, ValueError)

    cudnn: Any = None
    _handle: Any = None

    def load(self) -> None:
        """Imports the frontend, which finds cuDNN where torch has loaded it."""
        self.cudnn = importlib.import_module("cudnn")
        self.REFUSALS = (*type(self).REFUSALS, self.cudnn.cudnnGraphNotSupportedError)

    def versions(self) -> dict[str, str]:
        """With the cuDNN that the frontend really uses."""
        found = super().versions()
        if self.cudnn is not None:
            found["cudnn"] = str(self.cudnn.backend_version())
        return found

    def variants(self) -> dict[str, Variant]:
        """One: a graph for forward, another for backward."""
        parameters = {"plan": ("once", "each")}
        return {"graph": Variant("pygraph.sdpa and sdpa_backward", parameters=parameters)}

    def build(self, asked: Asked) -> Built:
        """The call; where graphs are planned once, that has been done."""
        if self._gpu is None:
            raise Unsupported("cuDNN computes on GPUs, and there is none that torch can use")
        if self._handle is None:
            self._handle = self.cudnn.create_handle()
        self._follow_stream()
        graphs = Graphs(self.cudnn, self._handle, asked.problem, self._device)
        word = asked.params.get("plan", "once")
        each = word == "each"
        execution = Execution(graphs, self._handle, asked.problem, each)
        built = execution.build(asked.tensors)
        # A plan in each call is no choice of the case's.
        names = {} if each else execution.names()
        return replace(
            built,
            tuned=tuple(names),
            call=self._on_stream(built.call),
            effective={"plan": word} | names,
            varies=each,
            refresh=built.refresh and self._on_stream(built.refresh),
        )

    def _on_stream(self, call: Callable[[], Done]) -> Callable[[], Done]:
        """The call on torch's current stream: that of a capture is another."""

        def followed() -> Done:
            self._follow_stream()
            return call()

        return followed

    def _follow_stream(self) -> None:
        stream = torch.cuda.current_stream().cuda_stream
        self.cudnn.set_stream(handle=self._handle, stream=stream)


WORKER = CudnnWorker
