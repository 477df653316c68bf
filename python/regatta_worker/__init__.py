"""The worker for libraries of kernels with Python bindings, which speaks docs/PROTOCOL.md.

A part imports from those before it in `LAYERS` alone.
"""

LAYERS = (
    *("protocol", "device", "problem", "clock", "census", "case", "on_torch", "on_jax"),
    *("ranks", "libraries", "serving", "exits", "beginnings", "callables", "script", "forking"),
    "main",
)
