"""The time of a call: regatta's GPU clock, and the clocks without it."""
