"""Libraries that need several processes: one a rank, each a worker of the protocol."""
