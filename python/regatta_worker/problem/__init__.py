"""The problems: their inputs, and their exact results."""

from regatta_worker.problem.attention import Mask, Problem

__all__ = ["Mask", "Problem"]
