"""RMS normalisation in NumPy."""


def rmsnorm(x, weight, eps):
    return x * ((x * x).mean(axis=-1, keepdims=True) + eps) ** -0.5 * weight
