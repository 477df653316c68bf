//! How a suite is dealt to several machines.

use super::super::indented;
use regatta::suite::Suite;
use regatta::suite::shard::Dealt;
use regatta::units::{Nanoseconds, counted};

/// The imbalance from which it is told what it comes from.
const EVEN: f64 = 1.05;

/// A line a shard, and how even they are.
pub(super) fn table(suite: &Suite, dealt: &Dealt) -> String {
    let cases = suite.cases.len();
    let mut text = format!("{}: {}\n\n", suite.name, counted(cases, "case"));
    let sum: f64 = dealt.loads.iter().sum();
    let mean = sum / dealt.loads.len() as f64;
    let costs = dealt.known > 0;
    text += match costs {
        true => "  shard   cases      takes  of the mean\n",
        false => "  shard   cases  of the mean\n",
    };
    for (place, (part, load)) in dealt.parts.iter().zip(&dealt.loads).enumerate() {
        // What a run takes is all of its invocations.
        let takes = Nanoseconds(load * f64::from(suite.settings.invocations));
        let share = if mean > 0.0 { load / mean } else { 0.0 };
        let takes = match costs {
            true => format!("{:>11}", takes.to_string()),
            false => String::new(),
        };
        text += &format!("  {:>5}{:>8}{takes}{share:>13.2}\n", place + 1, part.len());
    }
    let how = match (dealt.imbalance(), dealt.known) {
        (None, _) => "there is nothing to deal".to_owned(),
        (Some(most), 0) => format!(
            "the largest has {most:.2} of the mean, by the number of cases: what each costs is \
             not known (--costs RUN says it)"
        ),
        (Some(most), known) => format!(
            "the dearest takes {most:.2} of the mean; {known} of {} had a cost, and starting \
             workers is not in it",
            counted(cases, "case")
        ),
    };
    text.push('\n');
    text += &indented(&how, 0, 2);
    if let Some(least) = dealt.least_imbalance().filter(|least| *least > EVEN) {
        let why = format!(
            "no dealing has less than {least:.2}: {}",
            match dealt.groups < cases {
                true => format!(
                    "expectations hold the cases together in {}",
                    counted(dealt.groups, "group")
                ),
                false => "a case is measured as a whole".to_owned(),
            }
        );
        text += &indented(&why, 0, 2);
    }
    text
}
