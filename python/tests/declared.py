"""Declared operators: a worker of functions, and the reference that it is compared with."""

import itertools
from pathlib import Path
from typing import Any

import pytest

import support
from regatta_worker.callables import load
from regatta_worker.callables.operators.reference import open_reference

ARRAYS = {"numpy": "numpy.ndarray", "torch": "torch.Tensor", "jax": "jax.Array"}
"""The annotation of an argument that is an array, by framework."""
PLAN = {"warmup": 1, "samples": 6, "min_samples": 4, "budget_ms": 1000, "cache": "hot"}

_numbers = itertools.count()


def module(folder: Path, code: str) -> str:
    """The path of a file with this code, whose module has a name of its own."""
    path = folder / f"declared_{next(_numbers)}.py"
    path.write_text(code)
    return str(path)


def served(folder: Path, code: str, framework: str = "numpy", function: str | None = None) -> Any:
    """A worker of the functions, where `ARRAY` annotates an array of the framework; the test is
    skipped where that is not installed."""
    if not support.installed(framework):
        pytest.skip(f"{framework} is not installed")
    code = f"import {framework}\n{code.replace('ARRAY', ARRAYS[framework])}"
    return load.open_worker(load.Target("mine", module(folder, code), function=function))


def reference(folder: Path, code: str, function: str) -> Any:
    return open_reference(module(folder, code), function)


def tensor(
    name: str, shape: list[int], kind: str = "normal", *arguments: float, dtype: str = "f32"
) -> dict[str, Any]:
    """An input of an operator, as `prepare` names it; of deviation 1 by default."""
    draw = {"kind": kind, "arguments": list(arguments or (1.0,))}
    return {"name": name, "shape": shape, "dtype": dtype, "draw": draw}


def asked(folder: Path, variant: str, operands: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A request for a case of this variant, whose results are written into the folder."""
    problem = {"operator": "o", "axes": {}, "dtype": "f32"}
    case = {"variant": variant, "problem": problem, "operands": operands, "seed": 1}
    return case | {"input_sets": 3, "results": str(folder)} | more


def errors(exact: Any, folder: Path, operands: dict[str, Any], seed: int) -> dict[str, float]:
    """The relative L2 error of each result in the folder, on the inputs of this seed."""
    request = {"operands": operands, "seed": seed, "results": str(folder)}
    found = exact.compare(request)["errors"]
    return {name: error["relative_l2"] for name, error in found.items()}


def errors_after_timing(
    worker: Any, exact: Any, folder: Path, variant: str, operands: dict[str, Any]
) -> dict[str, float]:
    """The errors of the last timed call, which was on other inputs than the first one."""
    worker.prepare(asked(folder, variant, operands))
    seed = worker.measure(PLAN)["checked"]["seed"]
    return errors(exact, folder, operands, seed)
