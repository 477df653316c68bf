"""Numbers that problems of all operators share (docs/PROTOCOL.md, "The inputs")."""

from __future__ import annotations

DTYPE_BYTES = {"f32": 4, "f16": 2, "bf16": 2}
DIRECTIONS = ("forward", "backward", "both")
GOLDEN = 0x9E3779B97F4A7C15
ALL = (1 << 64) - 1
PROBES = 16


def probe_indices(count: int, draw: int | None = None) -> list[int]:
    """The 16 elements, in logical order, of which the harness checks the values itself."""
    if draw is None:
        return [(2 * k + 1) * count // (2 * PROBES) for k in range(PROBES)]
    return [mixed(draw + (k + 1) * GOLDEN) * count >> 64 for k in range(PROBES)]


def mixed(z: int) -> int:
    """SplitMix64's output for a state, both of 64 bits."""
    z &= ALL
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & ALL
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & ALL
    return z ^ (z >> 31)
