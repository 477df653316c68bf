"""A gated delta net, one step after the other; the state `s` is updated in place."""

import numpy as np


def gated_delta(q, k, v, g, beta, s):
    out = np.empty_like(v)
    for t in range(len(q)):
        s *= np.exp(g[t])[:, None, None]
        u = beta[t][:, None] * (v[t] - np.einsum("hk,hkv->hv", k[t], s))
        s += k[t][..., None] * u[:, None]
        out[t] = np.einsum("hk,hkv->hv", q[t], s)
    return out
