//! Judges the values of a run: verdict, expectations, causes.
//!
//! The crate is pure: nothing in it reads a file, a clock or a device. [`judge`] reads top to
//! bottom: comparability, completeness, structure and metrics, expectations, verdict. A gate calls
//! it after each look, and measures open cases again ([`next`]).

mod account;
pub mod axes;
mod causes;
mod comparable;
mod complete;
mod conditions;
mod decide;
pub mod expect;
pub mod history;
pub mod judgement;
mod metrics;
mod operators;
mod rows;
pub mod rule;
pub mod structure;
mod suites;
pub mod trace;
mod tuners;
mod verdict;

pub use verdict::{Options, largest_slowdown};

use std::collections::HashMap;

pub use comparable::revision_text;
use comparable::{Differences, differences};
use judgement::{Judgement, Mismatch, Row, SideSummary, Verdict, Word};
use regatta_core::record::{Side, in_turn, median};
use regatta_core::suite::Metric;
use regatta_worker::case::CaseId;
use regatta_worker::joined::Joined;
use regatta_worker::units::{Share, counted};
use rows::RowInputs;
use suites::{Demands, demands};

/// The cases to measure again, and the number of invocations to reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Next {
    /// The open cases, with those that expectations compare them with.
    pub cases: Vec<CaseId>,
    /// The number of invocations that each case has afterwards.
    pub invocations: u32,
}

/// The cases to measure again after `invocations` invocations; `None` if no case is open, or the
/// last look was taken. A case that regressed is not open. With `deciding`, a case is open until
/// the first of these metrics is decided, or a later one shows a change.
pub fn next(judgement: &Judgement, invocations: u32, deciding: &[Metric]) -> Option<Next> {
    let is_open = |row: &&Row| match deciding {
        [] => row.is_open(),
        [first, others @ ..] => {
            let change = |metric: &Metric| Some(row.metric(*metric)?.change);
            change(first).is_some_and(|change| change.word == Word::Inconclusive)
                && !others
                    .iter()
                    .filter_map(change)
                    .any(|change| change.has_moved())
        }
    };
    let rows = judgement.rows.iter().filter(is_open);
    let mut cases: Vec<CaseId> = rows.map(|row| row.case.clone()).collect();
    let expectations = judgement.expectations.iter();
    let open = expectations.filter(|result| result.comparison.is_some_and(|one| one.open));
    for result in open.filter(|_| deciding.is_empty()) {
        cases.extend(result.case.clone());
        cases.extend(result.against.clone());
    }
    cases.sort();
    cases.dedup();
    let invocations = rule::next_look(invocations).filter(|_| !cases.is_empty())?;
    Some(Next { cases, invocations })
}

/// Judges a head alone, and against a base if there is one.
///
/// The head's suite sets the rules. The cases of both sides have rows, so that none is forgotten.
pub fn judge(head: &Side, base: Option<&Side>, options: &Options) -> Judgement {
    let differences = base.map_or_else(Differences::default, |base| {
        differences(&base.header, &head.header, options.same_suite)
    });
    let demands = base.map_or_else(Demands::default, |base| demands(&base.header, &head.header));
    let structure_incomparable = structure::not_comparable(&differences.hard);
    let structure_only = head.header.settings.structure_only;
    let incomparable = if structure_only {
        structure_incomparable.clone()
    } else {
        differences.hard
    };
    let paired = base.is_some_and(|base| in_turn(&base.header, &head.header));
    let mut rows = rows::rows(&RowInputs {
        base,
        head,
        comparable: incomparable.is_empty(),
        structure: structure_incomparable.is_empty(),
        soft: &differences.soft,
        paired,
        last: options.last,
    });
    let left_out = base.map_or(Vec::new(), |base| left_out(base, head, &rows));
    if !left_out.is_empty() {
        rows.extend(left_out);
        rows.sort_by(|a, b| a.case.cmp(&b.case));
    }
    let expected = expect::expectations(head);
    let mut judgement = Judgement {
        suite: head.header.suite.name.clone(),
        head: summary(head),
        base: base.map(summary),
        incomparable,
        structure_incomparable,
        structure_only,
        differences: [differences.soft, demands.all].concat(),
        weaker: weaker(&demands.weaker, base),
        paired,
        rows,
        expectations: expected.results,
        gaps: [
            expected.gaps,
            base.and_then(|base| conditions::checked_less(base, head))
                .into_iter()
                .collect(),
        ]
        .concat(),
        results: operators::results(base, head),
        notes: Vec::new(),
        verdict: Verdict::default(),
    };
    let sides = std::iter::once(head).chain(base);
    let damage = sides.flat_map(|side| {
        let damaged = side.damage.iter();
        damaged.map(|line| format!("{} is damaged: {line}", side.label))
    });
    let mut notes: Vec<String> = damage.collect();
    notes.extend(structure_notes(&judgement));
    notes.extend(detectable(&judgement));
    notes.extend(expected.notes);
    notes.extend(conditions::of_shards(head));
    notes.extend(conditions::notes(head));
    notes.extend(base.and_then(|base| conditions::counted_in_vain(base, head)));
    judgement.notes = notes;
    conclude(&mut judgement, options);
    judgement
}

/// Sets the verdict. Its first line also says which demands the head's suite weakens.
fn conclude(judgement: &mut Judgement, options: &Options) {
    judgement.verdict = verdict::verdict(judgement, options);
    for sentence in judgement.results.iter().chain(&judgement.weaker) {
        judgement.verdict.shown += &format!("; {sentence}");
    }
}

