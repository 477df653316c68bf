"""The work of the device and the library in a call, apart from any timing."""
