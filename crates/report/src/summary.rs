//! Sorts a judgement's rows by importance, equally for every format.

use std::collections::BTreeMap;

use super::Report;
use super::document::Tone;
use super::text::shell_command;
use regatta_core::suite::{Metric, names_a_file};
use regatta_judge::judgement::{ExpectationResult, Judgement, Row, Word};
use regatta_measure::laps::TimeSpent;
use regatta_worker::joined::Joined;
use regatta_worker::units::{Elapsed, Nanoseconds, Share};

/// The lists of cases, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RowList {
    /// Wrong results, crashes and hangs.
    Errors,
    /// Cases of which a metric or the structure got worse.
    Regressed,
    /// Cases without a value, or whose structure is unknown.
    Missing,
    /// Cases that may be worse.
    Inconclusive,
    /// Cases whose change of structure does not fail, by the verdict on their times.
    RestructuredAsFast,
    RestructuredInconclusive,
    Restructured,
    Improved,
}

impl RowList {
    /// The list of a row; `None` if it is only counted.
    pub(crate) fn of_row(row: &Row) -> Option<RowList> {
        let restructured = !row.findings.is_empty() || row.worth_telling().next().is_some();
        match row.word {
            Word::Error => Some(RowList::Errors),
            Word::Regressed => Some(RowList::Regressed),
            Word::Missing => Some(RowList::Missing),
            Word::Improved => Some(RowList::Improved),
            Word::Inconclusive if row.may_be_worse() => Some(RowList::Inconclusive),
            _ if !restructured => None,
            Word::Same => Some(RowList::RestructuredAsFast),
            Word::Inconclusive => Some(RowList::RestructuredInconclusive),
            _ => Some(RowList::Restructured),
        }
    }

    /// The heading of the list.
    pub(crate) fn title(self) -> &'static str {
        match self {
            RowList::Errors => "Errors",
            RowList::Regressed => "Regressed",
            RowList::Missing => "Missing",
            RowList::Inconclusive => "Inconclusive",
            RowList::RestructuredAsFast => "Launch structure changed, time unchanged",
            RowList::RestructuredInconclusive => "Launch structure changed, time inconclusive",
            RowList::Restructured => "Launch structure changed",
            RowList::Improved => "Improved",
        }
    }

    pub(crate) fn tone(self) -> Tone {
        match self {
            RowList::Errors | RowList::Regressed => Tone::Bad,
            RowList::Improved => Tone::Good,
            _ => Tone::Doubtful,
        }
    }
}

/// A judgement's rows, sorted by urgency.
pub(crate) struct SortedRows<'a> {
    /// The indices of all rows: those in a list first, sorted by the size of the change.
    pub(crate) places: Vec<usize>,
    /// The lists that are not empty, with their rows in the same order.
    pub(crate) lists: BTreeMap<RowList, Vec<&'a Row>>,
    /// Violated expectations, the worst first.
    pub(crate) violated: Vec<&'a ExpectationResult>,
}

impl<'a> SortedRows<'a> {
    pub(crate) fn new(judgement: &'a Judgement) -> SortedRows<'a> {
        let rows = &judgement.rows;
        let rank = |row: &Row| {
            let list = RowList::of_row(row);
            // Rows in no list come last, inconclusive ones first among them.
            let open = row.word == Word::Inconclusive;
            (list.is_none(), list, !open, row.word)
        };
        let ranked = rows.iter().enumerate();
        let ranked = ranked.map(|(place, row)| (rank(row), row.ratio(), place));
        let mut ranked: Vec<_> = ranked.collect();
        ranked.sort_by(|(a, ratio, _), (b, other, _)| {
            let slower = other.total_cmp(ratio);
            let improved = a.3 == Word::Improved;
            let slower = if improved { slower.reverse() } else { slower };
            a.cmp(b).then(slower)
        });
        let mut lists: BTreeMap<RowList, Vec<&Row>> = BTreeMap::new();
        for &((_, list, ..), _, place) in &ranked {
            if let Some(list) = list {
                lists.entry(list).or_default().push(&rows[place]);
            }
        }
        let places = ranked.into_iter().map(|(.., place)| place).collect();
        let expectations = judgement.expectations.iter();
        let violated = expectations.filter(|result| result.word == Word::Regressed);
        let mut violated: Vec<_> = violated.collect();
        violated.sort_by(|a, b| b.excess().total_cmp(&a.excess()));
        SortedRows {
            places,
            lists,
            violated,
        }
    }

    /// The rows of some lists.
    pub(crate) fn rows<const N: usize>(
        &self,
        lists: [RowList; N],
    ) -> impl Iterator<Item = &'a Row> {
        let rows = lists.into_iter().filter_map(|list| self.lists.get(&list));
        rows.flatten().copied()
    }
}

