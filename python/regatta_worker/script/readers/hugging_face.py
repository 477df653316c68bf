"""`kernels.benchmark.Benchmark` of Hugging Face: `setup` or `setup_W`, `benchmark_W`, `verify_W`.

Read as `kernels benchmark` reads it: the classes that the file itself defines, an instance a
workload, and `self.out` compared with the result of `verify_W` by `torch.allclose(atol=1e-2)`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
import os
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from regatta_worker.protocol.channel import Failed
from regatta_worker.script.places import Place, plain
from regatta_worker.script.readers import Benchmark, chosen, location, options, raised
from regatta_worker.script.results import outputs
from regatta_worker.script.timers import Timed

BEGIN = "benchmark_"


def read(module: ModuleType, arguments: Sequence[str]) -> Iterator[Benchmark] | None:
    """The workloads of the classes. `--kernel` is a folder, or a repository of the hub with its
    version, `kernels-community/relu@v1`; by default the folder above."""
    base = getattr(sys.modules.get("kernels.benchmark"), "Benchmark", ())
    own = [each for each in vars(module).values() if isinstance(each, type)]
    own = [each for each in own if each.__module__ == module.__name__ and issubclass(each, base)]
    if not own:
        return None
    asked = options(arguments)
    above = os.path.dirname(os.path.dirname(os.path.realpath(str(module.__file__))))
    # The sides of a comparison may have its version in their environments: `relu@$VERSION`.
    kernel = functools.cache(functools.partial(_kernel, os.path.expandvars(asked.kernel or above)))
    found = []
    for each in dict.fromkeys(own):
        methods = [method for method in dir(each) if method.startswith(BEGIN)]
        if not methods:
            raise Failed(f"{location(each)}: {each.__name__} has no method benchmark_NAME")
        for method in methods:
            workload, where = method.removeprefix(BEGIN), location(getattr(each, method))
            place = Place(plain(f"{each.__name__}.{workload}"), {}, where)
            opened = functools.partial(_opened, each, workload, kernel, where)
            found.append(Benchmark(place, opened))
    return chosen(found, asked.benchmark, module)


def _kernel(name: str) -> Any:
    kernels: Any = importlib.import_module("kernels")
    repository, _, revision = name.partition("@")
    try:
        if os.path.exists(name):
            return kernels.get_local_kernel(Path(name))
        return kernels.get_kernel(repository, revision=revision or "main")
    except Exception as error:
        raise Failed(
            f"kernel {name}: {type(error).__name__}: {error}. Build it, or name another: "
            f"`-- --kernel kernels-community/relu@v1`"
        ) from error


@contextlib.contextmanager
def _opened(each: Any, workload: str, kernel: Any, where: str) -> Iterator[Timed]:
    instance, torch = each(), sys.modules.get("torch")
    instance.kernel, instance.device = kernel(), _device(torch)
    if torch is not None and instance.seed is not None:
        random.seed(instance.seed)
        torch.manual_seed(instance.seed)
    setup = getattr(instance, f"setup_{workload}", instance.setup)
    try:
        setup()
    except Exception as error:
        advice = "set up what it needs, or choose others by `-- --benchmark PATTERN`"
        raise raised(f"{each.__name__}.{setup.__name__}", where, error, advice) from error
    function = getattr(instance, f"{BEGIN}{workload}")

    def first() -> None:
        try:
            function()
        except AttributeError as error:
            if setup.__module__ != "kernels.benchmark":
                raise
            advice = f"{each.__name__} has no setup and no setup_{workload}"
            raise raised(f"{BEGIN}{workload}", where, error, advice) from error

    def check() -> dict[str, Any]:
        verify: Any = getattr(instance, f"verify_{workload}", None)
        if verify is None or torch is None:
            return {}
        expected = verify()
        if not torch.allclose(instance.out, expected, atol=1e-2):
            raise Failed(
                f"{where}: wrong result: out differs from the result of verify_{workload} (by "
                f"torch.allclose with atol=1e-2, as `kernels benchmark` compares them)"
            )
        values, right = (outputs(each)[0]["values"] for each in (instance.out, expected))
        return {"out": {"relative_l2": math.dist(values, right) / (math.hypot(*right) or 1)}}

    yield Timed(function, workload, first=first, result=lambda _: instance.out, check=check)


def _device(torch: Any) -> str:
    """As torch names the device that there is."""
    for name in ("cuda", "xpu", "mps", "npu"):
        with contextlib.suppress(Exception):
            if getattr(torch, name).is_available():
                return name
    return "cpu"
