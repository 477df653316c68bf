"""Real programs on a GPU, each with faults that must be named and changes that do no harm.

`table` lists them, `programs/` holds them, and `main` runs one with one thing different.
`crates/probe/tests/trace_faults.py` traces and judges them.
"""
