"""The common parts of libraries on torch, and those of their calls that need a file each."""
