//! Expectations, with a figure for the violated ones.

use std::cmp::Reverse;

use super::context::{LISTED, PageContext, WORST};
use crate::RenderError;
use crate::document::{Block, Tone};
use crate::figures::{Figure, LinePlot, PlotLine, is_drawable};
use crate::judgement::expectations;
use crate::summary::reproduce;
use regatta_core::suite::{Metric, Quantity};
use regatta_judge::judgement::{ExpectationResult, Word};
use regatta_worker::case::{Case, FACETS, ParamValue};
use regatta_worker::units::Nanoseconds;

/// Expectations: the worst violated ones with their figures, then all others.
///
/// # Errors
/// When a figure cannot be drawn.
pub(super) fn blocks(context: &PageContext) -> Result<Vec<Block>, RenderError> {
    let judgement = context.report.judgement;
    let mut all: Vec<&ExpectationResult> = judgement.expectations.iter().collect();
    all.sort_by(|a, b| b.excess().total_cmp(&a.excess()));
    all.sort_by_key(|result| Reverse(result.word));
    let violated = all.iter().filter(|result| result.word == Word::Regressed);
    let (first, others) = all.split_at(violated.count().min(WORST));
    let mut blocks = Vec::new();
    for result in first {
        let title = result.name.clone();
        blocks.push(Block::Heading(title, String::new(), Tone::Bad));
        blocks.push(Block::Table(expectations(&[result])));
        let figure = dependence(context, result);
        let figure = figure.map(|figure| figure.inline()).transpose()?;
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

/// A pattern that matches a case and its siblings with other parameters, because its references
/// must be measured with it.
fn family(case: &str) -> String {
    let parsed: Result<Case, _> = case.parse();
    match parsed {
        Ok(case) => format!("{}:{}*", case.variant, case.problem),
        Err(_) => case.to_owned(),
    }
}

/// The times of a case over the parameter of the expectation: one that its rule names, or else one
/// in which the two cases differ. `None` without such a parameter, or if fewer than two values can
/// be drawn.
fn dependence(context: &PageContext, result: &ExpectationResult) -> Option<Figure> {
    let Quantity::Metric(metric) = result.metric else {
        return None;
    };
    let case = result.case.as_ref()?.case().ok()?;
    let parameter = parameter(context, result, &case)?;
    let mut points: Vec<(i64, f64)> = Vec::new();
    let (mut auto, mut became, mut limit) = (None, None, None);
    let alike = |case: &Case| {
        let mut case = case.clone();
        case.params.set(&parameter, ParamValue::auto());
        case
    };
    let family = alike(&case);
    for row in &context.report.judgement.rows {
        let (Ok(sibling), Some(timing)) = (row.case.case(), &row.head) else {
            continue;
        };
        if alike(&sibling) != family {
            continue;
        }
        let record = context.report.side.cases.get(&row.case);
        let time = match metric {
            Metric::Device => Some(timing.median_ns.0),
            metric => record.and_then(|record| record.median(metric)),
        };
        let time = time.unwrap_or(f64::NAN);
        if result.against.as_ref() == Some(&row.case) {
            limit = result.at_most.map(|most| time * most);
        }
        match sibling.params.get(&parameter) {
            ParamValue::Int(value) if value > 0 && is_drawable(time) => points.push((value, time)),
            value if value.is_auto() => {
                auto = Some(time);
                became = record.and_then(|record| record.effective.get(&parameter).cloned());
            }
            _ => {}
        }
    }
    points.sort_by_key(|(value, _)| *value);
    if points.len() < 2 {
        return None;
    }
    let auto = auto.filter(|ns| is_drawable(*ns));
    let limit = limit.filter(|ns| is_drawable(*ns));
    let became = became.and_then(|became| match became {
        ParamValue::Int(value) if value > 0 => Some(value),
        _ => None,
    });
    let takes = auto.map(|ns| Nanoseconds(ns).to_string());
    let takes = takes.unwrap_or_else(|| "an unknown time".to_owned());
    let named = became.map_or(String::new(), |value| format!(" and became {value}"));
    let count = points.len();
    let levels = [
        limit.map(|ns| (ns, "allowed", "muted")),
        auto.map(|ns| (ns, "auto", "auto")),
    ];
    let labels = points
        .iter()
        .map(|(value, _)| (*value as f64, value.to_string()));
    let mark = |(ns, value): (f64, i64)| (value as f64, ns, format!("auto became {value}"));
    let point = |(value, ns): &(i64, f64)| (*value as f64, *ns, format!("{parameter} {value}"));
    let plot = LinePlot {
        across: parameter.clone(),
        labels: labels.collect(),
        logarithmic: true,
        levels: levels.into_iter().flatten().collect(),
        mark: auto.zip(became).map(mark),
        lines: vec![PlotLine {
            ink: "head",
            points: points.iter().map(point).collect(),
            ..PlotLine::default()
        }],
        tall: 270.0,
        ..LinePlot::default()
    };
    Some(Figure::new(
        "expectation",
        format!("Time against {parameter}"),
        format!("{count} explicit values of {parameter}; automatic takes {takes}{named}"),
        move |wide| plot.draw(wide.min(640.0)),
    ))
}

fn parameter(context: &PageContext, result: &ExpectationResult, case: &Case) -> Option<String> {
    let rules = &context.report.head.header.rules.expectations;
    let rule = rules.iter().find(|rule| rule.name == result.name);
    let named = rule.and_then(|rule| {
        let is_axis = |facet: &str| FACETS.contains(&facet) || case.problem.axis(facet).is_some();
        let mut facets = rule.facets();
        facets.find(|facet| !is_axis(facet)).map(str::to_owned)
    });
    named.or_else(|| {
        let against = result.against.as_ref()?.case().ok()?;
        let mut names = case.params.iter().chain(against.params.iter());
        names
            .find(|(name, _)| case.params.get(name) != against.params.get(name))
            .map(|(name, _)| name.clone())
    })
}
