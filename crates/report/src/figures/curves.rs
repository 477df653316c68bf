//! Times along the longest axis, their ratios to the fastest variant, and rates under a roof.

use std::collections::BTreeMap;

use super::line_plot::PlotLineKind;
use super::slice::{Slice, variant};
use super::{AxisUnit, Figure, LinePlot, PlotLine};
use crate::Report;
use crate::device::{intensity, reached};
use regatta_judge::judgement::Row;
use regatta_worker::units::{Nanoseconds, Rate, Ratio, Share};

/// Colours of lines; those beyond are muted.
const INKS: [&str; 8] = ["k0", "k1", "k2", "k3", "k4", "k5", "k6", "auto"];

/// Lines of a figure at the most.
const MAX_LINES: usize = 12;

fn colour(place: usize) -> &'static str {
    INKS.get(place).copied().unwrap_or("muted")
}

fn head(row: &Row) -> f64 {
    row.head.as_ref().map_or(f64::NAN, |head| head.median_ns.0)
}

/// The fastest variant at each value of the axis, with its time.
fn fastest<'a>(slice: &Slice<'a>) -> Vec<(f64, &'a str, f64)> {
    let mut all: BTreeMap<u64, (f64, &str, f64)> = BTreeMap::new();
    for (name, points) in &slice.lines {
        for (at, row) in points {
            let best = all
                .entry(at.to_bits())
                .or_insert((*at, name, f64::INFINITY));
            if head(row) < best.2 {
                *best = (*at, name, head(row));
            }
        }
    }
    // Bits of positive numbers are in their order.
    all.into_values().collect()
}

/// The plot of a slice: the values that are its labels, and no line yet.
fn plot(slice: &Slice, fastest: &[(f64, &str, f64)], unit: AxisUnit) -> LinePlot {
    LinePlot {
        across: slice.axis.clone(),
        labels: fastest
            .iter()
            .map(|(at, ..)| (*at, at.to_string()))
            .collect(),
        logarithmic: true,
        unit,
        tall: 380.0,
        ..LinePlot::default()
    }
}

/// A sentence's beginning and the other axes: `Device time against seq; head_dim 128, causal`.
fn about(slice: &Slice, quantity: &str) -> String {
    let others = if slice.others.is_empty() {
        String::new()
    } else {
        format!("; {}", slice.others)
    };
    format!("{quantity} against {}{others}", slice.axis)
}

/// The time of each variant along the axis, the base's dashed.
pub(super) fn times(slice: &Slice) -> Option<Figure> {
    let fastest = fastest(slice);
    let (last, best, time) = *fastest.last()?;
    let since = fastest
        .iter()
        .rev()
        .take_while(|(_, name, _)| *name == best)
        .last()?;
    let axis = &slice.axis;
    let title = match slice.lines.len() {
        1 => format!("{best} takes {} at {axis} {last}", Nanoseconds(time)),
        _ if since.0 == fastest[0].0 => format!("{best} is fastest at every {axis}"),
        _ if since.0 == last => format!("{best} is fastest at {axis} {last}"),
        _ => format!("{best} is fastest from {axis} {} on", since.0),
    };
    let mut plot = plot(slice, &fastest, AxisUnit::Time);
    let mut compared = "";
    for (place, (name, points)) in slice.lines.iter().take(MAX_LINES).enumerate() {
        let line = |kind, read: &dyn Fn(&Row) -> Option<f64>| {
            let points = points.iter();
            let points =
                points.filter_map(|(at, row)| Some((*at, read(row)?, row.case.to_string())));
            PlotLine {
                name: String::new(),
                ink: colour(place),
                points: points.collect(),
                kind,
            }
        };
        let base = line(PlotLineKind::Dashed, &|row| {
            Some(row.base.as_ref()?.median_ns.0)
        });
        if !base.points.is_empty() {
            compared = ", the base dashed";
            plot.lines.push(base);
        }
        plot.lines.push(PlotLine {
            name: (*name).to_owned(),
            ..line(PlotLineKind::Dotted, &|row| Some(head(row)))
        });
    }
    let about = about(slice, "Time of a call") + compared;
    Some(plot.figure("curves", title, about))
}

