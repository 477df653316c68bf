"""Which of PyTorch's operators run in a call, and how often."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from regatta_worker.census.functions import bounded


class _Counting(TorchDispatchMode):  # type: ignore[misc,unused-ignore]
    """Counts operators as they are dispatched, behind autograd: those that are made of others
    are seen as what they are made of."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Else torch imports its compiler at the first call, for most of a second.
        return False

    def __torch_dispatch__(
        self, function: Any, types: Any, arguments: Any = (), keywords: Any = None
    ) -> Any:
        """Counts it, under its name without that of the overload."""
        self.calls[function._schema.name] += 1
        return function(*arguments, **(keywords or {}))


def count_operators(call: Callable[[], Any]) -> tuple[dict[str, int], dict[str, str]]:
    """Operators of one steady call by name, or the reason why they are not counted."""
    if compiles():
        return _uncounted(
            "torch.compile does not compile under a dispatch mode: the call would be another"
        )
    counted = []
    try:
        for _ in range(2):
            with _Counting() as mode:
                call()
            counted.append(mode.calls)
    except Exception as error:
        # What a library does not do under a mode; the case is none the worse for it.
        return _uncounted(f"{type(error).__name__}: {error}".splitlines()[0])
    first, second = counted
    if first != second:
        name = min(name for name in first | second if first[name] != second[name])
        return _uncounted(f"two calls differ, as in {name}: {first[name]} and {second[name]}")
    return bounded(dict(second)), {}


def _uncounted(reason: str) -> tuple[dict[str, int], dict[str, str]]:
    return {}, {"operators": reason}


def compiles() -> bool:
    """Whether anything of this process was given to `torch.compile`."""
    frames = sys.modules.get("torch._dynamo.eval_frame")
    backends: dict[int, Any] = getattr(frames, "cached_backends", {})
    # One that is None switches the compiler off.
    return any(backend is not None for backend in backends.values())
