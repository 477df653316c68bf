//! Summarises changed cases by axes:
//! `499 of 500 cases with head_dim 32 and causal are 2.10x to 2.40x slower`.

use std::cell::LazyCell;
use std::collections::HashMap;

use regatta_core::suite::Metric;
use regatta_judge::axes::{CaseAxes, described};
use regatta_judge::judgement::{Judgement, Row, Word};
use regatta_worker::case::CaseId;
use regatta_worker::joined::Joined;
use regatta_worker::units::Ratio;

/// The largest number of descriptions of a kind of change; other cases are counted.
const MAX_DESCRIPTIONS: usize = 3;

/// Cases of one kind of change.
struct MovedRows<'a> {
    /// The noun that is counted.
    noun: &'static str,
    /// The rows of all cases.
    rows: &'a [Row],
    /// The indices of the cases that could have changed in this way.
    among: Vec<usize>,
    /// For each of these cases, true if it changed.
    is: Vec<bool>,
    /// `2.10x to 2.40x slower`, by the ratios of cases; or words alone.
    phrase: Phrase,
}

/// The wording of a kind.
#[derive(Clone, Copy)]
enum Phrase {
    /// The amount of the change, then this word.
    By(&'static str),
    /// The words without an amount, in the plural: `are missing`.
    Words(&'static str),
}

type Test = fn(&Row) -> bool;

/// The kinds of change: tests for the cases that could have it and for those that do, and the
/// wording.
#[rustfmt::skip]
const KINDS: [(Test, Test, Phrase); 6] = [
    (was_compared, is_slower, Phrase::By("slower")),
    (|row| !row.metrics.is_empty(), |row| row.regressed().next().is_some() && !is_slower(row), Phrase::Words("are worse by another metric")),
    (|row| row.structure.is_some(), |row| row.fails_by_structure() && row.regressed().next().is_none(), Phrase::Words("have a worse structure")),
    (|_| true, |row| row.word == Word::Error, Phrase::Words("failed")),
    (|_| true, |row| row.word == Word::Missing, Phrase::Words("are missing")),
    (was_compared, |row| device_time_is(row, Word::Improved), Phrase::By("faster")),
];

/// The number of kinds that precede the expectations.
const EXPECTATIONS: usize = 3;

fn was_compared(row: &Row) -> bool {
    row.change().is_some()
}

fn is_slower(row: &Row) -> bool {
    device_time_is(row, Word::Regressed)
}

fn device_time_is(row: &Row, word: Word) -> bool {
    row.metric(Metric::Device)
        .is_some_and(|metric| metric.change.word == word)
}

/// The paragraph; empty if nothing changed, or if no axes describe the change.
pub(crate) fn by_axes(judgement: &Judgement) -> String {
    let kinds = KINDS.iter().map(|(could, is, phrase)| {
        let rows = &judgement.rows;
        let among = (0..rows.len()).filter(|&place| could(&rows[place]));
        let among: Vec<usize> = among.collect();
        MovedRows {
            noun: "case",
            is: among.iter().map(|&place| is(&rows[place])).collect(),
            rows,
            among,
            phrase: *phrase,
        }
    });
    let mut kinds: Vec<MovedRows> = kinds.collect();
    kinds.insert(EXPECTATIONS, expectations(judgement));
    let axes = LazyCell::new(|| CaseAxes::new(judgement.rows.iter().map(|row| &row.case)));
    let clauses = kinds.iter().flat_map(|kind| clauses(kind, &axes));
    let text = clauses.joined("; ");
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => format!("{}{}.", first.to_uppercase(), letters.as_str()),
        None => text,
    }
}

/// The clauses of a kind: descriptions, then the number of other cases. Empty if no axes describe
/// the cases, which the lists name anyway.
fn clauses(kind: &MovedRows, axes: &LazyCell<CaseAxes, impl FnOnce() -> CaseAxes>) -> Vec<String> {
    let mut left: Vec<Option<bool>> = kind.is.iter().copied().map(Some).collect();
    if !left.contains(&Some(true)) {
        return Vec::new();
    }
    let table = axes.table(&kind.among);
    let mut clauses = Vec::new();
    while clauses.len() < MAX_DESCRIPTIONS {
        let Some(description) = described(&table, &left) else {
            break;
        };
        let sentence = description.sentence(kind.noun);
        clauses.push(format!("{sentence} {}", phrase(kind, &description.hits)));
        // Each case is described or counted once.
        for place in &description.hits {
            left[*place] = None;
        }
    }
    let others: Vec<usize> = (0..left.len())
        .filter(|place| left[*place] == Some(true))
        .collect();
    match (others.len(), clauses.is_empty()) {
        (_, true) | (0, _) => {}
        (1, _) => clauses.push(format!("1 other {}", phrase(kind, &others))),
        (count, _) => clauses.push(format!("{count} others {}", phrase(kind, &others))),
    }
    clauses
}

/// The wording for the cases at these places.
fn phrase(kind: &MovedRows, places: &[usize]) -> String {
    let one = places.len() == 1;
    let word = match kind.phrase {
        Phrase::Words(words) if one => {
            return words.replace("are ", "is ").replace("have ", "has ");
        }
        Phrase::Words(words) => return words.to_owned(),
        Phrase::By(word) => word,
    };
    let verb = if one { "is" } else { "are" };
    let rows = places.iter().map(|place| &kind.rows[kind.among[*place]]);
    let ratios = rows.filter_map(|row| Some(row.change()?.ratio));
    let ratios = ratios.filter(|ratio| ratio.is_finite() && ratio.0 > 0.0);
    let mut ratios: Vec<Ratio> = ratios.collect();
    ratios.sort_by(|a, b| a.0.ln().abs().total_cmp(&b.0.ln().abs()));
    let ends = ratios.first().zip(ratios.last());
    match ends.map(|(least, most)| [least, most].map(|ratio| amount(*ratio))) {
        None => format!("{verb} {word}"),
        Some([least, most]) if least == most => format!("{verb} {least} {word}"),
        Some([least, most]) => format!("{verb} {least} to {most} {word}"),
    }
}

/// The amount of a change: `12.3 %`, `2.01x`.
fn amount(ratio: Ratio) -> String {
    let text = ratio.in_words().to_string();
    let words = text.rsplit_once(' ');
    words.map_or(text.clone(), |(amount, _)| amount.to_owned())
}

/// The expectations, each by its case.
fn expectations(judgement: &Judgement) -> MovedRows<'_> {
    let rows = LazyCell::new(|| {
        let rows = judgement.rows.iter().zip(0..);
        HashMap::<&CaseId, usize>::from_iter(rows.map(|(row, place)| (&row.case, place)))
    });
    let all = judgement.expectations.iter().filter_map(|result| {
        let row = *rows.get(result.case.as_ref()?)?;
        Some((row, result.word == Word::Regressed))
    });
    let (among, is) = all.unzip();
    MovedRows {
        noun: "expectation",
        rows: &judgement.rows,
        among,
        is,
        phrase: Phrase::Words("are violated"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use regatta_judge::judgement::ExpectationResult;

    /// A judgement of these cases: an id, its ratio and its word.
    fn judged(cases: impl IntoIterator<Item = (String, f64, Word)>) -> Judgement {
        let mut judgement = fixture::failed().judgement;
        judgement.expectations.clear();
        let rows = std::mem::take(&mut judgement.rows);
        let mut like = rows.into_iter().find(|row| row.change().is_some()).unwrap();
        like.findings.clear();
        let row = |(id, ratio, word): (String, f64, Word)| {
            let mut row = like.clone();
            (row.case, row.word) = (CaseId(id.into()), word);
            row.metrics = vec![fixture::metric(Metric::Device, word, 1e6, 1e6 * ratio)];
            row
        };
        judgement.rows = cases.into_iter().map(row).collect();
        judgement
    }

    /// The paragraph about 400 cases by number: half of them have head_dim 32, half are causal. Cases
    /// with a ratio regressed.
    fn described(ratio: impl Fn(usize, bool) -> Option<f64>) -> String {
        let case = |i: usize| {
            let (narrow, causal) = (i.is_multiple_of(2), i % 4 < 2);
            let head_dim = if narrow { 32 } else { 64 };
            let mask = if causal { ",causal" } else { "" };
            let id = format!("cpu/flash:s{},d{head_dim}{mask}", 64 * (1 + i / 4));
            match ratio(i, narrow && causal) {
                Some(ratio) => (id, ratio, Word::Regressed),
                None => (id, 1.0, Word::Same),
            }
        };
        by_axes(&judged((0..400).map(case)))
    }

    #[test]
    fn changed_cases_are_described_by_their_axes() {
        let spread = |i: usize| 2.1 + 0.3 * (i % 7) as f64 / 6.0;
        assert_eq!(
            described(|i, both| (both && i != 40).then(|| spread(i))),
            "99 of 100 cases with head_dim 32 and causal are 2.10x to 2.40x slower."
        );
        assert_eq!(described(|i, _| (i == 7).then_some(1.123)), "");
        assert_eq!(
            described(|i, both| if i % 4 == 3 && i < 80 {
                Some(1.5)
            } else {
                both.then_some(2.0)
            }),
            "All 100 cases with head_dim 32 and causal are 2.00x slower; all 20 cases with \
             seq ≤ 1280, head_dim 64 and mask full are 50.0 % slower."
        );
        assert_eq!(described(|i, _| (i % 97 == 5).then_some(1.2)), "");
        assert_eq!(described(|_, _| None), "");
    }

    #[test]
    fn lengths_and_all_but_one_value_are_terms() {
        let beyond = (0..24).map(|i| {
            let (variant, seq) = (["flash", "naive"][i % 2], 64 << (i / 2 % 6));
            let id = format!("cpu/{variant}:s{seq},d{}", 32 << (i / 12));
            if i % 2 == 0 && seq >= 512 {
                (id, 0.5, Word::Improved)
            } else {
                (id, 1.0, Word::Inconclusive)
            }
        });
        let expected = "All 6 cases of cpu/flash with seq ≥ 512 are 2.00x faster.";
        assert_eq!(by_axes(&judged(beyond)), expected);
        let but_one = (0..18).map(|i| {
            let direction = ["", ",bwd", ",both"][i % 3];
            let id = format!("cpu/flash:s{},d32{direction}", 64 * (1 + i / 3));
            match i % 3 {
                0 => (id, 1.0, Word::Same),
                _ => (id, 1.15, Word::Regressed),
            }
        });
        let expected = "All 12 cases with direction other than forward are 15.0 % slower.";
        assert_eq!(by_axes(&judged(but_one)), expected);
        let but_two = (0..18).map(|i| {
            let word = [Word::Same, Word::Regressed][usize::from(i > 1)];
            (format!("mine/f{i}:s64,d32"), 1.15, word)
        });
        let expected = "All 16 cases with variant other than mine/f0 and variant other than \
                        mine/f1 are 15.0 % slower.";
        assert_eq!(by_axes(&judged(but_two)), expected);
    }

    #[test]
    fn violated_expectations_are_told_by_the_axes_of_their_cases() {
        let id = |i| format!("cpu/flash:s{},d{}", 64 << (i / 2), 32 << (i % 2));
        let mut judgement = judged((0..12).map(|i| (id(i), 1.0, Word::Same)));
        let like = fixture::failed().judgement.expectations.remove(0);
        let of_case = |row: &Row| ExpectationResult {
            case: Some(row.case.clone()),
            word: if row.case.0.contains("d64") {
                Word::Regressed
            } else {
                Word::Same
            },
            ..like.clone()
        };
        judgement.expectations = judgement.rows.iter().map(of_case).collect();
        let expected = "All 6 expectations with head_dim 64 are violated.";
        assert_eq!(by_axes(&judgement), expected);
    }

    #[test]
    fn what_was_not_compared_is_silence() {
        for scene in [fixture::passed(), fixture::empty(), fixture::incomplete()] {
            assert_eq!(by_axes(&scene.judgement), "");
        }
    }
}
