"""Makes statistics.json: what SciPy says of the cases that Rust's tests replay.

    pip install scipy && python tests/vectors/make_statistics.py > tests/vectors/statistics.json

Exact p of the Mann-Whitney test: `mannwhitneyu(method="exact")` without ties;
with ties every split of the values is enumerated here, since SciPy's exact
method ignores ties. Hodges-Lehmann intervals by the definition, with the null
distributions enumerated by brute force.
"""

import itertools
import json
import math

import numpy as np
from scipy import stats

rng = np.random.default_rng(20260105)


def enumerated(base, head):
    """One-sided p over every way to split the values, average ranks for ties."""
    ranks = stats.rankdata(np.concatenate([base, head])) * 2
    seen = round(ranks[len(base):].sum())
    sums = [round(sum(c)) for c in itertools.combinations(ranks, len(head))]
    less = sum(s <= seen for s in sums) / len(sums)
    greater = sum(s >= seen for s in sums) / len(sums)
    return less, greater


def mann_whitney(base, head, tied):
    u = stats.mannwhitneyu(head, base).statistic
    if tied:
        less, greater = enumerated(base, head)
        two = min(1.0, 2 * min(less, greater))
    else:
        p = [stats.mannwhitneyu(head, base, alternative=a, method="exact").pvalue
             for a in ("less", "greater", "two-sided")]
        less, greater, two = p
    return dict(base=base, head=head, u=u, less=less, greater=greater, two_sided=two)


def asymptotic(base, head):
    p = [stats.mannwhitneyu(head, base, alternative=a, method="asymptotic").pvalue
         for a in ("less", "greater", "two-sided")]
    return dict(base=base, head=head, u=stats.mannwhitneyu(head, base).statistic,
                less=p[0], greater=p[1], two_sided=p[2])


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
    out = dict(exact=[], ties=[], asymptotic=[], two_sample=[], paired=[])
    for n in range(3, 13):
        for m in range(3, 13):
            shift = 1 + 0.12 * rng.random() * rng.choice([-1, 0, 1])
            out["exact"].append(mann_whitney(values(n), values(m, shift), tied=False))
            if n + m <= 18:
                shift = 1 + 0.12 * rng.random() * rng.choice([-1, 0, 1])
                case = mann_whitney(values(n, digits=2), values(m, shift, digits=2), tied=True)
                out["ties"].append(case)
            if n + m <= 16:
                out["two_sample"].append(two_sample(values(n), values(m, 1.1)))
    for n, m in ((31, 30), (40, 50), (5, 60), (200, 100)):
        out["asymptotic"].append(asymptotic(values(n), values(m, 1.01)))
        out["asymptotic"].append(asymptotic(values(n, digits=2), values(m, 1.02, digits=2)))
    for n in range(1, 13):
        out["paired"].append(paired(values(n, 1.1)))
    print(json.dumps(out))


main()
