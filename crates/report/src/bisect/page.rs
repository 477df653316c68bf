//! The page of a bisect.

use serde::Serialize;

use super::{Bisect, named, reading, told};
use crate::RenderError;
use crate::exporter::{STYLE, rendered};
use crate::figures::{Stop, Versions, svg};
use crate::text::one_line;
use regatta_judge::judgement::Word;
use regatta_measure::versions::apart::Moved;
use regatta_measure::versions::hunt::{CaseReading, Ending, Found, Outcome, Tried};
use regatta_measure::versions::search::Towards;
use regatta_worker::units::{ARROW, from_to};

#[derive(Serialize)]
struct View {
    style: &'static str,
    tone: &'static str,
    suite: String,
    word: &'static str,
    sentence: String,
    facts: Vec<String>,
    case: Option<String>,
    figure: Option<String>,
    moved: Vec<String>,
    apart: Vec<String>,
    concluded: Option<String>,
    skipped: Vec<(String, String)>,
    steps: Vec<StepView>,
    again: Option<String>,
}

#[derive(Serialize)]
struct StepView {
    number: usize,
    version: String,
    about: Option<String>,
    against: String,
    change: String,
    word: &'static str,
    tone: &'static str,
    reason: Option<String>,
}

/// One self-contained page.
///
/// # Errors
/// A template that does not fit its data.
pub fn page(bisect: &Bisect) -> Result<String, RenderError> {
    let (word, sentence) = bisect.headline();
    let followed = followed(bisect);
    let found = bisect.found();
    let skipped = bisect.skipped().into_iter();
    let versions = Versions::new(stops(bisect, followed.as_ref()), step(bisect, found));
    let view = View {
        style: STYLE,
        tone: match bisect.ending {
            Ending::Found(_) if bisect.question.towards == Towards::Fixed => "good",
            Ending::Found(_) => "bad",
            _ => "doubtful",
        },
        suite: one_line(&bisect.question.suite),
        word,
        sentence: one_line(&sentence),
        facts: facts(bisect, found),
        figure: versions.as_ref().map(svg).transpose()?,
        case: followed.map(|case| one_line(&case)),
        moved: bisect
            .moved
            .iter()
            .map(Moved::told)
            .map(|t| one_line(&t))
            .collect(),
        apart: bisect.apart.iter().map(|v| one_line(&v.told())).collect(),
        concluded: bisect.concluded(),
        skipped: skipped
            .map(|of| (one_line(&of.version.name), one_line(&of.reason)))
            .collect(),
        steps: steps(bisect),
        again: bisect.again().map(|words| words.join(" ")),
    };
    rendered(include_str!("page.html"), view)
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

fn facts(bisect: &Bisect, found: Option<&Found>) -> Vec<String> {
    let mut facts = Vec::new();
    if let Some(found) = found {
        if let (Some(base), Some(head)) = (found.case.base_ns, found.case.head_ns) {
            facts.push(from_to(base, head));
        }
        let against = |said| format!("{said} against {}", found.before.name);
        facts.extend(reading(&found.case).map(against));
        facts.extend(found.case.cause.clone());
        if found.after.subject.is_some() {
            facts.push(told(&found.after));
        }
        let merged = found.merged_by.as_ref();
        facts.extend(merged.map(|merge| format!("merged by {}", told(merge))));
        if found.by_merging {
            facts.push("a merge, and none of what it brought shows it alone".to_owned());
        }
    }
    match bisect.ending {
        Ending::NoEnd { reason, .. } => facts.push(reason.clone()),
        Ending::NoDifference {
            case: Some(case), ..
        } => facts.extend(reading(case).map(|said| format!("at the ends: {said}"))),
        Ending::Spread { parts, .. } => facts.extend(parts.iter().take(4).map(|part| {
            format!(
                "{} {ARROW} {}: {}",
                part.low.name,
                part.high.name,
                part.ratio.told()
            )
        })),
        _ => {}
    }
    facts.push(bisect.effort());
    facts.iter().map(|fact| one_line(fact)).collect()
}

/// Where the case stands in a comparison.
fn of_case<'a>(tried: &'a Tried, case: Option<&String>) -> Option<&'a CaseReading> {
    let case = case?;
    tried.cases().iter().find(|of| of.case.0 == *case)
}

/// What is drawn: each version of the row that was compared with the good end.
fn stops<'a>(bisect: &'a Bisect, case: Option<&String>) -> Vec<Stop<'a>> {
    let Some(good) = bisect.row.first() else {
        return Vec::new();
    };
    let of_row = bisect.tried.iter().enumerate();
    let of_row = of_row.filter(|(_, tried)| tried.base == good.spec);
    let stops = of_row.filter_map(|(number, tried)| {
        let at = bisect.row.iter().position(|v| v.spec == tried.head)?;
        let reading = of_case(tried, case).and_then(|of| of.reading);
        let reading = reading.filter(|reading| reading.is_usable());
        Some(Stop {
            at,
            number: Some(number + 1),
            name: &bisect.row[at].name,
            ratio: reading.map(|of| [of.low, of.ratio, of.high].map(|ratio| ratio.0)),
            word: reading.map_or(Word::Missing, |of| of.word),
        })
    });
    let first = Stop {
        at: 0,
        number: None,
        name: &good.name,
        ratio: Some([1.0; 3]),
        word: Word::Same,
    };
    let mut stops: Vec<Stop> = std::iter::once(first).chain(stops).collect();
    stops.sort_by_key(|stop| stop.at);
    stops
}

/// Where the step is in the row.
fn step(bisect: &Bisect, found: Option<&Found>) -> Option<(usize, usize)> {
    let found = found?;
    let place = |spec: &str| bisect.row.iter().position(|version| version.spec == spec);
    let after = found.merged_by.as_ref().unwrap_or(&found.after);
    let after = place(&after.spec)?;
    Some((
        place(&found.before.spec).unwrap_or(after.saturating_sub(1)),
        after,
    ))
}

fn steps(bisect: &Bisect) -> Vec<StepView> {
    let case = followed(bisect);
    let each = bisect.tried.iter().enumerate();
    each.map(|(number, tried)| {
        let of = of_case(tried, case.as_ref());
        let said = of.and_then(reading);
        let word = of.and_then(|of| of.reading).map(|reading| reading.word);
        let version = bisect.row.iter().find(|v| v.spec == tried.head);
        let reason = match (&tried.outcome, &said) {
            (Outcome::Unusable { reason, .. }, _) => Some(reason.clone()),
            (_, None) => of.and_then(|of| of.reason.clone()),
            _ => None,
        };
        StepView {
            number: number + 1,
            version: one_line(named(bisect, &tried.head)),
            about: version.and_then(|v| v.subject.as_deref()).map(one_line),
            against: one_line(named(bisect, &tried.base)),
            word: match (word, &said) {
                (Some(word), Some(_)) => word.text(),
                _ => "skipped",
            },
            tone: match word {
                Some(Word::Regressed) => "bad",
                Some(Word::Improved) => "good",
                Some(Word::Same) => "",
                _ => "doubtful",
            },
            change: said.unwrap_or_default(),
            reason: reason.map(|reason| one_line(&reason)),
        }
    })
    .collect()
}
