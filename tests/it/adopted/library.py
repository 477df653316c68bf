"""The functions of a project, in NumPy, as they are in the base."""

import numpy as np


def attention(q, k, v):
    out = np.empty_like(q)
    for head in range(q.shape[0]):
        scores = q[head] @ k[head].T / np.float32(q.shape[-1] ** 0.5)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        out[head] = weights / weights.sum(axis=-1, keepdims=True) @ v[head]
    return out


def softmax(x):
    x = np.exp(x - x.max(axis=-1, keepdims=True))
    return x / x.sum(axis=-1, keepdims=True)


def layer_norm(x, out):
    x = x - x.mean(axis=-1, keepdims=True)
    np.divide(x, np.sqrt((x * x).mean(axis=-1, keepdims=True) + np.float32(1e-6)), out=out)


def rms_norm(x, weight):
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + np.float32(1e-6)) * weight


def matmul(a, b, out):
    for row in range(0, a.shape[0], 32):
        out[row : row + 32] = a[row : row + 32] @ b


def scan(x, gate):
    state, out = np.zeros_like(x[0]), np.empty_like(x)
    for step in range(len(x)):
        state = state * gate[step] + x[step]
        out[step] = state
    return out


def rotary(x, angle):
    left, right = np.split(x, 2, axis=-1)
    cosine, sine = np.cos(angle), np.sin(angle)
    return np.concatenate([left * cosine - right * sine, right * cosine + left * sine], axis=-1)


def top(x):
    return np.argsort(-x, axis=-1)[:, :4]


def quantised(x):
    return np.rint(x * (127 / np.abs(x).max())).astype(np.int8)


def gelu(x):
    return x * np.float32(0.5) * (1 + np.tanh(np.float32(0.7978846) * (x + np.float32(0.044715) * x**3)))


def variance(x):
    return (x * x).mean(axis=-1) - x.mean(axis=-1) ** 2
