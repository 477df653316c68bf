"""Makes backward repeatable where a library empties its autograd nodes as it goes.

`retain_graph=True` keeps what was saved with `save_for_backward`. A library that keeps
more on the node itself and drops it in backward (TransformerEngine does, to free memory)
can be differentiated once only, and backward alone could not be timed.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction


class KeptNodes:
    """What the Python-defined nodes below some results hold, as forward left it."""

    def __init__(self, results: Sequence[torch.Tensor]) -> None:
        self._kept = [(node, dict(vars(node))) for node in _python_nodes(results)]

    def restore(self) -> None:
        """Gives each node its attributes back.

        Containers and records are copied, since backward writes into them.
        """
        for node, attributes in self._kept:
            vars(node).update({name: _fresh(value) for name, value in attributes.items()})


def _fresh(value: Any) -> Any:
    mutable = isinstance(value, (list, dict)) or dataclasses.is_dataclass(value)
    return copy.copy(value) if mutable else value


def _python_nodes(results: Sequence[torch.Tensor]) -> list[Any]:
    """The nodes of `torch.autograd.Function` subclasses reached from the results."""
    waiting = [result.grad_fn for result in results if result.grad_fn is not None]
    seen, found = set(waiting), []
    while waiting:
        node = waiting.pop()
        if isinstance(node, BackwardCFunction):
            found.append(node)
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)
    return found
