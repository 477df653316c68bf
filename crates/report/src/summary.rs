//! What deserves to be read first, the same in every format.

use super::exporter::Report;
use super::text::shell_command;
use regatta_judge::judgement::{ExpectationResult, Held, Judgement, LimitResult, Row, Stage, Word};
use regatta_measure::laps::Spent;
use regatta_worker::units::{Elapsed, Nanoseconds, Ratio, RatioInterval, Share, from_to};

/// Heading of cases of which another metric got worse.
pub const METRICS: &str = "Another metric regressed";

/// Heading of cases of which another metric got worse, as the suite lets pass.
pub const SLOWER_BESIDE: &str = "Slower beside the device";

/// A judgement sorted by what a reader has to act upon.
#[derive(Clone, Debug)]
pub struct Summary<'a> {
    /// Slower ones, the slowest first.
    pub regressed: Vec<&'a Row>,
    /// Broken expectations, the worst first.
    pub broken: Vec<&'a ExpectationResult>,
    /// Cases of which another metric than the device's time got worse in a way that the suite
    /// does not accept, and that are not slower.
    pub metrics: Vec<&'a Row>,
    /// Cases whose structure got worse in a way that the suite does not accept, and that
    /// are not slower.
    pub structure: Vec<&'a Row>,
    /// Broken limits on structure.
    pub limits: Vec<&'a LimitResult>,
    /// Failed or missing ones that the policy does not allow.
    pub not_measured: Vec<&'a Row>,
    /// Those of which nobody can say that their structure is what it was, because it was
    /// not counted again.
    pub uncounted: Vec<&'a Row>,
    /// Neither slower nor faster, but with a change of structure that the suite lets pass,
    /// another kernel or another grid; by what is known of their times.
    pub restructured: Vec<(&'static str, Vec<&'a Row>)>,
    /// Faster ones, the fastest first.
    pub improved: Vec<&'a Row>,
    /// How many rows each remaining word has, in the order of [`Word`].
    pub rest: Vec<(Word, usize)>,
}

