"""Real programs on a GPU, each with faults that must be named and changes that do no harm.

`table` lists them, `programs/` holds the programs, `main` runs one of them with one thing
different, and `judging` traces and compares. `probe/tests/trace_faults.py` is the command.
"""
