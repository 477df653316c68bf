"""Hands NumPy's arrays to attention.cpp: `regatta build ./cpp.toml` compiles it."""

import ctypes
from pathlib import Path

import numpy as np

library = ctypes.CDLL(str(Path(__file__).with_name("attention.so")))


def attention(q, k, v, problem):
    """Every query by itself, in C++."""
    if not problem.mask.is_full or problem.varlen or problem.layout != "bshd":
        raise NotImplementedError("bshd and full masks")
    if q.dtype != np.float32 or q.shape[2:] != v.shape[2:]:
        raise NotImplementedError("float32, k and v as wide as q, a key head for each query head")
    out = np.empty_like(q)
    arrays = (ctypes.c_void_p(array.ctypes.data) for array in (q, k, v, out))
    counts = (problem.batch, problem.seq_q, problem.seq_k, problem.heads, problem.head_dim)
    library.attention(*arrays, *counts, ctypes.c_float(problem.scale))
    return out
