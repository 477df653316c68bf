"""Operators that a suite declares as data: inputs, the functions that compute them, references."""
