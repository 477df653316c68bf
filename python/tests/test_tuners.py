"""What tuners chose: on a tuner of Triton's shape, and on Triton's own where it is there."""

from __future__ import annotations

import inspect
import json
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import support
from regatta_worker.callables.load import Target, open_worker
from regatta_worker.census import tuners
from regatta_worker.serving import Session

TRITON = '''
"""Triton's autotuner, as far as it is known by its shape."""

class Config:
    def __init__(self, kwargs, num_warps=4, num_stages=3):
        self.kwargs, self.num_warps, self.num_stages = kwargs, num_warps, num_stages

    def all_kwargs(self):
        return {**self.kwargs, "num_warps": self.num_warps, "num_stages": self.num_stages}

class Autotuner:
    def __init__(self, fn, configs, best):
        self.fn = self.base_fn = fn
        self.configs, self.cache, self.best = configs, {}, best

    def run(self, key, **kwargs):
        if len(self.configs) > 1:
            if key not in self.cache:
                self.cache[key] = self.best(self.configs, key)
            config = self.cache[key]
        else:
            config = self.configs[0]
        self.best_config = config
        return self.fn(key, **kwargs, **config.all_kwargs())
'''

CALLABLE = '''
import numpy as np
from triton.runtime.autotuner import Autotuner, Config

launched = []

def kernel(key, BLOCK_M, num_warps, num_stages):
    launched.append((BLOCK_M, num_warps))

tuner = Autotuner(
    kernel,
    [Config({"BLOCK_M": 128}, num_warps=8), Config({"BLOCK_M": 64}, num_warps=4)],
    lambda configs, key: configs[key > 16],
)

def attention(q, k, v):
    """As it is written on a board."""
    tuner.run(q.shape[1])
    q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))
    scores = q @ k.swapaxes(2, 3) * np.float32(q.shape[-1] ** -0.5)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    out = (weights / weights.sum(-1, keepdims=True)) @ v
    return out.swapaxes(1, 2).astype(q.dtype)
'''


