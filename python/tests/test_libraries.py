"""Libraries that are not installed here: listed all the same, and every case says why."""

from __future__ import annotations

from typing import Any

import pytest

import support

pytest.importorskip("torch")

LIBRARIES: dict[str, tuple[str, str, list[str]]] = {
    "cudnn": ("cudnn", "nvidia-cudnn-frontend", ["graph"]),
    "fla": ("fla", "fla-core", ["parallel"]),
    "flash_attn": ("flash_attn", "flash-attn", ["fa2", "fa3", "fa4"]),
    "flashinfer": (
        "flashinfer",
        "flashinfer-python",
        ["prefill", "paged-prefill", "paged-decode"],
    ),
    "transformer_engine": (
        "transformer_engine",
        "transformer_engine",
        ["default", "fused", "flash", "unfused"],
    ),
    "xformers": ("xformers", "xformers", ["default", "cutlass", "flash", "flash3"]),
}
"""By library, its module, the package that has it, and its variants."""

MISTAKES: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "cudnn": [("graph", {"plan": "never"})],
    "flash_attn": [("fa2", {"num_splits": 2}), ("fa3", {"access": "direct"})],
    "flashinfer": [
        ("prefill", {"backend": "fa9"}),
        ("prefill", {"page_size": 16}),
        ("prefill", {"plan": "never"}),
    ],
    "transformer_engine": [("default", {"fp8": "attention"}), ("default", {"windows": "wide"})],
    "xformers": [("flash", {"num_splits_key": 2}), ("cutlass", {"access": "x"})],
}
"""Parameters that a variant does not have."""


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_that_is_not_here(library: str) -> None:
    module, package, variants = LIBRARIES[library]
    if support.installed(module):
        pytest.skip(f"{module} is installed")
    worker = support.StartedWorker(library)
    hello = worker.ask("hello", protocol=1)
    assert [variant["name"] for variant in hello["variants"]] == variants
    assert f"pip install {package}" in hello["absent"]
    for variant in variants:
        reply = worker.prepare(variant, dtype="f16", head_dim=64, mask=support.CAUSAL)
        assert reply["type"] == "unsupported", reply
        assert f"{module}" in reply["reason"]
        assert "ModuleNotFoundError" in reply["reason"]
    for variant, params in MISTAKES.get(library, []):
        assert worker.prepare(variant, params)["type"] == "failed", params
    assert worker.ask("shutdown")["type"] == "bye"
    assert worker.exit_status() == 0
