"""The worker for attention libraries with Python bindings, which speaks docs/PROTOCOL.md."""
