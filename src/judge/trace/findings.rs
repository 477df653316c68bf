//! Why one trace differs from another: findings with the figures, most telling first.
//!
//! Where a cause is the same as one of [`crate::judge::causes`], which judge runs of a suite,
//! it has the same name; some are of one of the two alone. A trace knows more of each launch
//! (when it ran, and for how long), so evidence here has times, confidence follows from them,
//! and a launch that costs nothing more is no cause.

use super::changes::{Became, KernelChange};
use super::compare::{Comparison, Scope};
use crate::attention::moves_data;
use crate::judge::causes::EXPLAINS;
use crate::judge::causes::launches::{plain, short};
use crate::judge::judgement::Finding;
use crate::judge::phrase::{change, count, from_to, part_of, percent, time};

/// Findings of a kind that are told one by one; the others are counted.
const TOLD: usize = 3;

/// Share of a repetition's time below which a change of one kernel is not worth a finding
/// by its time alone.
const WORTH: f64 = 0.02;

/// What is left of the confidence of a finding that accounts for less than half of a
/// slowdown: such findings keep their order among themselves.
const MINOR: f64 = 0.55;

/// A finding, and what it weighs.
pub struct Found {
    /// What is told.
    pub finding: Finding,
    /// Nanoseconds of head over base that it accounts for, below 0 for a gain; `None`
    /// where that is not known.
    pub growth_ns: Option<f64>,
    /// True when it is a loss by itself, whatever the times say.
    pub worse: bool,
}

impl Found {
    /// What accounts for less than half of a slowdown, or for a gain, came with it rather
    /// than caused it. One whose time is not known keeps its rank.
    fn rank_by_share(&mut self, comparison: &Comparison) {
        let (base, head) = (&comparison.sides.base, &comparison.sides.head);
        let slower = head.elapsed_ns - base.elapsed_ns;
        let minor = self.growth_ns.is_some_and(|ns| ns < EXPLAINS * slower);
        if minor && comparison.elapsed_ratio() > 1.0 + comparison.floor {
            self.finding.confidence *= MINOR;
        }
    }
}

/// Finds them.
pub fn findings(comparison: &Comparison) -> Vec<Found> {
    let mut found = Vec::new();
    less_parallel(comparison, &mut found);
    found.extend(copies_added(comparison));
    found.extend(kernels_replaced(comparison));
    found.extend(launches_added(comparison));
    found.extend(recompiled(comparison));
    found.extend(late_host(comparison));
    found.extend(lost_overlap(comparison));
    found.extend(modules_loaded(comparison));
    found.extend(calls_added(comparison));
    found.extend(unexplained(comparison));
    for minor in &mut found {
        minor.rank_by_share(comparison);
    }
    found.sort_by(|a, b| {
        let confidence = b.finding.confidence.total_cmp(&a.finding.confidence);
        let growth = |found: &Found| found.growth_ns.unwrap_or(0.0);
        confidence.then(growth(b).total_cmp(&growth(a)))
    });
    found
}

fn found(
    cause: &str,
    evidence: String,
    confidence: f64,
    growth_ns: impl Into<Option<f64>>,
    worse: bool,
) -> Found {
    Found {
        finding: Finding {
            cause: cause.to_owned(),
            evidence,
            confidence,
        },
        growth_ns: growth_ns.into(),
        worse,
    }
}

/// Kernels whose launch lost blocks, one finding each: this is what ends a search.
fn less_parallel(comparison: &Comparison, all: &mut Vec<Found>) {
    let lost = comparison
        .kernels
        .iter()
        .filter(|k| k.fewer > 1.0 && k.became == Became::Same);
    for kernel in lost.take(TOLD) {
        let slower = kernel.ratio() > 1.0 + comparison.floor;
        let mut facts = kernel.changes.clone();
        if let (Some(filled), Some(sms)) = (kernel.filled, kernel.sms) {
            facts.push(format!("{} of {sms} SMs", filled.head));
        }
        facts.push(times(kernel));
        // Losing a tenth of the blocks explains little; losing half explains much.
        let confidence = match (slower, kernel.fewer >= 1.5) {
            (true, true) => 0.95,
            (true, false) => 0.6,
            (false, _) => 0.4,
        };
        all.push(found(
            "less-parallel",
            format!("{}: {}", short(&kernel.name.head), facts.join(", ")),
            confidence,
            kernel.growth_ns(),
            slower,
        ));
    }
}

/// `2.60 ms → 269 ms, 103 times slower`.
fn times(kernel: &KernelChange) -> String {
    let (before, after) = (kernel.mean_ns.base, kernel.mean_ns.head);
    format!("{}, {}", from_to(before, after), change(kernel.ratio()))
}

