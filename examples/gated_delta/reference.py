"""The same recurrence as products of matrices: s <- a (s - b k (kᵀ s)) + b k vᵀ."""

import numpy as np


def gated_delta(q, k, v, g, beta, s):
    out = []
    for t in range(len(q)):
        a, b, column = np.exp(g[t])[:, None, None], beta[t][:, None, None], k[t][..., None]
        s[:] = a * (s - b * column @ (column.swapaxes(1, 2) @ s)) + b * column * v[t][:, None]
        out.append((q[t][:, None] @ s)[:, 0])
    return np.array(out)
