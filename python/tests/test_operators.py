"""Operators of a call, on a CPU."""

from __future__ import annotations

from unittest import mock

import pytest

pytest.importorskip("torch")

import torch

from regatta_worker.on_torch import operators


class TestOfACall:
    def test_views_and_splits_are_seen_also_of_a_backward_pass(self) -> None:
        packed = torch.randn(2, 8, 3, 4, requires_grad=True)

        def call() -> None:
            q, k, v = packed.unbind(2)
            left, right = torch.split(q * k * v, [3, 5], dim=1)
            (left.sum() + right.reshape(2, -1).sum()).backward()

        call()
        calls = operators.count_operators(call)["operators"]
        assert calls["aten::split_with_sizes"] == 1
        assert calls["aten::unbind"] == 1
        assert calls["aten::mul"] > 2, "those of the backward pass, too"

    def test_calls_that_differ_and_calls_that_fail_say_so(self) -> None:
        turns = iter((1, 2, 3))
        one = torch.ones(1)
        differ = operators.count_operators(lambda: [one.add(1) for _ in range(next(turns))])
        assert differ == {"uncounted": {"operators": "two calls differ, as in aten::add: 1 and 2"}}

        def fails() -> None:
            raise NotImplementedError("no mode\nand more")

        failed = {"operators": "NotImplementedError: no mode"}
        assert operators.count_operators(fails) == {"uncounted": failed}

    def test_compiled_code_is_not_run_otherwise_for_the_count(self) -> None:
        call = mock.Mock()
        with mock.patch.object(operators, "compiles", lambda: True):
            assert "torch.compile" in operators.count_operators(call)["uncounted"]["operators"]
        call.assert_not_called()
