"""The programs: `build(change)` of each gives a Program, ready to run."""