/// Replaces rows of a judgement against a stored run by those of cases that were measured in pairs
/// afterwards. Structure, which is counted once per call, keeps its first result.
pub fn with_pairs(mut judgement: Judgement, pairs: Judgement, options: &Options) -> Judgement {
    let mut pairs_of: HashMap<CaseId, Row> = HashMap::new();
    pairs_of.extend(pairs.rows.into_iter().map(|row| (row.case.clone(), row)));
    for row in &mut judgement.rows {
        let Some(mut of_pairs) = pairs_of.remove(&row.case) else {
            continue;
        };
        // Pairs without a value do not replace the first result.
        if of_pairs.metrics.is_empty() && of_pairs.word < row.word {
            let why = of_pairs.reason.as_deref().unwrap_or("not comparable");
            let before = row.reason.take().unwrap_or_default();
            row.reason = Some(format!(
                "{before}; in pairs {}: {why}",
                of_pairs.word.name()
            ));
            continue;
        }
        of_pairs.structure = row.structure.take();
        let known = |name: &str| row.uncounted.iter().any(|one| one.name == name);
        of_pairs.uncounted.retain(|one| !known(&one.name));
        of_pairs.uncounted.append(&mut row.uncounted);
        *row = of_pairs;
        rows::by_structure(row);
    }
    judgement
        .notes
        .extend(verdict::incomparable(&pairs.incomparable));
    judgement.notes.extend(pairs.notes);
    conclude(&mut judgement, options);
    judgement
}

fn summary(side: &Side) -> SideSummary {
    let header = &side.header;
    // Cases that were open have more invocations than planned.
    let records = side.cases.values();
    let most = records.map(|record| record.invocations.len() as u32).max();
    let most = most.filter(|most| *most > 0);
    SideSummary {
        label: side.label.clone(),
        suite: header.suite.name.clone(),
        started: header.started.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        machine: header.machine.name.clone(),
        revision: header.git.as_ref().map(revision_text),
        invocations: most.unwrap_or(header.settings.invocations),
        filter: (!header.suite.filter.is_empty()).then(|| {
            let filter = format!("--filter {}", header.suite.filter.join(" "));
            match header.suite.filtered_out {
                Some(cases) => format!("{filter} left out {}", counted(cases, "case")),
                None => filter,
            }
        }),
        changed: Some(suites::changed_options(header).join(" ")).filter(|text| !text.is_empty()),
    }
}

/// A sentence on the demands that the head's suite weakens, and on a base that was built by the
/// head's `[build]`. The head's suite sets the rules, so the verdict's first line has it.
fn weaker(demands: &[Mismatch], base: Option<&Side>) -> Option<String> {
    let mut sentences = Vec::new();
    if !demands.is_empty() {
        let each = demands.iter().joined(", ");
        sentences.push(format!("the suite demands less than the base's: {each}"));
    }
    let pairing = base.and_then(|base| base.header.pairing.as_ref());
    if pairing.is_some_and(|pairing| pairing.built_by_head) {
        sentences.push("the base has no [build], and was built by the head's".to_owned());
    }
    (!sentences.is_empty()).then(|| sentences.join("; "))
}

/// Rows of cases that only the suite of the base's revision has, and that were not measured:
/// missing, unless the policy names them.
fn left_out(base: &Side, head: &Side, rows: &[Row]) -> Vec<Row> {
    let optional = &head.header.rules.policy.optional;
    if !in_turn(&base.header, &head.header) {
        return Vec::new();
    }
    let dropped = suites::dropped(&base.header, &head.header).into_iter();
    let unknown = dropped.filter(|case| !rows.iter().any(|row| row.case == *case));
    let rows = unknown.map(|case| {
        let allowed = complete::allowed(&case, optional);
        let word = if allowed {
            Word::Skipped
        } else {
            Word::Missing
        };
        let reason = format!(
            "the base's suite has it and the head's does not; measure it, or name it in the suite: \
             [policy] optional = [\"{case}\"]"
        );
        Row::unmeasured(case, word, reason, allowed)
    });
    rows.collect()
}

/// A note for a version that is compared with itself, which is how the sensitivity is measured: the
/// smallest change that its pairs could have shown, and the chance that so few starts hide a fault
/// that slows one start in ten.
fn detectable(judgement: &Judgement) -> Option<String> {
    let base = judgement.base.as_ref()?;
    if base.label != judgement.head.label {
        return None;
    }
    let changes = || judgement.rows.iter().filter_map(|row| row.change());
    let detectable: Vec<Share> = changes().filter_map(|change| change.detectable).collect();
    let half = median(&detectable)?;
    let largest = detectable.iter().copied().fold(Share(0.0), Share::max);
    let cases = counted(detectable.len(), "case");
    let starts = changes().map(|change| change.invocations.1).min()?;
    let hidden = Share(0.9_f64.powi(starts as i32));
    Some(format!(
        "minimum detectable change: {half} in half of {cases}, {largest} in each; of {} a side, \
         one in ten that is slow would not be seen with a chance of {hidden:.0}",
        counted(starts as usize, "start")
    ))
}

/// A note on structure that was not compared, or on a run in which nothing was timed.
fn structure_notes(judgement: &Judgement) -> Option<String> {
    if judgement.structure_only {
        let sentence = "only structure was judged; nothing was timed";
        return Some(sentence.to_owned());
    }
    let first = judgement.structure_incomparable.first()?;
    Some(format!(
        "structure was not compared: {} is {} in the base and {} in the head, and launches \
         follow from it by design",
        first.field, first.base, first.head
    ))
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
