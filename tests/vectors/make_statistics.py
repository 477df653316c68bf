"""Makes statistics.json: Hodges-Lehmann estimates and intervals, which Rust's tests replay.

    pip install numpy && python tests/vectors/make_statistics.py > tests/vectors/statistics.json

They follow from the definition, with the null distributions enumerated by brute force.
"""

import itertools
import json
import math

import numpy as np

rng = np.random.default_rng(20260105)


def interval(sorted_values, null, nominal=0.95):
    """Widest trimming whose coverage stays nominal; null: every equally likely value."""
    null = np.asarray(null)
    skip = 0
    while skip + 1 < math.ceil(len(sorted_values) / 2) \
            and 1 - 2 * (null <= skip + 1).mean() >= nominal:
        skip += 1
    return dict(ratio=math.exp(np.median(sorted_values)), low=math.exp(sorted_values[skip]),
                high=math.exp(sorted_values[-1 - skip]),
                confidence=max(0.0, 1 - 2 * (null <= skip).mean()))


def two_sample(base, head):
    n, m = len(base), len(head)
    null = [sum(c) - m * (m + 1) // 2 for c in itertools.combinations(range(1, n + m + 1), m)]
    shifts = sorted(math.log(h) - math.log(b) for h in head for b in base)
    return dict(base=base, head=head, **interval(shifts, null))


def paired(ratios):
    logs = [math.log(r) for r in ratios]
    walsh = sorted((logs[i] + logs[j]) / 2 for i in range(len(logs)) for j in range(i, len(logs)))
    null = [sum(r for r, take in zip(range(1, len(logs) + 1), signs) if take)
            for signs in itertools.product((0, 1), repeat=len(logs))]
    return dict(ratios=ratios, **interval(walsh, null))


def values(count, shift=1.0, digits=6):
    return [round(float(v), digits) for v in shift * (1 + 0.05 * rng.standard_normal(count))]


def main():
    out = {"two_sample": [], "paired": []}
    for n in range(3, 13):
        for m in range(3, 17 - n):
            out["two_sample"].append(two_sample(values(n), values(m, 1.1)))
    for n in range(1, 13):
        out["paired"].append(paired(values(n, 1.1)))
    print(json.dumps(out))


main()
