"""FlashAttention by its generations: which of them are found, and where."""

from __future__ import annotations

import contextlib
import io
import sys
import types
import unittest
from typing import Any
from unittest import mock

import support

if not support.installed("torch"):
    raise unittest.SkipTest("torch is not installed")

import torch

from regatta_worker.libraries.flash_attn import MODULES, FlashAttnWorker


class Generations(unittest.TestCase):
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
        self.assertEqual(list(worker._modules), ["fa3"])
        self.assertEqual(list(worker._missing), ["fa2", "fa4"])
        self.assertNotIn("absent", worker.hello())

    def test_a_module_that_registers_nothing_is_none(self) -> None:
        empty = types.SimpleNamespace()
        with mock.patch.object(torch.ops, "flash_attn_3", empty, create=True):
            worker = self.loaded("xformers.ops.fmha.flash3", "flash_attn.cute.interface")
        self.assertEqual(list(worker._modules), ["fa4"])
        self.assertIn("flash_attn_interface cannot be imported", worker._missing["fa3"])
        self.assertIn("it registers no operator", worker._missing["fa3"])


class Absent(unittest.TestCase):
    """A worker process in which none of the three is installed."""

    worker: support.StartedWorker
    hello: dict[str, Any]

    @classmethod
    def setUpClass(cls) -> None:
        cls.worker = support.StartedWorker("flash_attn")
        cls.hello = cls.worker.ask("hello", protocol=1)

    @classmethod
    def tearDownClass(cls) -> None:
        assert cls.worker.ask("shutdown")["type"] == "bye"
        assert cls.worker.exit_status() == 0

    def test_every_generation_is_listed_and_says_for_itself_what_is_missing(self) -> None:
        names = [variant["name"] for variant in self.hello["variants"]]
        self.assertEqual(names, ["fa2", "fa3", "fa4"])
        modules = ("flash_attn.flash_attn_interface", "flash_attn_interface", "flash_attn.cute")
        if all(support.installed(module.partition(".")[0]) for module in modules):
            self.skipTest("all three are installed")
        for variant, module in zip(names, modules, strict=True):
            if not support.installed(module.partition(".")[0]):
                reply = self.worker.prepare(variant, dtype="f16", head_dim=64)
                self.assertEqual(reply["type"], "unsupported", reply)
                self.assertIn(f"{module}", reply["reason"])
                self.assertIn("ModuleNotFoundError", reply["reason"])

    def test_without_any_of_them_the_library_is_absent(self) -> None:
        if any(map(support.installed, ("flash_attn", "flash_attn_interface", "xformers"))):
            self.skipTest("one of them may be there")
        self.assertIn("pip install flash-attn", self.hello["absent"])

    def test_mistakes_are_failures(self) -> None:
        for variant, params in (("fa2", {"num_splits": 2}), ("fa3", {"access": "direct"})):
            reply = self.worker.prepare(variant, params)
            self.assertEqual(reply["type"], "failed", reply)


if __name__ == "__main__":
    unittest.main()
