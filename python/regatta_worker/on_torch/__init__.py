"""The common parts of libraries on torch, and calls of theirs that take a file of their own."""
