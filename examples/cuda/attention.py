"""Hands torch's tensors to attention.cu: `regatta build ./cuda.toml` compiles it."""

import ctypes
from pathlib import Path

import torch

library = ctypes.CDLL(str(Path(__file__).with_name("attention.so")))


def attention(q, k, v, problem):
    """A block of threads for each query, in CUDA."""
    if not problem.mask.is_full or problem.varlen or problem.layout != "bshd":
        raise NotImplementedError("bshd and full masks")
    if not q.is_cuda or q.dtype != torch.float32 or q.shape[2:] != v.shape[2:]:
        raise NotImplementedError("float32 on a GPU, k and v as wide as q, a key head each")
    if problem.seq_k > 12288:
        raise NotImplementedError("at most 12288 keys, whose weights are in shared memory")
    out = torch.empty_like(q)
    pointers = (ctypes.c_void_p(tensor.data_ptr()) for tensor in (q, k, v, out))
    counts = (problem.batch, problem.seq_q, problem.seq_k, problem.heads, problem.head_dim)
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    failed = library.attention(*pointers, *counts, ctypes.c_float(problem.scale), stream)
    if failed:
        raise RuntimeError(f"CUDA error {failed}")
    return out
