//! Figures of all cases: their ratios, variants side by side, and the library that draws what one
//! explores.

use serde::Serialize;

use super::context::Context;
use crate::by_axes::Table;
use crate::plot::{Bar, Ink, NAMED, Whisker, forest, throughput};
use regatta_judge::judgement::Word;

/// Of more cases variants are not drawn side by side.
const DRAWN: usize = 1_000;

/// uPlot 1.6.32, for the plots that one explores; committed as npm has it.
const PLOTS: [&str; 3] = [
    include_str!("vendor/LICENSE"),
    include_str!("vendor/uPlot.iife.min.js"),
    include_str!("vendor/uPlot.min.css"),
];

/// The library's licence, script and style.
#[derive(Serialize)]
pub(super) struct Plots {
    licence: &'static str,
    script: &'static str,
    style: &'static str,
}

impl Plots {
    /// `None` where no axis has three lengths or numbers to plot against.
    pub(super) fn of(table: &Table) -> Option<Plots> {
        let numbers = |values: &[String]| {
            values
                .iter()
                .filter(|value| value.parse::<u64>().is_ok())
                .count()
        };
        let swept = table.axes.iter().any(|axis| numbers(&axis.values) >= 3);
        // Its first line is an address.
        let script = PLOTS[1]
            .split_once('\n')
            .map_or(PLOTS[1], |(_, script)| script);
        swept.then_some(Plots {
            licence: PLOTS[0],
            script,
            style: PLOTS[2],
        })
    }
}

/// The ratios of the cases that changed most, still.
pub(super) fn all_ratios(context: &Context) -> Option<String> {
    let rows = context.report.judgement.rows.iter();
    let whiskers = rows.filter_map(|row| {
        let change = row.change.as_ref()?;
        Some(Whisker {
            case: &row.case.0,
            ratio: change.ratio.0,
            interval: (change.low.0, change.high.0),
            ink: match row.word {
                Word::Regressed => Ink::Slow,
                Word::Improved => Ink::Fast,
                _ => Ink::Base,
            },
        })
    });
    let mut whiskers: Vec<Whisker> = whiskers.filter(|of| of.ratio.is_finite()).collect();
    whiskers.sort_by(|a, b| b.ratio.ln().abs().total_cmp(&a.ratio.ln().abs()));
    whiskers.truncate(NAMED);
    forest(&whiskers, context.floor().0)
}

/// FLOP/s of problems that several variants solve, of few cases.
pub(super) fn side_by_side(context: &Context) -> Option<String> {
    if context.report.judgement.rows.len() > DRAWN {
        return None;
    }
    let bars: Vec<Bar> = context
        .report
        .judgement
        .rows
        .iter()
        .filter_map(|row| {
            let case = row.case.case().ok()?;
            let params: Vec<String> = case
                .params
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            Some(Bar {
                problem: case.problem.to_string(),
                variant: format!("{} {}", case.variant, params.join(" "))
                    .trim()
                    .to_owned(),
                tflops: row.head.as_ref()?.tflops?.0,
            })
        })
        .collect();
    throughput(&bars)
}
