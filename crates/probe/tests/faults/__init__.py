"""The programs of `trace_faults.py`: `build(change)` of each gives its step, which is given a
number, negative before the first steady one."""