/// The parts of a one-line text for a row: the metric unless it is the device time, the base's
/// time, the head's time, and the change with its interval.
pub(crate) fn evidence(row: &Row) -> Option<Vec<String>> {
    let Some(metric) = row.first_metric() else {
        return Some(vec![row.head.as_ref()?.median_ns.to_string()]);
    };
    let name = match metric.metric {
        Metric::Device => None,
        other => Some(other.text().to_owned()),
    };
    let figures = [metric.from_to(), metric.change.ratio.to_string()];
    let parts = name.into_iter().chain(figures);
    Some(parts.chain(metric.change.interval()).collect())
}

/// The command that reproduces the verdict for the cases whose id matches `pattern`.
pub(crate) fn reproduce(report: &Report, pattern: &str) -> String {
    let header = &report.head.header;
    let suite = &header.suite;
    let (mut command, mut versions) = ("run", Vec::new());
    let mut push = |flag: &str, value: &str| versions.extend([flag.to_owned(), value.to_owned()]);
    let base = report.base;
    match base.map(|base| (base, &base.header.pairing, &header.pairing)) {
        None => {}
        Some((_, Some(base), Some(head))) => {
            let gates = header.argv.get(1).is_some_and(|word| word == "gate");
            command = if gates { "gate" } else { "compare" };
            base.version.iter().for_each(|spec| push("--base", spec));
            let heads = head.version.iter().filter(|spec| *spec != "here");
            heads.for_each(|spec| push("--head", spec));
        }
        Some((base, ..)) => {
            command = "gate";
            if !names_a_file(&base.label) {
                push("--base", &format!("run:{}", base.label));
            } else if base.label != suite.name {
                push("--baseline", &base.label);
            }
        }
    }
    let mut words = vec!["regatta".to_owned(), command.to_owned()];
    if suite.arguments.is_empty() {
        words.push(suite.name.clone())
    } else {
        words.extend(suite.arguments.iter().cloned())
    }
    words.extend(versions);
    words.extend(["--filter".to_owned(), pattern.to_owned()]);
    shell_command(&words)
}

/// The smallest share of the total that is printed by name.
const MIN_SHARE: Share = Share(0.005);

/// `2 min 41 s: base 70 s, head 71 s, checking clocks 2 s, starting workers 9 s`. `took` is the
/// total; the others are the phases of the sides. `base` is present if a base was measured in
/// pairs.
pub fn took(took: Nanoseconds, head: TimeSpent, base: Option<TimeSpent>) -> String {
    let mut all = head;
    all += base.unwrap_or_default();
    let sides = match base {
        Some(base) => vec![("base", base.cases), ("head", head.cases)],
        None => vec![("measuring", head.cases)],
    };
    let others: [(&str, Nanoseconds); 5] = [
        ("checking clocks", all.clocks),
        ("starting workers", all.workers),
        ("setting up", all.setting_up),
        ("judging", all.judging),
        ("writing reports", all.reporting),
    ];
    let parts = sides.into_iter().chain(others);
    let parts = parts.filter(|(_, time)| time.share_of(took) >= MIN_SHARE);
    let parts = parts.map(|(name, time)| format!("{name} {}", Elapsed(time)));
    match parts.joined(", ") {
        parts if parts.is_empty() => Elapsed(took).to_string(),
        parts => format!("{}: {parts}", Elapsed(took)),
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
            clocks: seconds(2.0),
            workers: seconds(9.0),
            judging: seconds(1.0),
            reporting: seconds(0.1),
            ..TimeSpent::default()
        };
        let whole = seconds(161.0);
        for (base, sides) in [
            (Some(base), "base 1 min 10 s, head 1 min 11 s"),
            (None, "measuring 1 min 11 s"),
        ] {
            let others = "checking clocks 2.00 s, starting workers 9.00 s, judging 1.00 s";
            let expected = format!("2 min 41 s: {sides}, {others}");
            assert_eq!(took(whole, head, base), expected);
        }
    }
}
