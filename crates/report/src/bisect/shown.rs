//! The answer of a bisect for a terminal and as a page.

use super::{Bisect, is_printable, named};
use crate::RenderError;
use crate::document::{Block, Document, ListItem, Table, TableRow, Tone};
use crate::figures::{TrendPlot, svg};
use crate::text::{one_line, shorten};
use regatta_judge::judgement::Word;
use regatta_measure::versions::Version;
use regatta_measure::versions::bisect::{CaseReading, Ending, FoundStep, Tried, TriedOutcome};
use regatta_measure::versions::search::Towards;
use regatta_worker::units::{ARROW, RatioInterval, counted, from_to};

/// Parts and skipped versions that are listed.
const MOST: usize = 8;

/// The change of a case in a comparison: `1.74x slower [1.70x, 1.78x]`.
pub fn reading(of: &CaseReading) -> Option<String> {
    let reading = of.reading.filter(|reading| is_printable(reading.ratio))?;
    let interval = RatioInterval {
        ratio: reading.ratio,
        low: reading.low,
        high: reading.high,
    };
    Some(format!("{} {interval}", reading.ratio.in_words()))
}

/// The answer, at most eighty columns wide, but for a command, which is never cut.
pub fn text(bisect: &Bisect) -> String {
    document(bisect, Vec::new()).text(false)
}

/// One self-contained page.
///
/// # Errors
/// When the figure or the template does not fit its data.
pub fn page(bisect: &Bisect) -> Result<String, RenderError> {
    let case = followed(bisect);
    let mut body = Vec::new();
    let points = points(bisect, case.as_ref());
    if points.len() > 1 {
        let at = |place: usize| points.iter().find(|of| of.0 == place).map(|of| of.1);
        let step = step(bisect, bisect.found());
        let step = step.and_then(|(before, after)| Some((after, at(before)?, at(after)?)));
        let name = |at: usize| {
            bisect
                .row
                .get(at)
                .map_or("", |of| of.name.as_str())
                .to_owned()
        };
        let trend = TrendPlot {
            title: "Each version against the good end".to_owned(),
            steps: step.into_iter().collect(),
            ratio: true,
            name: &name,
            points,
        };
        body.push(Block::heading("Every version that was tried"));
        body.push(Block::Figure(svg(&trend)?, Vec::new()));
    }
    body.push(Block::heading("Comparisons, in the order made"));
    body.push(Block::Table(Table::new(
        "version",
        vec!["number", "against", "change", "says"],
        steps(bisect, case.as_ref()),
    )));
    document(bisect, body).page()
}

