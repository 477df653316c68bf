"""Somebody's own functions as variants: found, called and timed as any library's."""
