"""Five of the functions as asv times them: most drop their results."""

import numpy as np

import library


def normal(*shape):
    return np.random.standard_normal(shape).astype(np.float32)


class Rows:
    params = [64, 96]
    param_names = ["rows"]

    def setup(self, rows):
        self.x, self.weight = normal(rows, 64), normal(64)
        self.out = np.empty_like(self.x)
        library.rms_norm(np.ones_like(self.x), self.weight)

    def time_softmax(self, rows):
        library.softmax(self.x)

    def time_layer_norm(self, rows):
        library.layer_norm(self.x, self.out)

    def time_rms_norm(self, rows):
        library.rms_norm(self.x, self.weight)

    def time_variance(self, rows):
        return library.variance(self.x)


class Products:
    def setup(self):
        self.a, self.b, self.out = normal(64, 64), normal(64, 64), np.empty((64, 64), np.float32)
        self.heads = normal(3, 4, 32, 16)

    def time_matmul(self):
        library.matmul(self.a, self.b, self.out)

    def time_attention(self):
        library.attention(*self.heads)
