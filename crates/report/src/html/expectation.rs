//! Expectations, and for a violated one the figure that shows by how much.

use std::cmp::Reverse;

use super::context::{LISTED, PageContext, WORST};
use crate::RenderError;
use crate::document::{Block, Tone};
use crate::figures::{Splits, svg};
use crate::judgement::expectations;
use crate::summary::reproduce;
use regatta_core::suite::rules::Metric;
use regatta_core::suite::structural::Quantity;
use regatta_judge::judgement::{ExpectationResult, Word};
use regatta_worker::attention::{Case, FACETS, ParamValue};

/// Expectations, those violated most with their figure, then all others.
///
/// # Errors
/// When a figure cannot be drawn.
pub(super) fn blocks(context: &PageContext) -> Result<Vec<Block>, RenderError> {
    let judgement = context.report.judgement;
    let mut all: Vec<&ExpectationResult> = judgement.expectations.iter().collect();
    all.sort_by(|a, b| b.excess().total_cmp(&a.excess()));
    all.sort_by_key(|of| Reverse(of.word));
    let violated = all.iter().filter(|of| of.word == Word::Regressed).count();
    let (first, others) = all.split_at(violated.min(WORST));
    let mut blocks = Vec::new();
    for result in first {
        blocks.push(Block::Heading(
            result.name.clone(),
            String::new(),
            Tone::Bad,
        ));
        blocks.push(Block::Table(expectations(&[result])));
        let figure = dependence(context, result);
        let figure = figure.as_ref().map(svg).transpose()?;
        blocks.extend(figure.map(Block::Figure));
        let again = reproduce(context.report, &family(&result.subject()));
        blocks.push(Block::Command(vec![again]));
    }
    let mut table = expectations(LISTED.shown(others));
    table.heads.push("outcome");
    for (row, of) in table.rows.iter_mut().zip(others) {
        row.cells.push(of.word.of_demand().to_owned());
        row.below.insert(0, of.name.clone());
        row.tone = Tone::from_word(of.word);
    }
    table.rest = LISTED.rest(others.len());
    blocks.extend((!others.is_empty()).then_some(Block::Table(table)));
    Ok(blocks)
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

/// The times of a case over the parameter that the expectation is about: one that its rule
/// names, or else one in which the two cases differ. `None` when it is about something else.
fn dependence(context: &PageContext, result: &ExpectationResult) -> Option<Splits> {
    let Quantity::Metric(metric) = result.metric else {
        return None;
    };
    let case = result.case.as_ref()?.case().ok()?;
    let parameter = parameter(context, result, &case)?;
    let mut found = Splits {
        parameter: parameter.clone(),
        points: Vec::new(),
        auto: None,
        limit_ns: None,
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
        let time = match metric {
            Metric::Device => timing.median_ns.0,
            metric => {
                let record = context.report.side.cases.get(&row.case);
                record.and_then(|of| of.median(metric)).unwrap_or(f64::NAN)
            }
        };
        let value = sibling.params.get(&parameter);
        if alike(sibling) != family {
            continue;
        }
        if result.against.as_ref() == Some(&row.case) {
            found.limit_ns = result.at_most.map(|most| time * most);
        }
        match value {
            ParamValue::Int(value) => found.points.push((value, time)),
            value if value.is_auto() => {
                let record = context.report.side.cases.get(&row.case);
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
    found.drawable()
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