fn document(bisect: &Bisect, body: Vec<Block>) -> Document {
    let (word, sentence) = bisect.headline();
    let suite = shorten(&one_line(&bisect.question.suite), 40);
    let mut items = match bisect.ending {
        Ending::Found(found) => found_step(bisect, found),
        Ending::NoDifference { case, .. } => no_difference(bisect, case.as_ref()),
        Ending::Spread { case, parts } => {
            let part = parts.iter().take(MOST).map(|part| {
                let (low, high) = (&part.low.name, &part.high.name);
                format!("{low} {ARROW} {high}: {}", part.ratio.in_words())
            });
            let mut items: Vec<ListItem> = match case {
                Some(case) => vec![ListItem {
                    text: case.0.clone(),
                    below: part.collect(),
                    ..ListItem::default()
                }],
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
    items.extend(skipped.iter().take(MOST).map(|(version, reason)| {
        let reason = shorten(&one_line(reason), 300);
        format!("skipped: {}: {reason}", version.name).into()
    }));
    if skipped.len() > MOST {
        let more = skipped.len() - MOST;
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
        tone: match bisect.ending {
            Ending::Found(_) if bisect.question.towards == Towards::Fixed => Tone::Good,
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

fn found_step(bisect: &Bisect, found: &FoundStep) -> Vec<ListItem> {
    let against = format!("against {}", found.before.name);
    let mut items = vec![read_case(&found.case, &against)];
    if !found.others.is_empty() {
        let others = counted(found.others.len(), "other case");
        items.push(format!("{others} changed there as well").into());
    }
    if !bisect.moved.is_empty() {
        let moved: Vec<String> = bisect.moved.iter().map(ToString::to_string).collect();
        items.push(format!("moved: {}", moved.join(", ")).into());
    }
    items
}

fn read_case(of: &CaseReading, against: &str) -> ListItem {
    let mut parts = Vec::new();
    if let (Some(base), Some(head)) = (of.base_ns, of.head_ns) {
        parts.push(from_to(base, head));
    }
    parts.extend(reading(of));
    parts.push(against.to_owned());
    let below = std::iter::once(parts.join(", ")).chain(of.cause.clone());
    ListItem {
        text: of.case.0.clone(),
        below: below.collect(),
        ..ListItem::default()
    }
}

fn no_difference(bisect: &Bisect, largest: Option<&CaseReading>) -> Vec<ListItem> {
    let mut items = Vec::new();
    if let Some(largest) = largest {
        let word = largest.reading.map_or(Word::Missing, |of| of.word);
        let mut item = read_case(largest, &format!("{} (the ends)", word.text()));
        let sees = largest
            .sees
            .map(|sees| format!("this comparison may hide a change of less than {sees}"));
        item.below.extend(sees);
        items.push(item);
    }
    let hidden = match bisect.question.towards {
        Towards::Bad => "what came and went between the versions that were compared is not seen",
        Towards::Fixed => "only what is good again after it was bad in the same range is found",
    };
    let hint = "name as --bad a version that is known to be slow";
    items.push(format!("{hidden}: {hint}").into());
    items
}

/// The case that was followed.
fn followed(bisect: &Bisect) -> Option<String> {
    match bisect.ending {
        Ending::Found(found) => Some(found.case.case.0.clone()),
        Ending::NoDifference { case, .. } => case.as_ref().map(|of| of.case.0.clone()),
        Ending::Spread { case, .. } => case.as_ref().map(|case| case.0.clone()),
        Ending::NoEnd { .. } => None,
    }
}

/// Where the case stands in a comparison.
fn of_case<'a>(tried: &'a Tried, case: Option<&String>) -> Option<&'a CaseReading> {
    let case = case?;
    tried.cases().iter().find(|of| of.case.0 == *case)
}

/// The places of versions that were compared with the good end, with their ratios.
fn points(bisect: &Bisect, case: Option<&String>) -> Vec<(usize, f64)> {
    let good = bisect.row.first().map(|good| &good.spec);
    let tried = bisect.tried.iter().filter(|of| Some(&of.base) == good);
    let points = tried.filter_map(|tried| {
        let at = bisect.row.iter().position(|of| of.spec == tried.head)?;
        let reading = of_case(tried, case)?.reading.filter(|of| of.is_usable())?;
        Some((at, reading.ratio.0))
    });
    let mut points: Vec<(usize, f64)> = std::iter::once((0, 1.0)).chain(points).collect();
    points.sort_by_key(|(at, _)| *at);
    points
}

/// Where the step is in the row.
fn step(bisect: &Bisect, found: Option<&FoundStep>) -> Option<(usize, usize)> {
    let place = |version: &Version| bisect.row.iter().position(|of| of == version);
    Some((place(&found?.before)?, place(&found?.after)?))
}

/// Each comparison.
fn steps(bisect: &Bisect, case: Option<&String>) -> Vec<TableRow> {
    let each = bisect.tried.iter().enumerate();
    let each = each.map(|(number, tried)| {
        let of = of_case(tried, case);
        let change = of.and_then(reading);
        let word = of.and_then(|of| of.reading).map(|reading| reading.word);
        let reason = match (&tried.outcome, &change) {
            (TriedOutcome::Unusable { reason, .. }, _) => Some(reason.clone()),
            (_, None) => of.and_then(|of| of.reason.clone()),
            _ => None,
        };
        let says = match (word, &change) {
            (Some(word), Some(_)) => word.text(),
            _ => "skipped",
        };
        TableRow {
            link: String::new(),
            label: named(bisect, &tried.head).to_owned(),
            cells: vec![
                (number + 1).to_string(),
                named(bisect, &tried.base).to_owned(),
                change.unwrap_or_default(),
                says.to_owned(),
            ],
            tone: match word {
                Some(Word::Regressed) => Tone::Bad,
                Some(Word::Improved) => Tone::Good,
                Some(Word::Same) => Tone::Calm,
                _ => Tone::Doubtful,
            },
            below: reason.into_iter().collect(),
        }
    });
    each.collect()
}
