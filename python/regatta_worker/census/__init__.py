"""Counts the work of the device and of the library in a call, outside of any timing."""
