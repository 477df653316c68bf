//! What `history --json` prints, which is put together by hand (`regatta::report::history`).

#![expect(dead_code, reason = "described, never made")]

use jiff::Timestamp;
use regatta::attention::CaseId;
use regatta::judge::history::{Creep, Who};
use regatta::judge::judgement::Difference;
use regatta::record::header::Git;
use regatta::record::history::Clock;
use regatta::record::types::Damage;
use regatta::units::{Nanoseconds, Probability, Ratio};
use schemars::JsonSchema;

/// What a history says.
#[derive(JsonSchema)]
pub struct Answer {
    /// Its suite.
    suite: String,
    /// Its machine.
    machine: String,
    /// Which time.
    clock: Clock,
    /// Runs in it.
    runs: usize,
    /// Its earliest run; null where it has none.
    from: Option<Timestamp>,
    /// Its latest run; null where it has none.
    to: Option<Timestamp>,
    /// Changes before this time are not told.
    since: Timestamp,
    /// The whole as a sentence.
    said: String,
    /// What moved together, the latest first.
    events: Vec<Event>,
    /// What creeps.
    crept: Vec<Crept>,
    /// Its cases.
    cases: Vec<Case>,
    /// Lines that could not be used.
    damage: Vec<Damage>,
    /// What all cases share, as a factor over its median.
    #[serde(skip_serializing_if = "Option::is_none")]
    shared: Option<Shared>,
}

/// A run.
#[derive(JsonSchema)]
pub struct Run {
    /// Where it stands on the axis of time.
    at: Timestamp,
    /// Where it was found: a path.
    label: String,
    /// The checkout; null where there was none.
    git: Option<Git>,
}

/// A change that several cases may share.
#[derive(JsonSchema)]
pub struct Event {
    /// The first run after it.
    run: Run,
    /// The run before.
    before: Run,
    #[serde(flatten)]
    who: Who,
    /// The cases, the one that changed most first.
    cases: Vec<CaseId>,
    /// The middle one of their changes: after over before.
    ratio: Ratio,
    /// The change of the one that changed most.
    most: Step,
    /// What else changed between the two runs: revision, versions.
    code: Vec<Difference>,
    /// The same of what a time depends on beside the code.
    machine: Vec<Difference>,
    /// Versions and facts that changed within two runs of it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    nearby: Vec<Difference>,
    /// The same in words.
    told: Told,
}

/// A change in words.
#[derive(JsonSchema)]
pub struct Told {
    /// Who moved.
    who: String,
    /// What else changed.
    changed: Vec<String>,
}

/// Cases that creep the same way.
#[derive(JsonSchema)]
pub struct Crept {
    /// Who, in words.
    who: String,
    /// The middle one of them: now over the reference.
    ratio: Ratio,
    /// The cases, the one that crept farthest first.
    cases: Vec<CaseId>,
}

/// What the times of one case say.
#[derive(JsonSchema)]
pub struct Case {
    /// The case.
    case: CaseId,
    /// Runs that have a time of it.
    runs: usize,
    /// Level now, in nanoseconds.
    level_ns: Option<Nanoseconds>,
    /// Level of the reference, in nanoseconds.
    reference_ns: Option<Nanoseconds>,
    /// Its changes, in their order.
    steps: Vec<Step>,
    /// What moved it without any of these.
    creep: Option<Creep>,
    /// Now over the reference, where both are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    since_reference: Option<Ratio>,
    /// Why its latest run gave no time, where that is so.
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<Lost>,
}

/// What all cases share.
#[derive(JsonSchema)]
pub struct Shared {
    /// Runs that have it.
    runs: usize,
    /// Its changes, in their order.
    steps: Vec<Step>,
    /// What moved it without any of these.
    creep: Option<Creep>,
    /// Now over the reference, where both are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    since_reference: Option<Ratio>,
}

/// A case whose latest run gave no time.
#[derive(JsonSchema)]
pub struct Lost {
    /// The run since when.
    run: Run,
    /// The same.
    before: Run,
    /// Why, in its latest run.
    reason: String,
}

/// A change of level.
#[derive(JsonSchema)]
pub struct Step {
    /// The first run after it.
    run: Run,
    /// The last run before it that has a time.
    before: Run,
    /// Level before, in nanoseconds.
    from_ns: Nanoseconds,
    /// Level after, in nanoseconds.
    to_ns: Nanoseconds,
    /// By how much: the median of all ratios of a run after to one before.
    ratio: Ratio,
    /// Lower end of the 95 % interval.
    low: Ratio,
    /// Upper end.
    high: Ratio,
    /// Probability of such a change anywhere in a history in which nothing changed, at most.
    p: Probability,
    /// Runs after it, to the next change or the last run.
    runs_after: usize,
}
