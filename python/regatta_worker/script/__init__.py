"""Serves a benchmark script as it is: each call of a timer that is known here becomes a case."""
