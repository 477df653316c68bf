"""The choices of tuners: on a tuner of Triton's shape, and on Triton's own where it is there."""

import inspect
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

import support
from regatta_worker.census import tuners

TRITON = """
class Config:
    def __init__(self, kwargs, num_warps=4, num_stages=3):
        self.kwargs, self.num_warps, self.num_stages = kwargs, num_warps, num_stages

class Autotuner:
    def __init__(self, fn, configs, best):
        self.fn = self.base_fn = fn
        self.configs, self.cache, self.best = configs, {}, best

    def run(self, key):
        config = self.configs[0]
        if len(self.configs) > 1:
            config = self.cache.setdefault(key, self.best(self.configs, key))
        self.best_config = config
        return self.fn(key)
"""


@pytest.fixture
def triton(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Triton's autotuner, as far as it is known by its shape, in the place of what is loaded."""
    autotuner = types.ModuleType("triton.runtime.autotuner")
    exec(TRITON, vars(autotuner))
    for name in ("triton", "triton.runtime"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "triton.runtime.autotuner", autotuner)
    return autotuner


def tuner(triton: Any, name: str = "kernel", best: Any = None, turned: bool = False) -> Any:
    """One with two candidates, of which it takes the first."""

    def kernel(key: Any) -> Any: ...

    kernel.__name__ = name
    large = triton.Config({"BLOCK_M": 128, "EVEN": True}, 8)
    small = triton.Config({"BLOCK_M": 64, "EVEN": False}, 4)
    configs = [small, large] if turned else [large, small]
    return triton.Autotuner(kernel, configs, best or (lambda there, key: there[0]))


def chosen(triton: Any, *tuned: Any, keys: tuple[int, ...] = (1,)) -> dict[str, Any]:
    own = triton.Autotuner.run
    with tuners.watched() as watch:
        for key in keys:
            for each in tuned:
                each.run(key)
    assert triton.Autotuner.run is own, "the class is as it was"
    return watch.chosen()


def test_what_differs_between_candidates_was_chosen(triton: Any) -> None:
    two, expected = tuner(triton), {"BLOCK_M": 128, "EVEN": "yes", "num_warps": 8}
    assert chosen(triton, two) == expected
    assert chosen(triton, two) == expected, "a launch that had tuned before"
    del two.configs[1]
    assert chosen(triton, two) == {}, "one candidate leaves no choice"
    assert chosen(triton) == {}


def test_choices_that_differ_by_key_or_kernel_are_told_apart(triton: Any) -> None:
    by_key = tuner(triton, best=lambda there, key: there[key])
    assert chosen(triton, by_key, keys=(1, 0, 1))["BLOCK_M"] == "64+128"
    assert chosen(triton, by_key, keys=(0,))["BLOCK_M"] == 128, "of this case alone"
    found = chosen(triton, tuner(triton, "fwd"), tuner(triton, "bwd", turned=True))
    assert (found["fwd_BLOCK_M"], found["bwd_BLOCK_M"]) == (128, 64)


def test_a_triton_that_comes_with_the_call_is_seen(triton: Any) -> None:
    del sys.modules["triton.runtime.autotuner"]
    with tuners.watched() as watch:
        sys.modules["triton.runtime.autotuner"] = triton
        late = tuner(triton)
        late.run(1)
    assert watch.chosen()["BLOCK_M"] == 128


def test_what_a_tuner_chose_while_a_case_was_prepared_is_effective(triton: Any) -> None:
    tuned = tuner(triton)

    def prepare(request: Any) -> Any:
        tuned.run(1)
        return {"effective": {"splits": 2}}

    found = support.answer(types.SimpleNamespace(prepare=prepare), "prepare")
    assert found["effective"] == {"splits": 2, "BLOCK_M": 128, "EVEN": "yes", "num_warps": 8}
    assert found["tuned"] == ["BLOCK_M", "EVEN", "num_warps"]


@pytest.mark.skipif(not support.installed("triton"), reason="Triton is not installed")
def test_tritons_own_autotuner_has_the_shape() -> None:
    """Over a kernel that is only noted: no device is needed."""
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
    real = Autotuner(Launcher(), ["x", "BLOCK_M"], configs, ["x"], **given)
    with tuners.watched() as watch:
        real.run(1)
    assert watch.chosen() == {"BLOCK_M": 64, "num_warps": 4}