def modules() -> dict[str, types.ModuleType]:
    """Triton, as the module that has its autotuner."""
    autotuner = types.ModuleType("triton.runtime.autotuner")
    exec(TRITON, vars(autotuner))
    parents = {name: types.ModuleType(name) for name in ("triton", "triton.runtime")}
    return parents | {"triton.runtime.autotuner": autotuner}


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts it in the place of what is loaded."""
    for name, module in modules().items():
        monkeypatch.setitem(sys.modules, name, module)


class TestShape:
    """The tuner alone."""

    @pytest.fixture(autouse=True)
    def triton_is(self, stand_in: None) -> None:
        self.triton: Any = sys.modules["triton.runtime.autotuner"]
        self.own = self.triton.Autotuner.run

    def tuner(self, *configs: Any, name: str = "kernel", best: Any = None) -> Any:
        def kernel(key: Any, **given: Any) -> Any:
            return given

        kernel.__name__ = name
        return self.triton.Autotuner(kernel, list(configs), best or (lambda there, key: there[0]))

    def configs(self) -> tuple[Any, Any]:
        of = self.triton.Config
        return of({"BLOCK_M": 128, "EVEN": True}, 8), of({"BLOCK_M": 64, "EVEN": False}, 4)

    def chosen(self, call: Callable[[], Any]) -> dict[str, Any]:
        with tuners.watched() as watch:
            call()
        assert self.triton.Autotuner.run is self.own, "the class is as it was"
        return watch.chosen()

    def test_what_differs_between_candidates_was_chosen(self) -> None:
        tuner = self.tuner(*self.configs())
        expected = {"BLOCK_M": 128, "EVEN": "yes", "num_warps": 8}
        assert self.chosen(lambda: tuner.run(1)) == expected
        # As a launch that had tuned before.
        assert self.chosen(lambda: tuner.run(1)) == expected

    def test_one_candidate_is_no_choice_and_no_tuner_says_nothing(self) -> None:
        one = self.tuner(self.configs()[0])
        assert self.chosen(lambda: one.run(1)) == {}
        assert self.chosen(lambda: None) == {}

    def test_choices_that_differ_by_key_are_told_together(self) -> None:
        tuner = self.tuner(*self.configs(), best=lambda there, key: there[key])
        several = self.chosen(lambda: [tuner.run(key) for key in (1, 0, 1)])
        assert several["BLOCK_M"] == "64+128"
        # Of another case the choice is not this one's.
        assert self.chosen(lambda: tuner.run(0))["BLOCK_M"] == 128

    def test_kernels_that_differ_are_told_apart(self) -> None:
        large, small = self.configs()
        both = [self.tuner(large, small, name="fwd"), self.tuner(small, large, name="bwd")]
        found = self.chosen(lambda: [tuner.run(1) for tuner in both])
        assert (found["fwd_BLOCK_M"], found["bwd_BLOCK_M"]) == (128, 64)

    def test_a_triton_that_comes_with_the_call_is_seen(self) -> None:
        triton = sys.modules.pop("triton.runtime.autotuner")

        def call() -> None:
            sys.modules["triton.runtime.autotuner"] = triton
            self.tuners = [self.tuner(*self.configs())]
            self.tuners[0].run(1)

        with tuners.watched() as watch:
            call()
        assert watch.chosen()["BLOCK_M"] == 128


@pytest.mark.skipif(not support.installed("numpy"), reason="NumPy is not installed")
class TestCallables:
    """A function whose module has a tuner, through all that serves it."""

    @pytest.fixture(autouse=True)
    def served(self, stand_in: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "path", [*sys.path])
        path = tmp_path / "tuned_attention.py"
        path.write_text(CALLABLE)
        target = Target("own", str(path), None, "attention", "numpy")
        self.session = Session(lambda: open_worker(target), "own")
        self.asked(type="hello", protocol=1)

    def asked(self, **request: Any) -> dict[str, Any]:
        return self.session.answer(json.dumps({"id": 1, **request}).encode())

    def prepared(self, **axes: Any) -> dict[str, Any]:
        return self.asked(
            type="prepare", variant="attention", problem=support.wire(**axes), params={}, seed=1
        )

    def test_what_the_tuner_of_a_function_chose_is_effective(self) -> None:
        found = self.prepared(seq_q=16)
        assert found["effective"] == {"BLOCK_M": 128, "num_warps": 8}
        assert found["tuned"] == ["BLOCK_M", "num_warps"]
        assert self.prepared(seq_q=32)["effective"]["BLOCK_M"] == 64


@pytest.mark.skipif(not support.installed("triton"), reason="Triton is not installed")
class TestTritons:
    """Its own class, over a kernel that is only noted: no device is needed."""

    def test_its_autotuner_has_the_shape(self) -> None:
        from triton.runtime.autotuner import Autotuner, Config

        def kernel(x: Any, BLOCK_M: Any) -> None: ...

        launched: list[dict[str, Any]] = []

        class Launcher:
            fn = staticmethod(kernel)

            def run(self, *args: Any, **given: Any) -> None:
                launched.append(given)

        def bench(call: Callable[[], Any], quantiles: Any) -> list[float]:
            call()
            return [float(launched[-1]["BLOCK_M"])] * 3

        configs = [Config({"BLOCK_M": size}, num_warps=size // 16) for size in (128, 64)]
        known = inspect.signature(Autotuner.__init__).parameters
        given = {"reset_to_zero": None, "restore_value": None, "do_bench": bench}
        given = {name: value for name, value in given.items() if name in known}
        tuner = Autotuner(Launcher(), ["x", "BLOCK_M"], configs, ["x"], **given)
        with tuners.watched() as watch:
            tuner.run(1)
        assert watch.chosen() == {"BLOCK_M": 64, "num_warps": 4}
