"""Operators that a suite declares as data: their inputs, functions and references."""
