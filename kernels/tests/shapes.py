"""The problems that the checks take, and how large a result may err."""

from __future__ import annotations

import math

from driver import Problem

Shape = tuple[int, int, int, int, int, int, int, tuple[int, int, int], str]
DTYPES = ("f32", "f16", "bf16")
ELEMENT = {"f32": 4, "f16": 2, "bf16": 2}  # bytes
# Relative L2 of forward, as the harness has it; of backward twice that.
LIMIT = {"f32": 5e-6, "f16": 2e-3, "bf16": 1e-2}
INPUTS = ("q", "k", "v", "dout")
RESULTS = {"forward": ("out",), "backward": ("dq", "dk", "dv")}

# batch, heads, kv_heads, seq_q, seq_k, head_dim, head_dim_v, (left, right, align), layout
FULL, CAUSAL, CAUSAL_BR = (-1, -1, 0), (-1, 0, 0), (-1, 0, 1)
CASES: list[Shape] = [
    (1, 1, 1, 64, 64, 64, 64, FULL, "bshd"),
    (2, 3, 3, 128, 192, 32, 32, FULL, "bhsd"),
    (2, 4, 2, 257, 259, 128, 128, FULL, "bshd"),
    (1, 2, 1, 1, 333, 64, 64, FULL, "bshd"),
    (1, 8, 1, 200, 77, 128, 128, FULL, "bhsd"),
    (1, 2, 2, 300, 300, 128, 128, CAUSAL, "bshd"),
    (2, 4, 2, 513, 513, 64, 64, CAUSAL, "bhsd"),
    (1, 2, 1, 100, 400, 64, 64, CAUSAL, "bshd"),
    (1, 2, 1, 100, 400, 128, 128, CAUSAL_BR, "bshd"),
    (1, 2, 1, 400, 100, 128, 128, CAUSAL, "bhsd"),
    (1, 2, 1, 400, 100, 64, 64, CAUSAL_BR, "bshd"),  # rows that see no key
    (1, 2, 2, 700, 700, 64, 64, (128, 0, 0), "bshd"),
    (1, 4, 2, 500, 611, 128, 128, (37, 5, 1), "bhsd"),
    (1, 2, 2, 300, 40, 64, 64, (10, 3, 0), "bshd"),  # rows that see no key, below
    (1, 2, 1, 150, 150, 80, 80, CAUSAL, "bshd"),
    (1, 2, 2, 130, 190, 72, 104, FULL, "bhsd"),
    (1, 3, 3, 1025, 1023, 40, 40, CAUSAL, "bshd"),
    (1, 2, 2, 4096, 4096, 32, 32, FULL, "bshd"),
    (1, 2, 2, 4096, 4096, 128, 128, CAUSAL, "bshd"),
]
# The same with scores of up to about ±100 that grow along the keys, so that the running
# maximum of the softmax moves in every tile.
LOUD: list[Shape] = [
    (1, 2, 1, 300, 1100, 64, 64, FULL, "bshd"),
    (1, 2, 2, 1000, 1000, 128, 128, CAUSAL, "bhsd"),
]


def problem_of(case: Shape) -> Problem:
    b, h, hkv, sq, sk, d, dv, (left, right, align), _ = case
    return Problem(
        batch=b,
        heads=h,
        kv_heads=hkv,
        seq_q=sq,
        seq_k=sk,
        head_dim=d,
        head_dim_v=dv,
        mask_left=left,
        mask_right=right,
        mask_align=align,
        num_splits=0,
        scale=1 / math.sqrt(d),
    )


def shape_of(p: Problem, name: str) -> tuple[int, int, int, int]:
    """Logical order: batch, seq, heads, head_dim."""
    keys = name in ("k", "v", "dk", "dv")
    wide = name in ("v", "dv", "out", "dout")
    return (
        p.batch,
        p.seq_k if keys else p.seq_q,
        p.kv_heads if keys else p.heads,
        p.head_dim_v if wide else p.head_dim,
    )


def describe(case: Shape) -> str:
    b, h, hkv, sq, sk, d, dv, (left, right, align), layout = case
    mask = f"mask{left},{right},{'br' if align else 'tl'}"
    return f"b{b} h{h}/{hkv} q{sq} k{sk} d{d}/{dv} {mask} {layout}"
