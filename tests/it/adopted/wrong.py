"""The same with ten wrong results, and one that is right in another order of sums."""

import numpy as np


def attention(q, k, v):  # a head is skipped
    out = np.zeros_like(q)
    for head in range(q.shape[0] - 1):
        scores = q[head] @ k[head].T / np.float32(q.shape[-1] ** 0.5)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        out[head] = weights / weights.sum(axis=-1, keepdims=True) @ v[head]
    return out


def softmax(x):  # in half precision
    x = np.exp((x - x.max(axis=-1, keepdims=True)).astype(np.float16))
    return (x / x.sum(axis=-1, keepdims=True)).astype(np.float32)


def layer_norm(x, out):  # the last row is not written
    x = x - x.mean(axis=-1, keepdims=True)
    x = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + np.float32(1e-6))
    out[:-1] = x[:-1]


KEPT = {}


def rms_norm(x, weight):  # a buffer that an earlier call filled
    if x.shape not in KEPT:
        KEPT[x.shape] = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + np.float32(1e-6))
    return KEPT[x.shape] * weight


def matmul(a, b, out):  # the last block is left out
    for row in range(0, a.shape[0] - 32, 32):
        out[row : row + 32] = a[row : row + 32] @ b


def scan(x, gate):  # the gate of the step before
    state, out = np.zeros_like(x[0]), np.empty_like(x)
    for step in range(len(x)):
        state = state * gate[step - 1] + x[step]
        out[step] = state
    return out


def rotary(x, angle):  # a sign
    left, right = np.split(x, 2, axis=-1)
    cosine, sine = np.cos(angle), np.sin(angle)
    return np.concatenate([left * cosine - right * sine, right * cosine - left * sine], axis=-1)


def top(x):  # off by one
    return np.argsort(-x, axis=-1)[:, 1:5]


def quantised(x):  # cut off in place of rounded
    return (x * (127 / np.abs(x).max())).astype(np.int8)


def gelu(x):  # another type
    return x * 0.5 * (1 + np.tanh(0.7978846 * (x.astype(np.float64) + 0.044715 * x**3)))


def variance(x):  # right: another order of sums
    return np.einsum("ij,ij->i", x, x) / np.float32(x.shape[-1]) - x.mean(axis=-1) ** 2