/// Kernels that move data, and copies, that were not there before.
fn copies_added(comparison: &Comparison) -> Option<Found> {
    let moving = comparison
        .kernels
        .iter()
        .filter(|kernel| moves_data(kernel.called()) && kernel.count.head > kernel.count.base);
    let moving: Vec<&KernelChange> = moving.collect();
    let kernels: f64 = moving.iter().map(|k| k.count.head - k.count.base).sum();
    let mut ns: f64 = moving.iter().map(|k| k.growth_ns()).sum();
    let mut evidence = Vec::new();
    if kernels >= 0.5 {
        let example = moving
            .first()
            .map_or_else(String::new, |k| plain(k.called()));
        let kernels = kernels.round() as usize;
        evidence.push(format!(
            "{} added ({example})",
            count(kernels, "copy kernel")
        ));
    }
    let (base, head) = (&comparison.sides.base.copies, &comparison.sides.head.copies);
    for (direction, (number, copied_ns)) in head {
        let (before, before_ns) = base.get(direction).copied().unwrap_or_default();
        // Of a whole program, or one whose repetitions differ, a part of one is none.
        if *number >= before + 0.5 {
            ns += copied_ns - before_ns;
            evidence.push(format!(
                "{direction} {} → {}",
                figure(before),
                figure(*number)
            ));
        }
    }
    let busy = comparison.sides.head.busy_ns;
    let share = part_of(ns.max(0.0), busy);
    (!evidence.is_empty()).then(|| {
        let evidence = format!("{}, {share}", evidence.join(", "));
        found("copies-added", evidence, 0.9, ns, true)
    })
}

fn kernels_replaced(comparison: &Comparison) -> Option<Found> {
    let replaced = comparison
        .kernels
        .iter()
        .filter(|k| k.became == Became::Replaced);
    let replaced: Vec<&KernelChange> = replaced.collect();
    let told = replaced.iter().take(TOLD).map(|kernel| {
        let (before, after) = (short(&kernel.name.base), short(&kernel.name.head));
        match before == after {
            true => format!(
                "{before} (differs further on in its name): {}",
                times(kernel)
            ),
            false => format!("{before} → {after}: {}", times(kernel)),
        }
    });
    let mut told: Vec<String> = told.collect();
    if replaced.len() > TOLD {
        told.push(format!("and {} more", replaced.len() - TOLD));
    }
    let growth: f64 = replaced.iter().map(|kernel| kernel.growth_ns()).sum();
    (!told.is_empty()).then(|| found("kernel-replaced", told.join("; "), 0.8, growth, false))
}

/// More launches, those that move data aside: they are `copies-added`.
fn launches_added(comparison: &Comparison) -> Option<Found> {
    let computing = comparison
        .kernels
        .iter()
        .filter(|k| !moves_data(k.called()));
    let (mut before, mut after, mut growth) = (0.0, 0.0, 0.0);
    for kernel in computing {
        before += kernel.count.base;
        after += kernel.count.head;
        if kernel.count.head > kernel.count.base {
            growth += kernel.growth_ns();
        }
    }
    // Each launch comes with a gap before it.
    growth += (comparison.sides.head.idle_ns - comparison.sides.base.idle_ns).max(0.0);
    (before > 0.0 && after > before).then(|| {
        let evidence = format!("launches {} → {}", figure(before), figure(after));
        found("launches-added", evidence, 0.7, growth, true)
    })
}

/// The same kernels with other registers, memory or blocks.
fn recompiled(comparison: &Comparison) -> Option<Found> {
    let changed = comparison.kernels.iter().filter(|kernel| {
        let only_grid = kernel
            .changes
            .iter()
            .all(|change| change.starts_with("grid"));
        kernel.became == Became::Same && kernel.fewer <= 1.0 && !only_grid
    });
    let changed: Vec<&KernelChange> = changed.collect();
    let told = changed.iter().take(TOLD).map(|kernel| {
        let facts = kernel.changes.join(", ");
        format!("{facts} of {}: {}", short(&kernel.name.head), times(kernel))
    });
    let told: Vec<String> = told.collect();
    let growth: f64 = changed.iter().map(|kernel| kernel.growth_ns()).sum();
    (!told.is_empty()).then(|| found("recompiled", told.join("; "), 0.65, growth, false))
}

