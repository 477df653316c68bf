//! What it means: statistics, verdict, expectations, causes.
//!
//! Pure: values in, values out. Nothing here reads a file, a clock or a device.
//! [`judge`] reads top to bottom: comparable, complete, structure and time,
//! expectations, verdict. Of a gate it is called after each batch of invocations:
//! what it leaves undecided is in the next one ([`next_batch`]).

mod account;
mod batch;
mod causes;
mod comparable;
mod complete;
mod conditions;
mod counts;
mod expect;
mod floor;
pub mod history;
pub mod judgement;
mod reasons;
mod rows;
pub mod rule;
#[cfg(test)]
mod simulation;
pub mod spread;
pub mod statistics;
pub mod structure;
mod time;
mod timing;
pub mod trace;
mod tuners;
mod verdict;

pub use batch::{Batch, next_batch};
pub use verdict::Options;

pub use comparable::revision_text;
use comparable::{Differences, differences};
use judgement::{Judgement, SideSummary, Verdict, VerdictOutcome, Word};
use regatta_core::record::header::in_turn;
use regatta_core::record::side::{Side, median};
use regatta_worker::units::{Share, counted};
use rows::Sides;
use time::Taken;

/// Judges a head by itself, and against a base where there is one.
///
/// The head's suite decides the rules. Every case of either side is in the rows;
/// nothing that is not there can be forgotten.
pub fn judge(head: &Side, base: Option<&Side>, options: &Options) -> Judgement {
    let found = base.map_or_else(Differences::default, |base| {
        differences(&base.header, &head.header, options.same_suite)
    });
    let structure_incomparable = structure::not_comparable(&found.hard);
    let structure_only = head.header.settings.structure_only;
    let incomparable = match structure_only {
        true => structure_incomparable.clone(),
        false => found.hard,
    };
    let in_turn = base.is_some_and(|base| in_turn(&base.header, &head.header));
    let rows = rows::rows(&Sides {
        base,
        head,
        comparable: incomparable.is_empty(),
        structure: structure_incomparable.is_empty(),
        soft: &found.soft,
        taken: Taken {
            batches: options.batches,
            beside: in_turn,
        },
    });
    let held = expect::expectations(head);
    let mut judgement = Judgement {
        suite: head.header.suite.name.clone(),
        head: summary(head),
        base: base.map(summary),
        incomparable,
        structure_incomparable,
        structure_only,
        differences: found.soft,
        in_turn,
        common_shift: rows.shift,
        sight: head.header.rules.policy.sight,
        needs_company: rows.needs_company,
        rows: rows.rows,
        expectations: held.results,
        limits: [
            structure::limits(head),
            structure::limits_on_builds(&head.header.rules, &head.header.built),
        ]
        .concat(),
        gaps: held.gaps,
        disturbed: Vec::new(),
        notes: Vec::new(),
        verdict: Verdict {
            outcome: VerdictOutcome::NotJudged,
            reasons: Vec::new(),
            undecided: None,
        },
    };
    let mut notes: Vec<String> = damage(head)
        .chain(base.into_iter().flat_map(damage))
        .collect();
    notes.extend(rows.notes);
    notes.extend(notes_on_rows(&judgement));
    notes.extend(held.notes);
    notes.extend(conditions::of_shards(head, &judgement.rows));
    notes.extend(conditions::notes(head));
    notes.extend(base.and_then(|base| conditions::counted_in_vain(base, head)));
    let floor = floor::floor(&head.header.rules.policy);
    notes.extend(tuners::note(head, "", floor));
    notes.extend(base.and_then(|base| tuners::note(base, " of the base", floor)));
    judgement.notes = notes;
    judgement.disturbed =
        conditions::disturbed(head, base.filter(|_| judgement.incomparable.is_empty()));
    judgement.verdict = verdict::verdict(&judgement, options);
    judgement
}

fn summary(side: &Side) -> SideSummary {
    let header = &side.header;
    SideSummary {
        label: side.label.clone(),
        suite: header.suite.name.clone(),
        started: header.started.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        machine: header.machine.name.clone(),
        revision: header.git.as_ref().map(revision_text),
        invocations: header.settings.invocations,
    }
}

fn damage(side: &Side) -> impl Iterator<Item = String> {
    let damaged = side.damage.iter();
    damaged.map(|line| format!("{} is damaged: {line}", side.label))
}

/// What the rows as a whole give to think about.
fn notes_on_rows(judgement: &Judgement) -> Vec<String> {
    let rows = || judgement.rows.iter();
    let mut notes = Vec::new();
    let mut say = |number: usize, sentence: &str| {
        if number > 0 {
            notes.push(format!("{}{sentence}", counted(number, "case")));
        }
    };
    say(
        rows().filter(|row| row.word == Word::Added).count(),
        " only in the head: nothing to compare with",
    );
    if verdict::another_suite(judgement) {
        say(
            rows().filter(|row| row.word == Word::Removed).count(),
            " only in the base, which was measured under another suite",
        );
    }
    let restructured = rows().filter(|row| {
        row.word == Word::Same && !row.fails_by_structure() && !row.structure_told().is_empty()
    });
    say(
        restructured.count(),
        " took as long as before, although what is launched or set aside changed",
    );
    notes.extend(structure_notes(judgement));
    notes.extend(smallest_changes(judgement).filter(|_| judgement.in_turn));
    notes
}

/// What could have been seen of sides that were measured in turn: of the same code it is what
/// this machine can tell apart.
fn smallest_changes(judgement: &Judgement) -> Option<String> {
    let changes = judgement.rows.iter().filter_map(|row| row.change.as_ref());
    let seen: Vec<Share> = changes.map(|change| change.smallest_effect).collect();
    let half = median(&seen).filter(|half| half.is_finite())?;
    let most = seen.iter().copied().fold(Share(0.0), Share::max);
    let all = match most.is_finite() {
        true => format!(", one of {most} in each"),
        false => String::new(),
    };
    Some(format!(
        "a change of {half} would have shown in half of {}{all}",
        counted(seen.len(), "case")
    ))
}

/// What was not compared of structure, and what was not judged without times.
fn structure_notes(judgement: &Judgement) -> Option<String> {
    if judgement.structure_only {
        let sentence = "structure alone was judged: no time was taken, and expectations on time \
                        are not judged";
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
