//! What deserves to be read first, the same in every format.

use super::Report;
use super::document::Tone;
use super::text::shell_command;
use regatta_core::suite::names_a_file;
use regatta_core::suite::rules::Metric;
use regatta_judge::judgement::{Change, ExpectationResult, Judgement, Row, Word};
use regatta_measure::laps::TimeSpent;
use regatta_worker::units::{Elapsed, Nanoseconds, Ratio, Share};

/// A judgement sorted by what a reader has to act upon.
#[derive(Clone, Debug)]
pub struct SortedRows<'a> {
    /// Wrong results, crashes and hangs.
    pub errors: Vec<&'a Row>,
    /// Cases of which a metric or the structure got worse, the slowest first.
    pub regressed: Vec<&'a Row>,
    /// Violated expectations, the worst first.
    pub violated: Vec<&'a ExpectationResult>,
    /// Cases without a value, or whose structure is unknown.
    pub missing: Vec<&'a Row>,
    /// Cases that may be worse, and were not decided.
    pub inconclusive: Vec<&'a Row>,
    /// Neither slower nor faster, but with a change of structure that the suite lets pass, by what
    /// is known of their times.
    pub restructured: Vec<(&'static str, Vec<&'a Row>)>,
    /// Faster ones, the fastest first.
    pub improved: Vec<&'a Row>,
    /// How many rows each remaining word has, in the order of [`Word`].
    pub rest: Vec<(Word, usize)>,
    /// True where there is a base.
    compared: bool,
}

impl<'a> SortedRows<'a> {
    /// Sorts a judgement.
    pub fn new(judgement: &'a Judgement) -> SortedRows<'a> {
        let mut summary = SortedRows {
            errors: Vec::new(),
            regressed: Vec::new(),
            violated: Vec::new(),
            missing: Vec::new(),
            inconclusive: Vec::new(),
            restructured: Vec::new(),
            improved: Vec::new(),
            rest: Vec::new(),
            compared: judgement.base.is_some(),
        };
        for row in &judgement.rows {
            match row.word {
                Word::Error => summary.errors.push(row),
                Word::Regressed => summary.regressed.push(row),
                Word::Missing => summary.missing.push(row),
                Word::Improved => summary.improved.push(row),
                Word::Inconclusive if row.may_be_worse() => summary.inconclusive.push(row),
                _ if !row.findings.is_empty() || !row.structure_told().is_empty() => {
                    summary.restructure(row);
                }
                word => count(&mut summary.rest, word),
            }
        }
        summary.rest.sort();
        let slowest_first = |a: &&Row, b: &&Row| ratio(b).total_cmp(&ratio(a));
        summary.regressed.sort_by(slowest_first);
        summary.inconclusive.sort_by(slowest_first);
        summary
            .improved
            .sort_by(|a, b| ratio(a).total_cmp(&ratio(b)));
        let expectations = judgement.expectations.iter();
        summary.violated = expectations
            .filter(|of| of.word == Word::Regressed)
            .collect();
        summary
            .violated
            .sort_by(|a, b| b.excess().total_cmp(&a.excess()));
        summary
    }

    /// Adds a row whose structure alone changed to those of which as much is known.
    fn restructure(&mut self, row: &'a Row) {
        let name = match row.word {
            Word::Same => "Launch structure changed, time unchanged",
            Word::Inconclusive => "Launch structure changed, time inconclusive",
            _ => "Launch structure changed",
        };
        match self.restructured.iter_mut().find(|(of, _)| *of == name) {
            Some((_, rows)) => rows.push(row),
            None => self.restructured.push((name, vec![row])),
        }
    }

    /// The lists of rows that are not empty, each with its heading.
    pub(crate) fn lists(&self) -> Vec<(&'static str, Tone, &[&'a Row])> {
        let mut lists: Vec<(&'static str, Tone, &[&'a Row])> = vec![
            ("Errors", Tone::Bad, &self.errors),
            ("Regressed", Tone::Bad, &self.regressed),
            ("Missing", Tone::Doubtful, &self.missing),
            ("Inconclusive", Tone::Doubtful, &self.inconclusive),
        ];
        let restructured = self.restructured.iter();
        lists.extend(restructured.map(|(name, rows)| (*name, Tone::Doubtful, rows.as_slice())));
        lists.push(("Improved", Tone::Good, &self.improved));
        lists.retain(|(_, _, rows)| !rows.is_empty());
        lists
    }

    /// Cases of no list, in one line: `40 same, 2 inconclusive`; empty where there is no list.
    pub fn rest_line(&self) -> String {
        if self.lists().is_empty() {
            return String::new();
        }
        let parts = self.rest.iter().map(|(word, count)| match word {
            Word::New if !self.compared => format!("{count} measured"),
            word => format!("{count} {}", word.text()),
        });
        parts.collect::<Vec<_>>().join(", ")
    }
}

/// How many rows have each word, in the order of [`Word`].
pub fn tally(rows: &[Row]) -> Vec<(Word, usize)> {
    tally_of(rows.iter().map(|row| row.word))
}

