"""Library `torch`: SDPA with each of its backends, and the memory-efficient ops called directly."""

from __future__ import annotations

import torch
from torch.nn.attention import sdpa_kernel

from cutlass_splits import effective_splits
from problem import Problem
from torch_library import DTYPES, HALVES, Asked, Built, TorchLibrary, Variant
from torch_variants import SDPA_BACKENDS, Access, build_efficient, build_sdpa

ACCESS = {"access": ("views", "copies")}


class TorchWorker(TorchLibrary):
    """PyTorch's own attention."""

    NAME = "torch"

    def variants(self) -> dict[str, Variant]:
        """SDPA by backend, and the ops beneath it."""
        every = tuple(DTYPES)
        # No float32 kernel on a GPU.
        fused = HALVES if self._gpu else every
        # The CUTLASS kernels split each float32 product into three of TF32 and keep
        # float32's accuracy; the unfused path obeys torch's switch.
        rounds = torch.backends.cuda.matmul.allow_tf32 and self._gpu is not None
        sdpa = "scaled_dot_product_attention"
        return {
            "sdpa-math": Variant(
                f"{sdpa}, unfused", every, parameters=ACCESS, stores_scores=True, tf32=rounds
            ),
            "sdpa-flash": Variant(f"{sdpa}, FlashAttention 2", fused, parameters=ACCESS),
            "sdpa-efficient": Variant(
                f"{sdpa}, memory-efficient (CUTLASS)", every, parameters=ACCESS
            ),
            "sdpa-cudnn": Variant(f"{sdpa}, cuDNN", fused, parameters=ACCESS),
            "efficient": Variant(
                "aten::_efficient_attention_forward and _backward called directly",
                every,
                parameters=ACCESS | {"num_splits_key": "integer"},
            ),
        }

    def build(self, asked: Asked) -> Built:
        """The call, with the backend selected."""
        problem, params = asked.problem, asked.params
        word = params.get("access", "views")
        access = Access(problem, copies=word == "copies")
        if asked.variant in SDPA_BACKENDS:
            asked.settings.enter_context(sdpa_kernel(SDPA_BACKENDS[asked.variant]))
            call = build_sdpa(problem, asked.tensors, access)
            autograd = problem.direction == "backward"
            return Built(call, {"access": word}, earlier_stream=autograd)
        splits = params.get("num_splits_key")
        call = build_efficient(problem, asked.tensors, access, splits)
        return Built(call, {"access": word} | self._effective_splits(problem, splits))

    def _effective_splits(self, problem: Problem, requested: int | None) -> dict[str, int]:
        if not problem.has_backward or not self._gpu:
            return {}
        properties = torch.cuda.get_device_properties(self._device)
        splits = effective_splits(
            problem,
            requested,
            (properties.major, properties.minor),
            properties.shared_memory_per_block_optin,
            torch.are_deterministic_algorithms_enabled()
            and not torch.is_deterministic_algorithms_warn_only_enabled(),
        )
        return {} if splits is None else {"num_splits_key": splits}


WORKER = TorchWorker