/// The time of each variant over that of the variant that is fastest at the end of the axis.
pub(super) fn ratios(slice: &Slice) -> Option<Figure> {
    let fastest = fastest(slice);
    let (last, best, _) = *fastest.last()?;
    let reference = &slice.lines[best];
    let mut plot = plot(slice, &fastest, AxisUnit::Factor);
    let mut at_last: Vec<(f64, &str)> = Vec::new();
    for (place, (name, points)) in slice.lines.iter().take(MAX_LINES).enumerate() {
        let points = points.iter().filter_map(|(at, row)| {
            let (_, other) = reference.iter().find(|(value, _)| value == at)?;
            let ratio = head(row) / head(other);
            if *at == last && *name != best {
                at_last.push((ratio, name));
            }
            Some((*at, ratio, row.case.to_string()))
        });
        plot.lines.push(PlotLine {
            name: (*name).to_owned(),
            ink: colour(place),
            points: points.collect(),
            kind: PlotLineKind::Dotted,
        });
    }
    at_last.sort_by(|a, b| a.0.total_cmp(&b.0));
    let times = |(ratio, name): &(f64, &str)| (name.to_string(), Ratio(*ratio).factor());
    let (first, factor) = times(at_last.first()?);
    let (slowest, most) = times(at_last.last()?);
    let others = if at_last.len() > 1 {
        format!(", {slowest} {most}")
    } else {
        String::new()
    };
    let title = format!(
        "At {} {last} {first} takes {factor} as long as {best}{others}",
        slice.axis
    );
    let about = about(slice, &format!("Time over that of {best}"));
    Some(plot.figure("ratio", title, about))
}

/// The rate of each case against its operations for each byte, under the roof that was measured.
pub(super) fn roofline(report: &Report) -> Option<Figure> {
    let header = &report.head.header;
    let mut lines: BTreeMap<&str, PlotLine> = BTreeMap::new();
    let mut roofs: Vec<(f64, f64, String)> = Vec::new();
    let mut best: Option<(f64, &Row)> = None;
    for row in &report.judgement.rows {
        let Some(((tflops, gbps), rate)) = reached(header, &row.case)
            .and_then(|peak| Some((peak.tflops?.0, peak.gbps?)))
            .zip(row.head.as_ref().and_then(|head| head.tflops))
        else {
            continue;
        };
        let dtype = row
            .case
            .case()
            .map_or(String::new(), |case| case.facet("dtype"));
        let roof = (1e12 * tflops, 1e9 * gbps, dtype);
        if !roofs.contains(&roof) {
            roofs.push(roof);
        }
        let share = rate.0 / tflops;
        if best.is_none_or(|(most, _)| share > most) {
            best = Some((share, row));
        }
        let place = lines.len();
        let line = lines
            .entry(variant(row))
            .or_insert_with_key(|name| PlotLine {
                name: (*name).to_owned(),
                ink: colour(place),
                points: Vec::new(),
                kind: PlotLineKind::Apart,
            });
        let across = intensity(row, &header.operators);
        line.points
            .push((across, 1e12 * rate.0, row.case.to_string()));
    }
    let (share, fullest) = best?;
    let points = || {
        lines
            .values()
            .flat_map(|line| &line.points)
            .map(|(at, ..)| *at)
    };
    let (low, high) = points().fold((f64::INFINITY, 0_f64), |(low, high), at| {
        (low.min(at), high.max(at))
    });
    let mut plot = LinePlot {
        across: "FLOP for each byte that any implementation must move".to_owned(),
        logarithmic: true,
        unit: AxisUnit::Flops,
        tall: 420.0,
        ..LinePlot::default()
    };
    for (flops, bytes, dtype) in &roofs {
        let corner = flops / bytes;
        let ends = [low.min(corner) / 2.0, corner, high.max(corner) * 1.5];
        let points = ends.map(|at| (at, flops.min(bytes * at), String::new()));
        plot.lines.push(PlotLine {
            name: format!("{dtype} roof: {}FLOP/s", Rate(flops / 1e12)),
            ink: "muted",
            points: points.into(),
            kind: PlotLineKind::Bare,
        });
    }
    plot.lines.extend(lines.into_values().take(MAX_LINES));
    let title = format!(
        "{} reaches {} of the measured peak",
        fullest.case,
        Share(share)
    );
    let about = format!(
        "Rate against work for each byte; the roof is what this device reached: {}",
        crate::html::roof(header)
    );
    Some(plot.figure("roofline", title, about))
}
