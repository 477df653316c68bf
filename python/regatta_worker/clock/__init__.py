"""Times a call: by regatta's GPU clock, or by other clocks if it is not available."""
