"""The worker for kernel libraries with Python bindings; docs/PROTOCOL.md defines its protocol.

Each part imports only from parts that precede it in `LAYERS`.
"""

LAYERS = (
    *("protocol", "device", "problem", "clock", "census", "case", "on_torch", "on_jax"),
    *("ranks", "libraries", "serving", "exits", "beginnings", "callables", "script", "forking"),
    "main",
)