impl<'a> Summary<'a> {
    /// Sorts a judgement.
    pub fn of(judgement: &'a Judgement) -> Summary<'a> {
        let mut summary = Summary {
            regressed: Vec::new(),
            broken: Vec::new(),
            metrics: Vec::new(),
            structure: Vec::new(),
            limits: Vec::new(),
            not_measured: Vec::new(),
            uncounted: Vec::new(),
            restructured: Vec::new(),
            improved: Vec::new(),
            rest: Vec::new(),
        };
        for row in &judgement.rows {
            match row.word {
                Word::Regressed => summary.regressed.push(row),
                _ if row.fails_by_metric() && !row.allowed => summary.metrics.push(row),
                _ if row.fails_by_structure() => summary.structure.push(row),
                Word::Improved => summary.improved.push(row),
                Word::NotMeasured if !row.allowed => summary.not_measured.push(row),
                _ if row.structure_unjudged() => summary.uncounted.push(row),
                _ if row.metrics_told().next().is_some() => {
                    summary.beside(SLOWER_BESIDE, row);
                }
                _ if !row.findings.is_empty() || !row.structure_told().is_empty() => {
                    summary.restructure(row);
                }
                word => count(&mut summary.rest, word),
            }
        }
        summary.rest.sort();
        summary
            .regressed
            .sort_by(|a, b| severity(b).total_cmp(&severity(a)));
        summary
            .metrics
            .sort_by(|a, b| beside(b).total_cmp(&beside(a)));
        summary
            .improved
            .sort_by(|a, b| ratio(a).total_cmp(&ratio(b)));
        let held = judgement.expectations.iter();
        summary.broken = held.filter(|e| e.held == Held::Broken).collect();
        let limits = judgement.limits.iter();
        summary.limits = limits.filter(|limit| limit.held == Held::Broken).collect();
        let excess = |e: &ExpectationResult| e.ratio.unwrap_or(Ratio(f64::INFINITY)) / e.within;
        summary
            .broken
            .sort_by(|a, b| excess(b).total_cmp(&excess(a)));
        summary
    }

    /// Adds a row whose structure alone changed to those of which as much is known.
    fn restructure(&mut self, row: &'a Row) {
        let name = match row.word {
            Word::Same => "Another structure, the same time",
            Word::Inconclusive => "Another structure, time undecided",
            _ => "Another structure",
        };
        self.beside(name, row);
    }

    /// Adds a row to those that are told under a name, and are let pass.
    fn beside(&mut self, name: &'static str, row: &'a Row) {
        match self.restructured.iter_mut().find(|(of, _)| *of == name) {
            Some((_, rows)) => rows.push(row),
            None => self.restructured.push((name, vec![row])),
        }
    }

    /// True when nothing needs to be acted upon.
    pub fn is_quiet(&self) -> bool {
        self.regressed.is_empty()
            && self.broken.is_empty()
            && self.metrics.is_empty()
            && self.structure.is_empty()
            && self.limits.is_empty()
            && self.not_measured.is_empty()
            && self.uncounted.is_empty()
            && self.restructured.is_empty()
            && self.improved.is_empty()
    }

    /// The rest in one line: `40 same, 2 inconclusive`; empty when there is none.
    pub fn rest_line(&self) -> String {
        let parts: Vec<String> = self
            .rest
            .iter()
            .map(|(word, count)| match word {
                // The others of this word are in `not_measured`.
                Word::NotMeasured => format!("{count} not measured, as allowed"),
                word => format!("{count} {}", word.text()),
            })
            .collect();
        parts.join(", ")
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

/// What a slower case costs: its own time, or that of a training step.
fn severity(row: &Row) -> Share {
    row.severity.unwrap_or_else(|| ratio(row).growth())
}

/// By how much the worst of the other metrics grew.
fn beside(row: &Row) -> Ratio {
    let told = row.metrics_told().map(|metric| metric.change.ratio);
    told.fold(Ratio::ONE, Ratio::max)
}

/// Head over base; 1 where there is no comparison.
fn ratio(row: &Row) -> Ratio {
    let change = row.change.as_ref();
    change.map_or(Ratio::ONE, |change| change.ratio)
}

/// A row's times in a line's worth of words, a part each: what the base took, what the head
/// takes and their ratio; what was judged of it, and how sure that is.
pub fn evidence(row: &Row) -> Option<Vec<String>> {
    let head = row.head.as_ref()?.median_ns;
    let (Some(base), Some(change)) = (&row.base, &row.change) else {
        return Some(vec![head.to_string()]);
    };
    let fresh = match fresh(row) {
        None => "",
        Some(Fresh::Confirmed) => ", confirmed",
        Some(Fresh::Withdrawn) => ", withdrawn",
        Some(Fresh::Undecided) => ", fresh invocations did not decide",
    };
    let ratio = row.times_ratio().unwrap_or(Ratio(f64::NAN));
    Some(vec![
        format!("{}   {ratio}", from_to(base.median_ns, head)),
        judged(row).unwrap_or_default(),
        format!("p {}{fresh}", change.p),
    ])
}

/// What fresh invocations came to, which were taken because a case was suspected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fresh {
    /// It is slower, or faster.
    Confirmed,
    /// It is the same.
    Withdrawn,
    /// Neither is shown.
    Undecided,
}

/// What they came to for a row; `None` where its screening invocations were judged.
pub fn fresh(row: &Row) -> Option<Fresh> {
    match (row.change.as_ref()?.stage, row.word) {
        (Stage::Screen, _) => None,
        (Stage::Confirm, Word::Regressed | Word::Improved) => Some(Fresh::Confirmed),
        (Stage::Confirm, Word::Same) => Some(Fresh::Withdrawn),
        (Stage::Confirm, _) => Some(Fresh::Undecided),
    }
}

/// What was judged of a row's times: `[+10.1 %, +14.2 %]` where the estimate reads as the
/// ratio of the two times that are shown does, and else `judged +12.3 % [+10.1 %, +14.2 %]`.
/// The estimate is over all invocations, and has the machine's share taken out.
pub fn judged(row: &Row) -> Option<String> {
    let interval = interval(row)?;
    let estimate = row.change.as_ref()?.ratio.to_string();
    let shown = row.times_ratio().unwrap_or(Ratio(f64::NAN)).to_string();
    Some(match estimate == shown {
        true => interval,
        false => format!("judged {estimate} {interval}"),
    })
}

/// The interval of what was judged, in the unit of its estimate: `[+10.1 %, +14.2 %]`.
pub fn interval(row: &Row) -> Option<String> {
    let change = row.change.as_ref()?;
    let interval = RatioInterval {
        ratio: change.ratio,
        low: change.low,
        high: change.high,
    };
    Some(interval.to_string())
}

/// The command that measures again the cases whose id matches `pattern`.
pub fn reproduce(report: &Report, pattern: &str) -> String {
    let suite = &report.head.header.suite;
    let mut words = vec!["regatta".to_owned(), "run".to_owned()];
    match suite.arguments.is_empty() {
        true => words.push(suite.name.clone()),
        false => words.extend(suite.arguments.iter().cloned()),
    }
    words.extend(["--filter".to_owned(), pattern.to_owned()]);
    shell_command(&words)
}

/// The least share of the whole that is worth a name.
const LEAST: Share = Share(0.005);

/// `2 min 39 s: base 70 s, head 71 s, starting workers 9 s, judging 1 s`. `took` is all of it,
/// the rest what the phases of each side took; `base` is that of one that was measured in turn.
pub fn took(took: Nanoseconds, head: Spent, base: Option<Spent>) -> String {
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
    use crate::fixture::{self, finding};
    use regatta_judge::judgement::Cause;
    use regatta_worker::units::{Nanoseconds, Probability};

    fn row(base_ns: f64, head_ns: f64, ratio: f64, interval: (f64, f64)) -> Row {
        let scene = fixture::failed();
        let mut rows = scene.judgement.rows.into_iter();
        let mut row = rows.find(|row| row.change.is_some()).unwrap();
        for (side, ns) in [(&mut row.base, base_ns), (&mut row.head, head_ns)] {
            side.as_mut().unwrap().median_ns = Nanoseconds(ns);
        }
        let change = row.change.as_mut().unwrap();
        [change.ratio, change.low, change.high] = [ratio, interval.0, interval.1].map(Ratio);
        (change.p, change.stage) = (Probability(0.0022), Stage::Confirm);
        row.word = Word::Regressed;
        row
    }

    #[test]
    fn confirmed_is_said_where_fresh_invocations_decided() {
        for (word, said) in [
            (Word::Regressed, "p 0.0022, confirmed"),
            (Word::Improved, "p 0.0022, confirmed"),
            (Word::Same, "p 0.0022, withdrawn"),
            (
                Word::Inconclusive,
                "p 0.0022, fresh invocations did not decide",
            ),
        ] {
            let mut row = row(1e5, 1.01e5, 1.01, (0.9, 1.2));
            row.word = word;
            assert_eq!(evidence(&row).unwrap().last().unwrap(), said);
            row.change.as_mut().unwrap().stage = Stage::Screen;
            assert_eq!(evidence(&row).unwrap().last().unwrap(), "p 0.0022");
        }
    }

    #[test]
    fn the_ratio_beside_two_times_is_theirs() {
        let apart = row(184_800.0, 371_700.0, 2.3, (1.858, 2.761));
        assert_eq!(
            evidence(&apart).unwrap().join("   "),
            "184.8 → 371.7 µs   2.01x slower   judged 2.30x slower [1.86x, 2.76x]   \
             p 0.0022, confirmed"
        );
        let alike = row(100_000.0, 112_300.0, 1.1231, (1.11, 1.13));
        assert_eq!(
            evidence(&alike).unwrap()[..2],
            ["100.0 → 112.3 µs   +12.3 %", "[+11.0 %, +13.0 %]"]
        );
    }

    #[test]
    fn another_structure_is_headed_by_what_is_known_of_its_time() {
        let mut scene = fixture::failed();
        let rows = &mut scene.judgement.rows;
        rows.retain(|row| matches!(row.word, Word::Same | Word::Inconclusive));
        for row in rows.iter_mut() {
            row.findings = vec![finding(Cause::CopiesAdded, "copies 0 → 1", None)];
        }
        let summary = Summary::of(&scene.judgement);
        let mut names: Vec<_> = summary.restructured.iter().map(|(name, _)| *name).collect();
        names.sort_unstable();
        let headed = ["the same time", "time undecided"];
        assert_eq!(
            names,
            headed.map(|told| format!("Another structure, {told}"))
        );
    }

    #[test]
    fn both_sides_are_counted_and_what_is_nothing_is_left_out() {
        let seconds = Nanoseconds::of_seconds;
        let base = Spent {
            cases: seconds(70.0),
            ..Spent::default()
        };
        let head = Spent {
            cases: seconds(71.0),
            workers: seconds(9.0),
            judging: seconds(1.0),
            reporting: seconds(0.1),
            ..Spent::default()
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