/// The device waits longer than it did, by at least half of what passes more; and for the
/// host, where at least half of that can be laid to it. A trace knows no more of the host's time.
fn late_host(comparison: &Comparison) -> Option<Found> {
    let (base, head) = (&comparison.sides.base, &comparison.sides.head);
    let slower = comparison.elapsed_ratio() > 1.0 + comparison.floor;
    let growth = head.idle_ns - base.idle_ns;
    if !slower || growth < EXPLAINS * (head.elapsed_ns - base.elapsed_ns) {
        return None;
    }
    let waits = base.host_bound_ns.zip(head.host_bound_ns);
    let hosts = waits.filter(|(before, after)| 2.0 * (after - before) >= growth);
    let (cause, why, (before, after), confidence) = match hosts {
        Some(waits) => ("host-bound", " waiting for the host", waits, 0.75),
        None => ("gaps", "", (base.idle_ns, head.idle_ns), 0.5),
    };
    let evidence = format!(
        "device idle{why} {} of {} {}, and works {}",
        from_to(before, after),
        time(head.elapsed_ns),
        each(comparison.scope),
        time(head.busy_ns)
    );
    Some(found(cause, evidence, confidence, after - before, false))
}

fn each(scope: Scope) -> &'static str {
    match scope {
        Scope::Repetition => "a repetition",
        Scope::Whole => "in all",
    }
}

/// Copies that kernels hid, and that they hide no longer.
fn lost_overlap(comparison: &Comparison) -> Option<Found> {
    let (base, head) = (&comparison.sides.base, &comparison.sides.head);
    let (before, after) = (base.overlap?, head.overlap?);
    let copying: f64 = head.copies.values().map(|(_, ns)| ns).sum();
    let growth = (before - after) * copying;
    (before - after > 0.2 && growth > WORTH * head.busy_ns).then(|| {
        let evidence = format!(
            "copies and compute at once {} → {} of copying, {} no longer hidden",
            percent(before),
            percent(after),
            time(growth)
        );
        found("lost-overlap", evidence, 0.8, growth, true)
    })
}

/// More modules loaded in every repetition: something is compiled or tuned again each time.
/// Of a whole program it may be no more than another warm-up.
fn modules_loaded(comparison: &Comparison) -> Option<Found> {
    let (base, head) = (&comparison.sides.base.calls, &comparison.sides.head.calls);
    let (before, after) = (base.get("module_loads")?, head.get("module_loads")?);
    let steady = comparison.scope == Scope::Repetition;
    (steady && *after >= before + 0.5).then(|| {
        let (before, after) = (figure(*before), figure(*after));
        let evidence = format!("modules loaded {before} → {after} a repetition");
        found("recompiled", evidence, 0.92, None, false)
    })
}

/// Calls that a steady state does without: memory allocated, waits; of a whole program
/// modules loaded.
fn calls_added(comparison: &Comparison) -> Option<Found> {
    let (base, head) = (&comparison.sides.base.calls, &comparison.sides.head.calls);
    let steady = comparison.scope == Scope::Repetition;
    let told = ["module_loads", "allocations", "synchronisations"]
        .into_iter()
        .filter(|name| !(steady && *name == "module_loads"))
        .filter_map(|name| {
            let (before, after) = (base.get(name)?, head.get(name)?);
            let more = *after >= before + 0.5 && *after > before * (1.0 + comparison.floor);
            more.then(|| {
                format!(
                    "{} {} → {}",
                    name.replace('_', " "),
                    figure(*before),
                    figure(*after)
                )
            })
        });
    let told: Vec<String> = told.collect();
    let evidence = format!("{} {}", told.join(", "), each(comparison.scope));
    (!told.is_empty()).then(|| found("calls-added", evidence, 0.6, None, false))
}

/// Kernels that are launched as before and take longer: not their launch's fault.
fn unexplained(comparison: &Comparison) -> Option<Found> {
    let worth = WORTH * comparison.sides.head.busy_ns;
    let slower = comparison.kernels.iter().filter(|kernel| {
        kernel.became == Became::Same
            && kernel.changes.is_empty()
            && kernel.ratio() > 1.0 + comparison.floor
            && kernel.growth_ns() > worth
    });
    let slower: Vec<&KernelChange> = slower.collect();
    let told = slower.iter().take(TOLD);
    let told: Vec<String> = told
        .map(|k| format!("{}: {}", short(&k.name.head), times(k)))
        .collect();
    let growth: f64 = slower.iter().map(|kernel| kernel.growth_ns()).sum();
    (!told.is_empty()).then(|| {
        let evidence = format!(
            "{}; launched as before: other inputs, a lower clock, or another user of the device",
            told.join("; ")
        );
        found("same-launch", evidence, 0.35, growth, false)
    })
}

/// A count that need not be whole, as a mean over repetitions is.
fn figure(count: f64) -> String {
    match (count - count.round()).abs() < 0.05 {
        true => format!("{count:.0}"),
        false => format!("{count:.1}"),
    }
}
