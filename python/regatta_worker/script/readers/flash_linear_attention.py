"""The registry of flash-linear-attention, `benchmarks/ops/registry.py`: operators, how their inputs
are drawn, and shapes.

`benchmarks/ops/run.py` calls Triton's timer, and is a script as any other. From the registry the
gradients are results too, and one case's inputs are made at a time.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

from regatta_worker.script.places import Place, plain
from regatta_worker.script.readers import Benchmark, chosen, location, options, raised
from regatta_worker.script.timers import Timed


def read(module: ModuleType, arguments: Sequence[str]) -> Iterator[Benchmark] | None:
    """Each operator in each of its shapes, forward alone and with its gradients."""
    names = ("_REGISTRY", "SHAPE_CONFIGS", "generate_inputs")
    registry, shapes, generate = (vars(module).get(name) for name in names)
    if not isinstance(registry, dict) or not isinstance(shapes, dict) or not callable(generate):
        return None
    found = []
    for name, config in sorted(registry.items()):
        limits = (config.dim_constraints or {}).items()
        for shape in (config.default_shapes or shapes).values():
            if any(shape.get(axis) not in allowed for axis, allowed in limits):
                continue
            for mode in ("fwd",) if config.skip_backward else ("fwd", "fwdbwd"):
                place = Place(plain(f"{name}.{mode}"), dict(shape), location(generate))
                opened = functools.partial(_opened, generate, config, shape, mode, place.where)
                found.append(Benchmark(place, opened))
    return chosen(found, options(arguments).benchmark, module)


@contextlib.contextmanager
def _opened(
    generate: Any, config: Any, shape: dict[str, int], mode: str, where: str
) -> Iterator[Timed]:
    try:
        library = importlib.import_module(config.import_path)
    except ImportError as error:
        # `flash_attn`, which the registry has to compare with, is often not installed.
        raise NotImplementedError(f"{config.import_path} cannot be imported: {error}") from error
    torch: Any = sys.modules["torch"]
    try:
        operator = getattr(library, config.func_name or config.name)
        device = importlib.import_module("fla.utils").device_name
        inputs = generate(config, **shape, dtype=torch.bfloat16, device=device)
        call = functools.partial(operator, **inputs, **config.extra_kwargs)
        out = functools.partial(_first, call, config.output_is_tuple)
        gradient = torch.randn_like(out()) if mode == "fwdbwd" else None
    except Exception as error:
        advice = "see its OpConfig, or choose others by `-- --benchmark PATTERN`"
        raise raised(f"the setup of {config.name}", where, error, advice) from error
    lists = (each if isinstance(each, (list, tuple)) else [each] for each in inputs.values())
    leaves = [each for several in lists for each in several if getattr(each, "requires_grad", 0)]

    def both() -> Any:
        result = out()
        result.backward(gradient)
        return result

    def drop() -> None:
        for tensor in leaves:
            tensor.grad = None

    if gradient is None:
        yield Timed(call, config.name)
    else:
        results = lambda result: [result, *(tensor.grad for tensor in leaves)]  # noqa: E731
        yield Timed(both, config.name, before=drop, result=results)


def _first(call: Any, is_tuple: bool) -> Any:
    return call()[0] if is_tuple else call()
