"""Serves a reference: a function in float64, in a process that imports no code under test."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import math
import os
import sys
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from regatta_worker.callables.load import Target, imported, placed
from regatta_worker.callables.operators.function import read_operator
from regatta_worker.callables.operators.operands import Operands, read
from regatta_worker.device import cpu_device
from regatta_worker.problem.numbers import DIRECTIONS
from regatta_worker.problem.variant import Variant
from regatta_worker.protocol.channel import Failed, Message, required
from regatta_worker.serving import is_installed, module_files

KEPT_BYTES = 1 << 30
"""Maximum total bytes of reference results that are kept."""

ZERO = 1e-12
"""Root mean square below which a result counts as zero; errors are then absolute."""

ANOTHER = 1 << 32
"""Distance between the seeds with which an input is drawn again."""

MAX_DRAWS = 32
"""After this many equal draws, an input counts as having only one possible contents."""


STEP = 1e-5
"""Change of an input for finite differences, relative to its root mean square."""


_opened: list[list[str]] = []
"""For each running call of a reference, the code files that were opened during it."""


@functools.cache
def _watch() -> None:
    """Records files of code when they are opened. Python cannot remove an audit hook."""

    def opened(event: str, arguments: tuple[Any, ...]) -> None:
        # For a compiled module, the event `import` has the file as its second argument.
        path = arguments[event == "import"] if event in ("open", "import") else None
        if _opened and isinstance(path, str) and path.endswith((".py", ".pyc", ".so")):
            _opened[-1].append(path)

    sys.addaudithook(opened)


class Reference:
    """Serves `compare` requests. It holds no case, as each request has its own operands."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._where = target.where(target.function or "")
        module, name = imported(target), target.function or ""
        function, gradients = (getattr(module, name + end, None) for end in ("", "_gradients"))
        if not callable(function):
            raise Failed(f"{target.code} has no function `{target.function}`")
        taken = read_operator(self._where, function)
        if taken is None:
            raise Failed(f"{self._where} has no signature to go by; wrap it in a `def`")
        self._function = taken
        self._gradients = read_operator(f"{self._where}_gradients", gradients)
        self._kept: OrderedDict[str, dict[str, np.ndarray]] = OrderedDict()
        self._files = {os.path.realpath(file) for file in module_files()}
        _watch()

    @contextlib.contextmanager
    def _loads_nothing(self, where: str) -> Iterator[None]:
        """Raises `Failed` if a call loads code that was not loaded when the reference was opened.
        The harness compared only the files loaded then with those of the code under test."""
        _opened.append([])
        try:
            yield
        finally:
            paths = _opened.pop()
        for path in paths:
            if path.endswith(".pyc"):
                with contextlib.suppress(ValueError):
                    path = importlib.util.source_from_cache(path)
            path = os.path.realpath(path)
            if path not in self._files and not is_installed(path):
                raise Failed(
                    f"{where} loads {path} when it is called, so that this may be the code under "
                    f"test: import it at the top of {self._target.code}"
                )

    def hello(self) -> Message:
        versions = {"numpy": np.__version__}
        device = cpu_device()
        variant = Variant(
            self._where,
            directions=DIRECTIONS if self._gradients else ("forward",),
            arguments=self._function.arguments(),
        )
        variants = [variant.wire(self._target.function or "")]
        return {"worker": "reference", "versions": versions, "device": device, "variants": variants}

    def compare(self, request: Message) -> Message:
        wire, seed = required(request, "operands"), int(required(request, "seed"))
        operands = Operands.from_wire(wire)
        folder = request.get("results")
        if folder is None:
            return {"errors": self.sensitivity(operands, seed)}
        key = json.dumps([wire, seed], sort_keys=True)
        exact = self._kept.get(key)
        if exact is None:
            exact = self._kept[key] = self.computed(operands, seed)
        self._kept.move_to_end(key)
        held = sum(one.nbytes for results in self._kept.values() for one in results.values())
        while len(self._kept) > 1 and held > KEPT_BYTES:
            _, dropped = self._kept.popitem(last=False)
            held -= sum(one.nbytes for one in dropped.values())
        return {
            "errors": {
                output.name: difference(read(folder, output), exact[output.name])
                for output in operands.outputs
            }
        }

    def computed(
        self, operands: Operands, seed: int, changed: Mapping[str, Any] | None = None
    ) -> dict[str, np.ndarray]:
        """Returns the results in float64. `changed` has values that replace arguments."""
        changed, results = changed or {}, {}
        forward, gradients = operands.halves()
        for half, function in ((forward, self._function), (gradients, self._gradients)):
            if not half.outputs:
                continue
            if function is None:
                name = f"{self._target.function}_gradients"
                raise Failed(f"{self._target.code} has no function `{name}`")
            # Copied, because a function may write into its inputs.
            given: dict[str, Any] = {
                one.name: np.array(changed[one.name])
                if one.name in changed
                else widened(one.drawn(seed))
                for one in half.inputs
            }
            others = function.accepted(half)
            arguments = given | others | {name: changed[name] for name in others if name in changed}
            try:
                with np.errstate(all="ignore"), self._loads_nothing(function.where):
                    returned = function.function(**arguments)
            except Failed:
                raise
            except Exception as error:
                words = placed(self._target.file, error) + function.advice(error, operands.scalars)
                raise Failed(f"{function.where}: {words}") from error
            for name, value in half.results(function.where, returned, given).items():
                if value.dtype.kind == "f" and value.dtype.itemsize < 8:
                    raise Failed(
                        f"{function.where} gives {name} as {value.dtype}: compute in float64, "
                        f"which its arguments are"
                    )
                # Integers may be too large for float64 to represent exactly.
                kind = np.int64 if value.dtype.kind in "biu" else np.float64
                results[name] = np.array(value, dtype=kind)
                if not np.isfinite(results[name]).all():
                    raise Failed(f"{function.where} gives elements of {name} that are not finite")
        return results

    def differences(self, operands: Operands, seed: int) -> dict[str, Message]:
        """Returns the distance of each gradient from finite differences of the outputs, along a
        random change of its input."""
        if operands.gradients is None:
            return {}
        exact, (forward, _) = self.computed(operands, seed), operands.halves()
        inputs, distances = {one.name: one for one in operands.inputs}, {}
        for name in operands.gradients.by:
            value = widened(inputs[name].drawn(seed))
            change = np.random.default_rng(seed).standard_normal(value.shape)
            change *= STEP * np.sqrt((value * value).mean() / (change * change).mean())
            after, before = (
                self.computed(forward, seed, changed={name: value + sign * change})
                for sign in (1.0, -1.0)
            )
            moved = sum(
                float((widened(inputs[given].drawn(seed)) * (after[one] - before[one])).sum())
                for given, one in zip(operands.gradients.given, after, strict=True)
            )
            gradient = exact[f"d{name}"]
            size = math.sqrt((gradient * gradient).sum() * (change * change).mean())
            error = abs(moved / 2.0 - float((gradient * change).sum())) / max(size, ZERO)
            distances[f"= d{name}"] = {"relative_l2": error, "max_abs": error}
        return distances

    def sensitivity(self, operands: Operands, seed: int) -> dict[str, Message]:
        """Returns the changes of the results if one input is drawn again, or one scalar is doubled
        or halved."""
        before = self.computed(operands, seed)
        moved: dict[str, dict[str, np.ndarray]] = {}
        for one in operands.inputs:
            if (again := drawn_again(one, seed)) is not None:
                moved[one.name] = self.computed(operands, seed, {one.name: widened(again)})
        for name, value in self._function.scalars(operands).items():
            try:
                moved[name] = self.computed(operands, seed, changed={name: 2 * value})
            except Failed as error:
                # An integer may be a number of columns or groups that decides shapes. A fraction,
                # such as a rate of decay, may be undefined above 1.
                if isinstance(value, float) and 0.5 <= value < 1:
                    moved[name] = self.computed(operands, seed, changed={name: value / 2})
                elif not isinstance(value, int):
                    raise Failed(
                        f"{error}, with the scalar `{name}` doubled to {2 * value:g}; annotate it "
                        f"`int` in the reference if shapes follow from it"
                    ) from error
                else:
                    moved[name] = {}
        return self.differences(operands, seed) | {
            f"{name} {output}": difference(results[output], before[output])
            if output in results
            else {"relative_l2": None, "max_abs": None}
            for name, results in moved.items()
            for output in before
        }

    def release(self) -> None:
        """Does nothing, as there is never a prepared case."""

    def prepare(self, request: Message) -> Message:
        raise Failed("this process serves a reference, and runs no code under test")

    measure = prepare

    def census(self) -> Message:
        raise Failed("this process serves a reference, and runs no code under test")


