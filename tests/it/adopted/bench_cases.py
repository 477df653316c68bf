"""The others, as a generator."""

import numpy as np

import library


def cases():
    x = np.random.standard_normal((64, 32)).astype(np.float32)
    gate = np.random.random((64, 32)).astype(np.float32)
    yield "scan", {"rows": 64}, lambda: library.scan(x, gate)
    yield "rotary", {"rows": 64}, lambda: library.rotary(x, gate[:, :16])
    for name in ("top", "quantised", "gelu"):
        yield name, {"rows": 64}, lambda: getattr(library, name)(x)
