//! Expectations, and for a violated one the figure that shows by how much.

use serde::Serialize;

use super::context::PageContext;
use crate::RenderError;
use crate::figures::{Splits, svg};
use crate::summary::{factors, reproduce};
use crate::text::{clean, one_line};
use regatta_core::suite::rules::Metric;
use regatta_judge::judgement::{ExpectationResult, LimitResult, Word};
use regatta_worker::attention::{Case, FACETS, ParamValue};
use regatta_worker::units::{NONE, Nanoseconds};

/// An expectation, as the template takes it.
#[derive(Serialize)]
pub(super) struct ExpectationView {
    name: String,
    /// True where the table has its case.
    linked: bool,
    case: String,
    against: Option<String>,
    metric: &'static str,
    within: String,
    ratio: String,
    interval: Option<String>,
    outcome: &'static str,
    tone: &'static str,
    /// True for one that is shown by itself, and not in the table.
    card: bool,
    reason: Option<String>,
    figure: Option<String>,
    reproduce: String,
}

/// A limit on structure, as the template takes it.
#[derive(Serialize)]
pub(super) struct LimitView {
    name: String,
    case: String,
    told: String,
    reason: Option<String>,
    outcome: &'static str,
    tone: &'static str,
}

/// How the page shows it.
fn tone(word: Word) -> &'static str {
    match word {
        Word::Same => "calm",
        Word::Regressed => "bad",
        _ => "doubtful",
    }
}

impl LimitView {
    pub(super) fn new(result: &LimitResult) -> LimitView {
        LimitView {
            name: one_line(&result.name),
            case: one_line(&result.subject()),
            told: one_line(&result.sentence()),
            reason: result.reason.as_deref().map(clean),
            outcome: result.word.of_demand(),
            tone: tone(result.word),
        }
    }
}

impl ExpectationView {
    /// One of several, as a card or as a row.
    ///
    /// # Errors
    /// When its figure cannot be drawn.
    pub(super) fn new(
        context: &PageContext,
        result: &ExpectationResult,
        card: bool,
    ) -> Result<ExpectationView, RenderError> {
        let dependence = dependence(context, result).filter(|_| card);
        let figure = dependence
            .as_ref()
            .and_then(|dependence| dependence.figure().drawable());
        let figure = figure.as_ref().map(svg).transpose()?;
        Ok(ExpectationView {
            name: one_line(&result.name),
            linked: context.cases.contains(&result.case),
            case: one_line(&result.case.0),
            against: result.against.as_ref().map(|case| one_line(&case.0)),
            metric: result.metric.text(),
            within: result.within.factor().to_string(),
            ratio: result
                .ratio
                .map_or(NONE.to_owned(), |ratio| ratio.factor().to_string()),
            interval: factors(result),
            outcome: result.word.of_demand(),
            tone: tone(result.word),
            card,
            reason: result.reason.as_deref().map(clean),
            figure,
            reproduce: reproduce(context.report, &family(&result.case.0)),
        })
    }
}

/// A pattern that matches a case and its siblings with other parameters: what it
/// is compared with must be measured with it.
fn family(case: &str) -> String {
    let parsed: Result<Case, _> = case.parse();
    match parsed {
        Ok(case) => format!("{}:{}*", case.variant, case.problem),
        Err(_) => case.to_owned(),
    }
}

/// Times of one case over the explicit values of one of its parameters.
struct Dependence {
    parameter: String,
    points: Vec<(i64, Nanoseconds)>,
    auto: Option<(Nanoseconds, Option<i64>)>,
    limit: Option<Nanoseconds>,
}

impl Dependence {
    fn figure(&self) -> Splits<'_> {
        Splits {
            parameter: &self.parameter,
            points: self
                .points
                .iter()
                .map(|(value, time)| (*value, time.0))
                .collect(),
            auto: self.auto.map(|(time, became)| (time.0, became)),
            limit_ns: self.limit.map(|time| time.0),
        }
    }
}

/// The dependence on the parameter the expectation is about: one that its rule
/// names, or else one in which the two cases differ. `None` when it is about
/// something else.
fn dependence(context: &PageContext, result: &ExpectationResult) -> Option<Dependence> {
    let case = result.case.case().ok()?;
    let parameter = parameter(context, result, &case)?;
    let mut found = Dependence {
        parameter: parameter.clone(),
        points: Vec::new(),
        auto: None,
        limit: None,
    };
    let alike = |mut case: Case| {
        case.params.set(&parameter, ParamValue::auto());
        case
    };
    let family = alike(case);
    for row in &context.report.judgement.rows {
        let (Ok(sibling), Some(timing)) = (row.case.case(), &row.head) else {
            continue;
        };
        let time = match result.metric {
            Metric::Device => timing.median_ns,
            metric => {
                let record = context.head_record(&row.case);
                let value = record.and_then(|record| record.median(metric));
                Nanoseconds(value.unwrap_or(f64::NAN))
            }
        };
        let value = sibling.params.get(&parameter);
        if alike(sibling) != family {
            continue;
        }
        if result.against.as_ref() == Some(&row.case) {
            found.limit = Some(time * result.within);
        }
        match value {
            ParamValue::Int(value) => found.points.push((value, time)),
            value if value.is_auto() => {
                let record = context.head_record(&row.case);
                let became = record.and_then(|record| record.effective.get(&parameter));
                let became = match became {
                    Some(ParamValue::Int(value)) => Some(*value),
                    _ => None,
                };
                found.auto = Some((time, became));
            }
            ParamValue::Word(_) => {}
        }
    }
    Some(found)
}

fn parameter(context: &PageContext, result: &ExpectationResult, case: &Case) -> Option<String> {
    let rules = &context.report.head.header.rules.expectations;
    let rule = rules.iter().find(|rule| rule.name == result.name);
    let named = rule.and_then(|rule| {
        let facets = rule.case.facets().chain(rule.against.facets());
        let mut parameters = facets.filter(|facet| !FACETS.contains(facet));
        parameters.next().map(str::to_owned)
    });
    named.or_else(|| {
        let against = result.against.as_ref()?.case().ok()?;
        let mut names = case.params.iter().chain(against.params.iter());
        names
            .find(|(name, _)| case.params.get(name) != against.params.get(name))
            .map(|(name, _)| name.clone())
    })
}
