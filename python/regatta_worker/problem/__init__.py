"""The problems: their inputs, and their exact results."""
