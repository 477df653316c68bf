"""A product of numbers of 8 bits, in float64."""


def product(a, a_scale, b, b_scale):
    return (a * a_scale) @ (b * b_scale)