/// How often each word is there, in their order.
pub fn tally_of(words: impl Iterator<Item = Word>) -> Vec<(Word, usize)> {
    let mut counts = Vec::new();
    for word in words {
        count(&mut counts, word);
    }
    counts.sort();
    counts
}

fn count(counts: &mut Vec<(Word, usize)>, word: Word) {
    match counts.iter_mut().find(|(counted, _)| *counted == word) {
        Some((_, count)) => *count += 1,
        None => counts.push((word, 1)),
    }
}

/// Head over base of the metric that a reader is to see first; 1 where there is no comparison.
fn ratio(row: &Row) -> Ratio {
    let first = row.first_metric();
    first.map_or(Ratio::ONE, |of| of.change.ratio)
}

/// A row in a line's worth of words, a part each: the metric where it is not the device time,
/// what the base took, what the head takes, and the change with its interval.
pub fn evidence(row: &Row) -> Option<Vec<String>> {
    let Some(of) = row.first_metric() else {
        return Some(vec![row.head.as_ref()?.median_ns.to_string()]);
    };
    let name = match of.metric {
        Metric::Device => None,
        other => Some(other.text().to_owned()),
    };
    let figures = [of.from_to(), of.change.ratio.to_string()];
    let parts = name.into_iter().chain(figures);
    Some(parts.chain(interval(&of.change)).collect())
}

/// The interval of a change, in the unit of its estimate: `[+10.1 %, +14.2 %]`.
pub fn interval(change: &Change) -> Option<String> {
    Some(change.interval()?.to_string())
}

/// The command that gives the verdict again of the cases whose id matches `pattern`.
pub fn reproduce(report: &Report, pattern: &str) -> String {
    let header = &report.head.header;
    let suite = &header.suite;
    let (mut command, mut versions) = ("run", Vec::new());
    let mut push = |flag: &str, value: &str| versions.extend([flag.to_owned(), value.to_owned()]);
    match report
        .base
        .map(|base| (base, &base.header.turn, &header.turn))
    {
        None => {}
        Some((_, Some(base), Some(head))) => {
            let gates = header.argv.get(1).is_some_and(|word| word == "gate");
            command = if gates { "gate" } else { "compare" };
            base.of.iter().for_each(|spec| push("--base", spec));
            let heads = head.of.iter().filter(|spec| *spec != "here");
            heads.for_each(|spec| push("--head", spec));
        }
        Some((base, ..)) => {
            command = "gate";
            match names_a_file(&base.label) {
                true if base.label == suite.name => {}
                true => push("--baseline", &base.label),
                false => push("--base", &format!("run:{}", base.label)),
            }
        }
    }
    let mut words = vec!["regatta".to_owned(), command.to_owned()];
    match suite.arguments.is_empty() {
        true => words.push(suite.name.clone()),
        false => words.extend(suite.arguments.iter().cloned()),
    }
    words.extend(versions);
    words.extend(["--filter".to_owned(), pattern.to_owned()]);
    shell_command(&words)
}

/// The least share of the whole that is worth a name.
const LEAST: Share = Share(0.005);

/// `2 min 39 s: base 70 s, head 71 s, starting workers 9 s, judging 1 s`. `took` is all of it,
/// the rest what the phases of each side took; `base` is that of one that was measured in turn.
pub fn took(took: Nanoseconds, head: TimeSpent, base: Option<TimeSpent>) -> String {
    let mut all = head;
    all += base.unwrap_or_default();
    let sides = match base {
        Some(base) => vec![("base", base.cases), ("head", head.cases)],
        None => vec![("measuring", head.cases)],
    };
    let others: [(&str, Nanoseconds); 4] = [
        ("starting workers", all.workers),
        ("setting up", all.setting_up),
        ("judging", all.judging),
        ("writing reports", all.reporting),
    ];
    let parts = sides.into_iter().chain(others);
    let parts = parts.filter(|(_, time)| time.share_of(took) >= LEAST);
    let parts: Vec<String> = parts
        .map(|(name, time)| format!("{name} {}", Elapsed(time)))
        .collect();
    match parts.is_empty() {
        true => Elapsed(took).to_string(),
        false => format!("{}: {}", Elapsed(took), parts.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use regatta_worker::units::Nanoseconds;

    #[test]
    fn both_sides_are_counted_and_what_is_nothing_is_left_out() {
        let seconds = Nanoseconds::of_seconds;
        let base = TimeSpent {
            cases: seconds(70.0),
            ..TimeSpent::default()
        };
        let head = TimeSpent {
            cases: seconds(71.0),
            workers: seconds(9.0),
            judging: seconds(1.0),
            reporting: seconds(0.1),
            ..TimeSpent::default()
        };
        let whole = seconds(159.0);
        assert_eq!(
            took(whole, head, Some(base)),
            "2 min 39 s: base 1 min 10 s, head 1 min 11 s, starting workers 9.00 s, judging 1.00 s"
        );
        assert_eq!(
            took(whole, head, None),
            "2 min 39 s: measuring 1 min 11 s, starting workers 9.00 s, judging 1.00 s"
        );
    }
}
