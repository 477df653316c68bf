import numpy as np


def attention(q, k, v, problem):
    if not problem.mask.is_full:
        raise NotImplementedError("full masks")
    out = np.empty_like(q)
    for start in range(0, problem.seq_q, 32):
        rows = slice(start, start + 32)
        scores = np.einsum("bihd,bjhd->bhij", q[:, rows], k, optimize=True)
        weights = np.exp(scores * np.float32(problem.scale))
        weights /= weights.sum(axis=-1, keepdims=True)
        out[:, rows] = np.einsum("bhij,bjhd->bihd", weights, v, optimize=True)
    return out
