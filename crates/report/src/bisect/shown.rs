//! The answer of a bisect for a terminal and as a page.

use super::Bisect;
use crate::RenderError;
use crate::document::{Block, Document, ListItem, Table, TableRow, Tone};
use crate::text::{one_line, shorten};
use regatta_core::suite::Metric;
use regatta_judge::judgement::{MetricRow, Word};
use regatta_measure::versions::bisect::{CaseReading, Ending, FoundStep};
use regatta_measure::versions::search::Towards;
use regatta_worker::units::{ARROW, counted};

/// The largest number of parts and of skipped versions that are listed.
const MAX_LISTED: usize = 8;

/// The change of a case in a comparison: `1.74x slower [1.70x, 1.78x]`.
pub fn reading(case: &CaseReading) -> Option<String> {
    case.word()?;
    let metric = case.metric.as_ref()?;
    let change = metric.change.with_interval(metric.change.ratio.in_words());
    Some(match metric.metric {
        Metric::CpuTime => format!("{change} in CPU time"),
        _ => change,
    })
}

/// The answer, at most eighty columns wide except for a command, which is never cut.
pub fn text(bisect: &Bisect) -> String {
    document(bisect, Vec::new()).text(false)
}

/// One self-contained page.
///
/// # Errors
/// When the figure or the template does not fit its data.
pub fn page(bisect: &Bisect) -> Result<String, RenderError> {
    let heads = vec!["number", "against", "change", "says"];
    let comparisons = Block::Table(Table::new("version", heads, steps(bisect)));
    let heading = Block::heading("Comparisons, in the order made");
    document(bisect, vec![heading, comparisons]).page()
}

fn document(bisect: &Bisect, body: Vec<Block>) -> Document {
    let (word, sentence) = bisect.headline();
    let suite = shorten(&one_line(bisect.suite), 40);
    let mut items = match &bisect.searched.ending {
        Ending::Found(found) => found_step(found),
        Ending::NoDifference { case, .. } => no_difference(bisect, case.as_ref()),
        Ending::Spread { case, parts } => {
            let part = parts.iter().take(MAX_LISTED).map(|part| {
                let (low, high) = (&part.low.name, &part.high.name);
                format!("{low} {ARROW} {high}: {}", part.ratio.in_words())
            });
            let mut items: Vec<ListItem> = match case {
                Some(case) => vec![ListItem::from(case.to_string()).with_below(part.collect())],
                None => part.map(ListItem::from).collect(),
            };
            let hint = "no two neighbours differ by more than what chance does: more invocations \
                        in the suite's [measure], or a smaller range, may tell";
            items.push(hint.to_owned().into());
            items
        }
        Ending::NoEnd { reason, .. } => vec![reason.clone().into()],
    };
    let skipped = bisect.skipped();
    items.extend(skipped.iter().take(MAX_LISTED).map(|(at, reason)| {
        let reason = shorten(&one_line(reason), 300);
        format!("skipped: {}: {reason}", bisect.row[*at].name).into()
    }));
    if skipped.len() > MAX_LISTED {
        let more = skipped.len() - MAX_LISTED;
        items.push(format!("and {more} more (--json has all)").into());
    }
    items.push(bisect.effort().into());
    let mut summary = Vec::new();
    match bisect.again() {
        Some(words) => {
            items.push("to see it again:".to_owned().into());
            summary.extend([Block::List(items), Block::Command(words)]);
        }
        None => summary.push(Block::List(items)),
    }
    Document {
        title: format!("{suite}: {sentence}"),
        tone: match &bisect.searched.ending {
            Ending::Found(_) if bisect.towards == Towards::Fixed => Tone::Good,
            Ending::Found(_) => Tone::Bad,
            _ => Tone::Doubtful,
        },
        word: word.to_owned(),
        subject: suite,
        sentence,
        summary,
        body,
        ..Document::default()
    }
}

fn found_step(step: &FoundStep) -> Vec<ListItem> {
    let against = format!("against {}", step.before.name);
    let mut items = vec![read_case(&step.case, &against)];
    if !step.others.is_empty() {
        let others = counted(step.others.len(), "other case");
        items.push(format!("{others} changed there as well").into());
    }
    if !step.moved.is_empty() {
        items.push(format!("moved: {}", step.moved.join(", ")).into());
    }
    items
}

fn read_case(case: &CaseReading, against: &str) -> ListItem {
    let mut parts = Vec::new();
    parts.extend(case.metric.as_ref().map(MetricRow::from_to));
    parts.extend(reading(case));
    parts.push(against.to_owned());
    let below = std::iter::once(parts.join(", ")).chain(case.cause.clone());
    ListItem::from(case.case.to_string()).with_below(below.collect())
}

fn no_difference(bisect: &Bisect, largest: Option<&CaseReading>) -> Vec<ListItem> {
    let mut items = Vec::new();
    if let Some(largest) = largest {
        let word = largest.word().unwrap_or(Word::Missing);
        let mut item = read_case(largest, &format!("{} (the ends)", word.name()));
        let metric = largest.metric.as_ref();
        if let Some(sees) = metric.and_then(|metric| metric.change.detectable) {
            let words = "this comparison may hide a change of less than";
            item.below.push(format!("{words} {sees}"));
        }
        items.push(item);
    }
    if bisect.is_undecided() {
        let mut advice = "measure again when nothing else runs here".to_owned();
        if bisect.searched.metric != Metric::CpuTime {
            advice += ", or by --cpu-time";
        }
        items.push(advice.into());
        return items;
    }
    let hidden = match bisect.towards {
        Towards::Bad => "what came and went between the versions that were compared is not seen",
        Towards::Fixed => "only what is good again after it was bad in the same range is found",
    };
    let hint = "name as --bad a version that is known to be slow";
    items.push(format!("{hidden}: {hint}").into());
    items
}

/// Each comparison.
fn steps(bisect: &Bisect) -> Vec<TableRow> {
    let each = bisect.searched.tried.iter().enumerate();
    let each = each.map(|(number, tried)| {
        let read = bisect.case().and_then(|case| tried.reading(case));
        let change = read.and_then(reading);
        let word = read.and_then(CaseReading::word);
        let reason = tried.why_skipped(bisect.case()).filter(|_| word.is_none());
        let cells = vec![
            (number + 1).to_string(),
            bisect.row[tried.low].name.clone(),
            change.unwrap_or_default(),
            word.map_or("skipped", Word::name).to_owned(),
        ];
        TableRow {
            tone: match word {
                Some(Word::Regressed) => Tone::Bad,
                Some(Word::Improved) => Tone::Good,
                Some(Word::Same) => Tone::Calm,
                _ => Tone::Doubtful,
            },
            below: reason.into_iter().collect(),
            ..TableRow::new(&bisect.row[tried.high].name, cells)
        }
    });
    each.collect()
}
