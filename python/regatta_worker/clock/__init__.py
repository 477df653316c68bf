"""How long a call takes: regatta's GPU clock, and what there is without it."""
