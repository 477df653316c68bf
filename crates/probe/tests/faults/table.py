"""Which changes are made to which program, and what must be said of each.

A fault names the causes that may come first: more than one where two words are true of what
the program does, not where the judge might miss. Every fault must end the comparison with
exit code 1, every harmless change with 0 and no finding that is called worse. The words are
those of `Cause` in `crates/judge/src/judgement/finding.rs`.
"""

from __future__ import annotations

from dataclasses import dataclass

BASE = "as-it-should-be"
"""The program with nothing changed."""

PROGRAMS = {
    "step": "attention and matrix products, with a copy from the host under them",
    "llama": "transformers' Llama: a training step under autocast with fused AdamW",
    "own_kernels": "four CUDA kernels compiled at the start",
}
"""By name, what each program does."""


@dataclass(frozen=True)
class Change:
    """One thing that is different in a program."""

    program: str
    name: str
    why: str
    """What the program does differently, as its operations tell."""
    causes: tuple[str, ...] = ()
    """Causes of which one must come first; none of a harmless change."""

    @property
    def title(self) -> str:
        """`llama/eager-attention`."""
        return f"{self.program}/{self.name}"


def _faults(program: str, *rows: tuple[str, tuple[str, ...], str]) -> list[Change]:
    return [Change(program, name, why, causes) for name, causes, why in rows]


def _harmless(program: str, *rows: tuple[str, str]) -> list[Change]:
    return [Change(program, name, why) for name, why in rows]


REPLACED = ("kernel-replaced",)
COPIES = ("copies-added",)
WAITS = ("synchronisation", "calls-added")
FETCHED = ("synchronisation", "copies-added", "calls-added")
AGAIN = ("recompiled", "modules-loaded")
UNFUSED = ("kernel-replaced", "launches-added")
OTHER_CODE = ("recompiled", "spills")

FAULTS = (
    *_faults(
        "step",
        ("one-split", ("less-parallel",), "num_splits_key=1: one block a head goes over all keys"),
        ("contiguous", COPIES, "q, k and v are transposed by copies, there and back"),
        ("pageable", ("lost-overlap",), "the batch is not pinned: its copy hides under nothing"),
        ("one-stream", ("lost-overlap",), "the copy is on the stream that computes"),
        ("waits-at-once", ("lost-overlap",), "the stream that computes waits for the copy first"),
        ("other-kernel", REPLACED, "flash kernels for memory-efficient ones"),
        ("float32", REPLACED, "attention in float32"),
        ("small-launches", ("launches-added",), "400 launches of one row more"),
        ("slow-host", ("host-bound",), "20 ms of Python in each step"),
        ("recompile", AGAIN, "a kernel is compiled and loaded in each step"),
        ("to-host-and-back", COPIES, "q, k and v go to the host and come back"),
        (
            "neighbour",
            ("shared-device", "same-launch", "gaps"),
            "another process multiplies matrices: every kernel gets half of the time",
        ),
    ),
    *_faults(
        "llama",
        ("eager-attention", REPLACED, "attention in separate operations for the fused kernels"),
        (
            "mask",
            ("same-launch",),
            "a padding mask: cuDNN's kernels, launched as before, leave out no part of it",
        ),
        ("item", FETCHED, "the norm of each gradient is fetched by item(), one after another"),
        ("print-of-tensor", (*FETCHED, "launches-added"), "a tensor is printed in each step"),
        ("synchronize", WAITS, "the host waits for the device after each layer"),
        ("empty-cache", ("driver-memory", "calls-added"), "empty_cache() in each step"),
        ("foreach-adamw", UNFUSED, "AdamW in seven multi-tensor kernels for the fused one"),
        ("zeroed-gradients", ("launches-added",), "set_to_none=False: zeroed, then added to"),
        ("gradient-copies", COPIES, "each gradient is cloned after the backward pass"),
        ("float32-layer", REPLACED, "autocast is off in one layer's MLP"),
        ("checkpointing", ("launches-added",), "each layer's forward pass is done twice"),
    ),
    *_faults(
        "own_kernels",
        (
            "bank-conflicts",
            ("recompiled", "same-launch"),
            "rows of 32 words in shared memory for rows of 33",
        ),
        ("occupancy", ("recompiled", "less-parallel"), "48 KiB of shared memory a block, for 1"),
        ("spills", OTHER_CODE, "__launch_bounds__ leaves a thread 32 registers"),
        ("strided", ("same-launch",), "neighbouring threads read 32 words apart"),
        ("fewer-blocks", ("less-parallel",), "16 blocks go over what 1056 did"),
    ),
)
"""Some in every program."""

HARMLESS = (
    *_harmless(
        "step",
        ("same-again", "nothing is different"),
        ("other-seed", "other random numbers"),
        ("other-stream", "the program runs on a stream of its own"),
        ("streams-created-in-another-order", "a stream more is created first"),
        ("more-steps", "seventeen steps"),
        ("fewer-steps", "nine steps"),
        ("warm-up-twice", "twice the steps before it is steady"),
        ("memory-elsewhere", "256 MiB are allocated first"),
        ("threads", "one thread for the processor's operations"),
        ("print", "a line is printed in each step"),
        ("unused-library", "torchvision and SQLite are loaded and never called"),
        ("other-environment", "variables that nothing reads"),
    ),
    *_harmless(
        "llama",
        ("same-again", "nothing is different"),
        ("other-data", "other tokens of the same shape"),
        ("ranges", "NVTX ranges around the steps"),
        ("no-garbage-collection", "gc.disable()"),
    ),
    *_harmless("own_kernels", ("same-again", "nothing is different")),
)
"""Some in every program."""

CHANGES = (*FAULTS, *HARMLESS)


def find(program: str, name: str) -> Change | None:
    """The change of this name; None of the program as it should be.

    Raises KeyError where there is no such program or change: one that is misspelt must not
    run as the program that it should be.
    """
    if program not in PROGRAMS:
        raise KeyError(f"no program {program}: there are {', '.join(PROGRAMS)}")
    if name == BASE:
        return None
    for change in CHANGES:
        if (change.program, change.name) == (program, name):
            return change
    names = [change.name for change in CHANGES if change.program == program]
    raise KeyError(f"{program} has no change {name}: there are {', '.join(names)}")
