//! Times along the longest axis, their ratios to the fastest variant, and rates under a roof.

use std::collections::BTreeMap;

use super::line_plot::PlotLineKind;
use super::slice::{Slice, variant};
use super::{AxisUnit, Figure, LinePlot, PlotLine};
use crate::Report;
use crate::device::{intensity, reached};
use regatta_judge::judgement::Row;
use regatta_worker::joined::Joined;
use regatta_worker::units::{Nanoseconds, Rate, Ratio, Share};

/// The colours of lines; further lines are muted.
const INKS: [&str; 8] = ["k0", "k1", "k2", "k3", "k4", "k5", "k6", "auto"];

/// The largest number of lines in a figure.
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
    // The bits of positive floats sort like the numbers.
    all.into_values().collect()
}

/// The plot of a slice without lines: its labels are the values of the axis.
fn plot(slice: &Slice, fastest: &[(f64, &str, f64)], unit: AxisUnit) -> LinePlot {
    let labels = fastest.iter().map(|(at, ..)| (*at, at.to_string()));
    LinePlot {
        across: slice.axis.clone(),
        labels: labels.collect(),
        logarithmic: true,
        unit,
        tall: 380.0,
        ..LinePlot::default()
    }
}

/// A sentence's beginning and the other axes: `Device time against seq; head_dim 128, causal`.
fn about(slice: &Slice, quantity: &str) -> String {
    let parts = [&format!("{quantity} against {}", slice.axis), &slice.others];
    parts
        .into_iter()
        .filter(|part| !part.is_empty())
        .joined("; ")
}

/// The time of each variant along the axis, the base's dashed.
pub(super) fn times(slice: &Slice) -> Option<Figure> {
    let fastest = fastest(slice);
    let (last, best, time) = *fastest.last()?;
    let back = fastest.iter().rev();
    let since = back.take_while(|(_, name, _)| *name == best).last()?;
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
            let point = |(at, row): &(f64, &Row)| Some((*at, read(row)?, row.case.to_string()));
            PlotLine {
                name: String::new(),
                ink: colour(place),
                points: points.iter().filter_map(point).collect(),
                kind,
            }
        };
        let base = |row: &Row| Some(row.base.as_ref()?.median_ns.0);
        let base = line(PlotLineKind::Dashed, &base);
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

/// The rate of each case against its operations per byte, under the measured roof.
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
        let case = row.case.case();
        let dtype = case.map_or(String::new(), |case| case.facet("dtype"));
        let roof = (1e12 * tflops, 1e9 * gbps, dtype);
        if !roofs.contains(&roof) {
            roofs.push(roof);
        }
        let share = rate.0 / tflops;
        if best.is_none_or(|(most, _)| share > most) {
            best = Some((share, row));
        }
        let place = lines.len();
        let line = lines.entry(variant(row));
        let line = line.or_insert_with_key(|name| PlotLine {
            name: (*name).to_owned(),
            ink: colour(place),
            points: Vec::new(),
            kind: PlotLineKind::Apart,
        });
        let across = intensity(row, &header.operators);
        let point = (across, 1e12 * rate.0, row.case.to_string());
        line.points.push(point);
    }
    let (share, fullest) = best?;
    let points = lines.values().flat_map(|line| &line.points);
    let (low, high) = points.fold((f64::INFINITY, 0_f64), |(low, high), (at, ..)| {
        (low.min(*at), high.max(*at))
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
    let (share, case) = (Share(share), &fullest.case);
    let title = format!("{case} reaches {share} of the measured peak");
    let roof = crate::html::roof(header);
    let about =
        format!("Rate against work for each byte; the roof is what this device reached: {roof}");
    Some(plot.figure("roofline", title, about))
}
