"""Users' own functions as variants: finds, calls and times them like those of a library."""
