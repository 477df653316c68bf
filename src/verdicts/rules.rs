//! The rules of other tools, by their published definitions.
//!
//! Each is written down from what its source says, is none of its code, and judges what
//! that tool would have measured: samples of one process, where it knows no others.

use rand_chacha::ChaCha8Rng;

use super::bootstrap::{change_of_means, p_of_welch_t};
use super::sweep::Invocations;
use crate::judge::statistics::{coefficient_of_variation, mann_whitney, reachable_p};
use crate::record::side::median;
use crate::units::{Nanoseconds, Ratio, Share, numbers};

/// What a rule calls a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Called {
    /// Worse.
    Slower,
    /// Better.
    Faster,
    /// Neither: the same, or undecided.
    Neither,
}

/// What a tool measures on each side of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Takes {
    /// Processes, one after another.
    pub processes: usize,
    /// Samples in each.
    pub samples: usize,
}

/// The rule of a tool.
pub struct Rule {
    /// As it stands in the table.
    pub name: &'static str,
    /// What it measures.
    pub takes: Takes,
    /// Where it is defined, and what that says.
    pub source: &'static str,
    /// What is left out or assumed here.
    pub simplified: &'static str,
    /// Calls one case by base and head.
    pub call: fn(&Invocations, &Invocations, &mut ChaCha8Rng) -> Called,
    /// True for a sweep with so many slower and so many faster cases that fails.
    pub red: fn(slower: usize, faster: usize) -> bool,
}

/// Any slower case is an alarm, to whoever reads the tool's output.
fn any_slower(slower: usize, _faster: usize) -> bool {
    slower > 0
}

/// What a process that prints all it has seen takes: as many samples as five invocations.
const ONE_PROCESS: Takes = Takes {
    processes: 1,
    samples: 100,
};

/// Every rule, in the order of the table.
pub const RULES: [Rule; 7] = [
    Rule {
        name: "band of 5 %",
        takes: Takes {
            processes: 5,
            samples: 20,
        },
        source: "what most gates of one line do: medians more than 5 % apart",
        simplified: "it is given this gate's medians of five processes; most take one",
        call: band,
        red: any_slower,
    },
    Rule {
        name: "nvbench legacy",
        takes: ONE_PROCESS,
        source: "NVIDIA/nvbench, python/scripts/nvbench_compare.py: SLOW or FAST where the \
                 relative difference of GPU means exceeds the smaller of both relative \
                 standard deviations; the exit code is the number of both",
        simplified: "100 samples, where nvbench takes them until their deviation settles",
        call: nvbench_legacy,
        red: |slower, faster| slower + faster > 0,
    },
    Rule {
        name: "nvbench robust",
        takes: ONE_PROCESS,
        source: "NVIDIA/nvbench, docs/nvbench_compare_robust.md: SLOW or FAST where the \
                 intervals [minimum, third quartile] have a gap of 0.5 % or more, confirmed in \
                 cycles",
        simplified: "the device's clock is taken to be steady, so that cycles confirm times; it \
                     exits 0 whatever it found, and a row that says SLOW is taken for red",
        call: nvbench_robust,
        red: any_slower,
    },
    Rule {
        name: "criterion",
        takes: ONE_PROCESS,
        source: "bheisler/criterion.rs, src/analysis/compare.rs and src/report.rs: regressed \
                 where p < 0.05 by a bootstrap of Welch's t over both samples pooled, and the \
                 bootstrap interval (95 %) of the change of means lies above 1 %",
        simplified: "1,000 resamples for 100,000, none where a normal approximation leaves no \
                     doubt; a sample is one call; it never fails by itself",
        call: criterion,
        red: any_slower,
    },
    Rule {
        name: "google-benchmark",
        takes: Takes {
            processes: 1,
            samples: 9,
        },
        source: "google/benchmark, tools/gbench/report.py and tools/compare.py: two-sided \
                 Mann-Whitney on repetitions (nine are recommended), alpha 0.05",
        simplified: "a repetition is one sample, not a mean of many iterations; p is exact; the \
                     direction is that of the medians; it never fails by itself",
        call: google_benchmark,
        red: any_slower,
    },
    Rule {
        name: "asv",
        takes: Takes {
            processes: 2,
            samples: 5,
        },
        source: "airspeed-velocity/asv, asv/commands/compare.py and asv/_stats.py: the medians \
                 lie a factor of 1.1 apart, and Mann-Whitney says p < 0.002 (or, with too few \
                 samples for that, the 99 % intervals do not overlap)",
        simplified: "two rounds of five samples; with too few, sides that do not overlap stand \
                     for intervals that do not",
        call: asv,
        red: any_slower,
    },
    Rule {
        name: "xFormers",
        takes: ONE_PROCESS,
        source: "facebookresearch/xformers, xformers/benchmarks/utils.py, _fail_if_regressions: \
                 means more than 5 % and 30 µs apart; it fails where more than one case is slower",
        simplified: "100 samples, where it times for two seconds",
        call: xformers,
        red: |slower, _| slower > 1,
    },
];

/// `Slower` where head is more than `limit` times base, `Faster` the other way round.
fn beyond(base: Nanoseconds, head: Nanoseconds, limit: Ratio) -> Called {
    if head > base * limit {
        Called::Slower
    } else if base > head * limit {
        Called::Faster
    } else {
        Called::Neither
    }
}