def drawn_again(one: Any, seed: int) -> np.ndarray | None:
    """Returns other contents of an input; None if all draws are equal: a constant, one length.

    Several draws may be needed: two lengths have the same order in every second draw.
    """
    if one.kind == "constant":
        return None
    first = one.drawn(seed)
    draws = (one.drawn(seed + number * ANOTHER) for number in range(1, MAX_DRAWS + 1))
    return next((again for again in draws if not np.array_equal(again, first)), None)


def widened(values: np.ndarray) -> np.ndarray:
    return values if values.dtype.kind in "bi" else values.astype(np.float64)


def difference(result: np.ndarray, exact: np.ndarray) -> Message:
    """Returns the error of a result in the form of the protocol's `TensorError`."""
    whole = result.dtype == exact.dtype == np.int64
    apart = (result - exact if whole else result.astype(np.float64) - exact).astype(np.float64)
    exact = exact.astype(np.float64)
    norm = float(np.sqrt((exact * exact).sum()))
    count = max(1, exact.size)
    scale = norm if norm / math.sqrt(count) >= ZERO else math.sqrt(count)
    error = float(np.sqrt((apart * apart).sum())) / scale
    largest = float(np.abs(apart).max(initial=0.0))
    finite = math.isfinite(error)
    return {"relative_l2": error if finite else None, "max_abs": largest if finite else None}


def open_reference(file: str, function: str) -> Reference:
    return Reference(Target("reference", str(Path(file)), None, function))
