//! Instructions that kernels execute, as hardware counts them: exact on a device that others
//! use, where repeating has shown them to be.

use std::collections::BTreeSet;

use super::found::{Found, Pair, worse_if};
use crate::judge::judgement::Uncounted;
use crate::machine::{Counters, Counts, INSTRUCTIONS, METRICS, Metric, Structure, Use, short};
use crate::suite::structural::{Action, Kind};

/// What a change of the whole call is named, where other kernels run than before.
const WHOLE: &str = "the whole call";

/// Compares each kernel that both sides run, and the whole call where they run others. What is
/// within the range that countings of one side differ by is no change.
pub fn compare(found: &mut Found) {
    let pair = found.pair;
    let (Some(base), Some(head)) = (counters(pair.base), counters(pair.head)) else {
        return;
    };
    let others = base.kernels.keys().ne(head.kernels.keys());
    for metric in judged() {
        for (name, kernel) in &base.kernels {
            let before = kernel.instructions.get(metric.name);
            let head = head.kernels.get(name);
            let after = head.and_then(|kernel| kernel.instructions.get(metric.name));
            if let Some((before, after)) = before.zip(after) {
                add(found, metric, name, *before, *after);
            }
        }
        let total = |side: &Counters| side.total(metric.name);
        if let Some((before, after)) = total(base).zip(total(head)).filter(|_| others) {
            add(found, metric, WHOLE, before, after);
        }
    }
}

fn counters(record: &crate::record::side::CaseRecord) -> Option<&Counters> {
    record.counters.as_deref()
}

fn judged() -> impl Iterator<Item = &'static Metric> {
    METRICS
        .iter()
        .filter(|metric| metric.of == Use::Instructions)
}

fn add(found: &mut Found, metric: &Metric, kernel: &str, before: Counts, after: Counts) {
    // Ranges that a few countings span: what lies apart by more than the wider of them is no
    // chance. Both are 0 where counts are exact.
    let chance = before.spread().max(after.spread());
    let more = after.least > before.most.saturating_add(chance);
    let less = before.least > after.most.saturating_add(chance);
    if !more && !less {
        return;
    }
    let called = match metric.words == INSTRUCTIONS {
        true => short(kernel),
        false => format!("{}, {}", short(kernel), metric.words),
    };
    let share = match before.most {
        0 => String::new(),
        // The least that it grew by, in the direction in which it did.
        most if more => percent(most, after.least),
        _ => percent(before.least, after.most),
    };
    let after = format!("{after}{share}");
    found.add_called(
        Kind::Instructions,
        worse_if(more),
        (kernel, called),
        before,
        after,
    );
}

fn percent(before: u64, after: u64) -> String {
    format!(" ({:+.2} %)", 100.0 * (after as f64 / before as f64 - 1.0))
}

/// What the base counted and the head did not: all of it, or a metric of a kernel.
pub fn vanished(pair: &Pair, head: &Structure) -> Option<Uncounted> {
    let base = counters(pair.base)?;
    let taken =
        |kernel: &str| pair.policy.action(Kind::Instructions, kernel, pair.case) != Action::Ignore;
    let lost: BTreeSet<&str> = match counters(pair.head) {
        None => base.kernels.keys().map(String::as_str).collect(),
        Some(head) => {
            let both = base.kernels.iter().filter_map(|(name, kernel)| {
                let now = &head.kernels.get(name)?.instructions;
                let lost = kernel
                    .instructions
                    .keys()
                    .any(|metric| !now.contains_key(metric));
                lost.then_some(name.as_str())
            });
            both.collect()
        }
    };
    lost.iter().any(|kernel| taken(kernel)).then(|| {
        let why = head.why_uncounted(INSTRUCTIONS);
        let total = base.total(METRICS[0].name);
        Uncounted {
            name: INSTRUCTIONS.to_owned(),
            before: total.filter(Counts::is_exact).map(|total| total.least),
            reason: Some(why.map_or_else(not_asked, str::to_owned)),
        }
    })
}

fn not_asked() -> String {
    "ask for them with --instructions, or `instructions = true` under [measure]".to_owned()
}

#[cfg(test)]
mod tests;