/// `Slower` or `Faster`, whichever it is, of something that is called.
fn direction(base: Nanoseconds, head: Nanoseconds) -> Called {
    beyond(base, head, Ratio::ONE)
}

/// All samples of a side, whatever process they are of.
fn pooled(side: &Invocations) -> Vec<Nanoseconds> {
    side.iter().flatten().copied().collect()
}

fn centre(samples: &[Nanoseconds]) -> Nanoseconds {
    median(samples).unwrap_or(Nanoseconds(f64::NAN))
}

fn mean(samples: &[Nanoseconds]) -> Nanoseconds {
    samples.iter().copied().sum::<Nanoseconds>() / samples.len() as f64
}

/// Five per cent between the medians of the processes' medians.
fn band(base: &Invocations, head: &Invocations, _: &mut ChaCha8Rng) -> Called {
    let of = |side: &Invocations| {
        let medians: Vec<Nanoseconds> = side.iter().map(|samples| centre(samples)).collect();
        centre(&medians)
    };
    beyond(of(base), of(head), Ratio(1.05))
}

/// The smaller relative deviation is the noise; where neither side has five samples or
/// any deviation, nothing is said.
fn nvbench_legacy(base: &Invocations, head: &Invocations, _: &mut ChaCha8Rng) -> Called {
    let (base, head) = (pooled(base), pooled(head));
    let deviation = |samples: &[Nanoseconds]| match samples.len() {
        0..5 => f64::INFINITY,
        _ => coefficient_of_variation(&numbers(samples)),
    };
    let noise = deviation(&base).min(deviation(&head));
    let (before, after) = (mean(&base), mean(&head));
    let change = (after - before).share_of(before);
    if noise == 0.0 || change.abs() <= Share(noise) {
        return Called::Neither;
    }
    direction(before, after)
}

/// Intervals from the minimum to the third quartile, half a per cent apart.
fn nvbench_robust(base: &Invocations, head: &Invocations, _: &mut ChaCha8Rng) -> Called {
    let interval = |side: &Invocations| {
        let mut sorted = pooled(side);
        sorted.sort_by(Nanoseconds::total_cmp);
        let place = 0.75 * (sorted.len() - 1) as f64;
        let (low, high) = (sorted[place as usize], sorted[place.ceil() as usize]);
        (sorted[0], low + (high - low) * place.fract())
    };
    let ((low, high), (new_low, new_high)) = (interval(base), interval(head));
    let clear = |upper: Nanoseconds, lower: Nanoseconds| {
        lower > upper && (lower - upper).share_of(upper) >= Share(0.005)
    };
    if clear(high, new_low) {
        Called::Slower
    } else if clear(new_high, low) {
        Called::Faster
    } else {
        Called::Neither
    }
}

/// A bootstrapped t-test at 0.05, and a noise threshold of 1 %.
fn criterion(base: &Invocations, head: &Invocations, rng: &mut ChaCha8Rng) -> Called {
    const THRESHOLD: f64 = 0.01;
    let (base, head) = (numbers(&pooled(base)), numbers(&pooled(head)));
    let Some((low, high)) = change_of_means(&base, &head, THRESHOLD, rng) else {
        return Called::Neither;
    };
    if p_of_welch_t(&base, &head, rng) >= 0.05 {
        Called::Neither
    } else if low > THRESHOLD {
        Called::Slower
    } else if high < -THRESHOLD {
        Called::Faster
    } else {
        Called::Neither
    }
}

/// Mann-Whitney at 0.05, however small the change.
fn google_benchmark(base: &Invocations, head: &Invocations, _: &mut ChaCha8Rng) -> Called {
    let (base, head) = (pooled(base), pooled(head));
    match mann_whitney(&numbers(&base), &numbers(&head)) {
        Some(test) if test.two_sided < 0.05 => direction(centre(&base), centre(&head)),
        _ => Called::Neither,
    }
}

/// A factor of 1.1, and Mann-Whitney at 0.002.
fn asv(base: &Invocations, head: &Invocations, _: &mut ChaCha8Rng) -> Called {
    const LIMIT: f64 = 0.002;
    let (base, head) = (pooled(base), pooled(head));
    let called = beyond(centre(&base), centre(&head), Ratio(1.1));
    if called == Called::Neither {
        return called;
    }
    let reachable = reachable_p(base.len(), head.len());
    let Some(test) = mann_whitney(&numbers(&base), &numbers(&head)) else {
        return Called::Neither;
    };
    // Whether the test can say anything is decided by the one-sided p of sides that do not
    // overlap, which is half of what the two-sided one can come down to.
    let different = match reachable / 2.0 < LIMIT {
        true => test.two_sided < LIMIT,
        false => test.two_sided <= reachable * (1.0 + 1e-9),
    };
    match different {
        true => called,
        false => Called::Neither,
    }
}

/// More than 5 % and 30 µs together.
fn xformers(base: &Invocations, head: &Invocations, _: &mut ChaCha8Rng) -> Called {
    let (before, after) = (mean(&pooled(base)), mean(&pooled(head)));
    let counts = (after - before).abs() - before * Share(0.05) > Nanoseconds(30e3);
    match counts {
        true => direction(before, after),
        false => Called::Neither,
    }
}

#[cfg(test)]
mod tests;
