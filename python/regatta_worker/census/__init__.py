"""What a call has the device and the library do, apart from any timing."""
