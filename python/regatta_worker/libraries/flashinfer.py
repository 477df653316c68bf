"""Library `flashinfer`: prefill of packed and paged batches, paged decode, `plan()` apart."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from regatta_worker.on_torch.case import DTYPES, Asked, Built, Variant
from regatta_worker.on_torch.flashinfer_calls import (
    DEFAULT_PAGE_SIZE,
    Steps,
    paged_decode,
    paged_prefill,
    ragged_prefill,
    single_prefill,
)
from regatta_worker.on_torch.library import TorchLibrary
from regatta_worker.problem.attention import Problem
from regatta_worker.protocol.channel import Failed, Message, Unsupported, positive

PLAN = {"plan": ("once", "each")}
SPLITS = {"disable_split_kv": ("yes",), "fixed_split_size": "integer"}
BACKEND = {"backend": ("fa2", "fa3")}
PAGES = {"page_size": "integer"}


class FlashInferWorker(TorchLibrary):
    """FlashInfer, which compiles its kernels with nvcc when they are first used."""

    NAME = "flashinfer"
    PACKAGES = ("flashinfer-python", "apache-tvm-ffi")
    REFUSALS = (RuntimeError, ValueError, NotImplementedError, AssertionError)

    flashinfer: Any = None

    def load(self) -> None:
        """Imports FlashInfer."""
        self.flashinfer = importlib.import_module("flashinfer")

    def variants(self) -> dict[str, Variant]:
        """Prefill and decode; none has a backward."""

        def forward(summary: str, parameters: Message) -> Variant:
            return Variant(summary, directions=("forward",), parameters=parameters)

        return {
            "prefill": forward(
                "single_prefill_with_kv_cache; BatchPrefillWithRaggedKVCacheWrapper for a batch",
                PLAN | SPLITS | BACKEND,
            ),
            "paged-prefill": forward(
                "BatchPrefillWithPagedKVCacheWrapper", PLAN | SPLITS | BACKEND | PAGES
            ),
            "paged-decode": forward(
                "BatchDecodeWithPagedKVCacheWrapper, one query a sequence",
                PLAN | SPLITS | PAGES | {"tensor_cores": ("yes", "no")},
            ),
        }

    def build(self, asked: Asked) -> Built:
        """The call; where it is planned once, that has been done."""
        if self._gpu is None:
            raise Unsupported("FlashInfer's kernels are for GPUs, and there is none torch can use")
        if asked.variant == "paged-decode":
            return self._decode(asked)
        return self._prefill(asked)

    def _prefill(self, asked: Asked) -> Built:
        problem, params = asked.problem, asked.params
        backend = params.get("backend", "auto")
        effective = self._chosen(problem, backend)
        splits = split_rules(params, fa2=effective.get("backend") == "fa2")
        if asked.variant == "paged-prefill":
            page_size = page_rows(params)
            steps = paged_prefill(
                self.flashinfer, problem, asked.tensors, backend, page_size, splits
            )
            return planned(problem, params, steps, effective | {"page_size": page_size})
        if problem.batch > 1 or problem.varlen:
            steps = ragged_prefill(self.flashinfer, problem, asked.tensors, backend, splits)
            return planned(problem, params, steps, effective)
        if given := sorted({*PLAN, *SPLITS} & set(params)):
            raise Unsupported(
                f"single_prefill_with_kv_cache, which does one sequence, has no {given[0]}"
            )
        run = single_prefill(self.flashinfer, problem, asked.tensors, backend)
        return Built(lambda: (run().unsqueeze(0),), effective)

    def _decode(self, asked: Asked) -> Built:
        problem, params = asked.problem, asked.params
        tensor_cores, page_size = params.get("tensor_cores") == "yes", page_rows(params)
        splits = split_rules(params, fa2=tensor_cores)
        steps = paged_decode(
            self.flashinfer, problem, asked.tensors, page_size, tensor_cores, splits
        )
        words = {"tensor_cores": "yes" if tensor_cores else "no", "page_size": page_size}
        return planned(problem, params, steps, words)

    def _chosen(self, problem: Problem, backend: str) -> Message:
        """The backend that is used, as FlashInfer itself chooses where none is given."""
        if backend != "auto":
            return {"backend": backend}
        # Its own rule, but no public one: another version may have it elsewhere.
        with contextlib.suppress(ImportError, AttributeError):
            rule = importlib.import_module("flashinfer.utils").determine_attention_backend
            dtype = DTYPES[problem.dtype]
            return {"backend": rule(self._device, 0, False, False, dtype, dtype)}
        return {}


def planned(problem: Problem, params: Mapping[str, Any], steps: Steps, effective: Message) -> Built:
    """The call under the parameter `plan`."""
    word = params.get("plan", "once")
    built = steps.built(problem, each=word == "each")
    return replace(built, effective=effective | {"plan": word})


def page_rows(params: Mapping[str, Any]) -> int:
    """The parameter `page_size`."""
    return positive("page_size", params.get("page_size", DEFAULT_PAGE_SIZE))


def split_rules(params: Mapping[str, Any], fa2: bool) -> Message:
    """How `plan()` is to split the keys; what the chosen kernels would not heed is refused."""
    rules: Message = {}
    if "disable_split_kv" in params:
        rules["disable_split_kv"] = True
    if "fixed_split_size" in params:
        rules["fixed_split_size"] = params["fixed_split_size"]
        if rules["fixed_split_size"] < 1:
            raise Failed(f"parameter fixed_split_size={rules['fixed_split_size']} is not positive")
    if rules and not fa2:
        raise Unsupported(
            f"{next(iter(rules))} is heeded by the kernels of backend fa2 alone (for decode: "
            'tensor_cores = "yes")'
        )
    return rules


WORKER = FlashInferWorker
