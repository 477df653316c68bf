"""FlashAttention by its generations: which of them are found, and where."""

from __future__ import annotations

import contextlib
import io
import sys
import types
from unittest import mock

import pytest

pytest.importorskip("torch")

import torch

from regatta_worker.libraries.flash_attn import MODULES, FlashAttnWorker


class TestGenerations:
    """Where each is found: modules of these names, with nothing in them, in place of packages."""

    def loaded(self, *modules: str) -> FlashAttnWorker:
        every = {name: None for names in MODULES.values() for name in names}
        there = {module: types.ModuleType(module) for module in modules}
        with (
            mock.patch.dict(sys.modules, every | there),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            return FlashAttnWorker()

    def test_xformers_copy_of_fa3_does_where_the_package_is_not_there(self) -> None:
        with mock.patch.object(
            torch.ops, "flash_attn_3", types.SimpleNamespace(fwd=None), create=True
        ):
            worker = self.loaded("xformers.ops.fmha.flash3")
        assert list(worker._modules) == ["fa3"]
        assert list(worker._missing) == ["fa2", "fa4"]
        assert "absent" not in worker.hello()

    def test_a_module_that_registers_nothing_is_none(self) -> None:
        empty = types.SimpleNamespace()
        with mock.patch.object(torch.ops, "flash_attn_3", empty, create=True):
            worker = self.loaded("xformers.ops.fmha.flash3", "flash_attn.cute.interface")
        assert list(worker._modules) == ["fa4"]
        assert "flash_attn_interface cannot be imported" in worker._missing["fa3"]
        assert "it registers no operator" in worker._missing["fa3"]
