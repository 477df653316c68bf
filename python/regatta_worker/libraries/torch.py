"""Library `torch`: SDPA with each of its backends, and the ops beneath it called directly."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch.nn.attention import sdpa_kernel

from regatta_worker.on_torch import flex, varlen
from regatta_worker.on_torch.case import DTYPES, HALVES, Asked, Built, Variant
from regatta_worker.on_torch.flash_variants import build_flash
from regatta_worker.on_torch.library import TorchLibrary
from regatta_worker.on_torch.variants import (
    SDPA_BACKENDS,
    Access,
    build_efficient,
    build_sdpa,
    splits_here,
)

ACCESS = {"access": ("views", "copies")}
BUILDERS = {"flex": flex.build_flex, "varlen": varlen.build_varlen}
"""Of variants that lie in files of their own."""


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
            # On a CPU it is unsupported in the dispatcher's words, like `efficient`.
            "flash": Variant(
                "aten::_flash_attention_forward and _backward called directly: FlashAttention 2",
                parameters=ACCESS,
            ),
            "flex": flex.VARIANT,
            "varlen": varlen.VARIANT,
        }

    def build(self, asked: Asked) -> Built:
        """The call, with the backend selected."""
        if asked.variant in BUILDERS:
            return BUILDERS[asked.variant](asked)
        problem, params = asked.problem, asked.params
        word = params.get("access", "views")
        access = Access(problem, copies=word == "copies")
        if asked.variant in SDPA_BACKENDS:
            asked.settings.enter_context(sdpa_kernel(SDPA_BACKENDS[asked.variant]))
            return replace(build_sdpa(problem, asked.tensors, access), effective={"access": word})
        if asked.variant == "flash":
            return replace(build_flash(problem, asked.tensors, access), effective={"access": word})
        splits = params.get("num_splits_key")
        built = build_efficient(problem, asked.tensors, access, splits)
        effective = {"access": word} | splits_here(problem, splits, self._device)
        return replace(built, effective=effective)


WORKER = TorchWorker
