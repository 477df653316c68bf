"""A product and GELU in its tanh form."""

import numpy as np


def matmul_gelu(a, b):
    x = a @ b
    return x * (0.5 + 0.5 * np.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))
