//! The change of each case with its interval, beside the threshold: a forest plot.

use plotters::style::text_anchor::HPos;

use super::paint::{fitted, width};
use super::scale::{Scale, short};
use super::{ASIDE, Figure, LABEL, Letters, NAME, Sheet};
use crate::Report;
use crate::by_axes::by_axes;
use crate::document::Tone;
use crate::summary::SortedRows;
use regatta_core::suite::Metric;
use regatta_judge::judgement::{Judgement, Word};
use regatta_worker::units::{ARROW, Ratio, Share, counted};

/// The largest number of cases in a figure; the worst come first.
const MAX_CASES: usize = 40;

/// A case.
struct ForestRow {
    id: String,
    ratio: f64,
    /// Both ends of its interval, if there are enough invocations for one.
    interval: Option<(f64, f64)>,
    /// The change as it is printed, and its colour.
    change: String,
    ink: &'static str,
    /// `667.5 µs → 780.3 µs`.
    times: String,
}

/// The figure; `None` where no case was compared.
pub(super) fn figure(report: &Report, summary: &SortedRows) -> Option<Figure> {
    let judgement = report.judgement;
    let threshold = report.head.header.rules.policy.threshold;
    let threshold = threshold.0.clamp(0.001, 1.0);
    let rows = summary.places.iter().map(|&place| &judgement.rows[place]);
    let cases = rows.filter_map(|row| {
        let metric = row.metric(Metric::Device)?;
        let change = &metric.change;
        let drawn = |ratio: Ratio| ratio.is_finite().then(|| ratio.0.clamp(1e-3, 1e3));
        Some(ForestRow {
            id: row.case.to_string(),
            ratio: drawn(change.ratio)?,
            interval: change.low.and_then(drawn).zip(change.high.and_then(drawn)),
            change: change.ratio.to_string(),
            ink: match Tone::from_word(metric.change.word) {
                Tone::Bad => "slow",
                Tone::Good => "fast",
                Tone::Doubtful => "doubt",
                Tone::Calm => "base",
            },
            times: metric.from_to(),
        })
    });
    let mut cases: Vec<ForestRow> = cases.collect();
    let all = cases.len();
    cases.truncate(MAX_CASES);
    if cases.is_empty() {
        return None;
    }
    let some = if all > cases.len() {
        format!("; the {} of {all} cases to look at first", cases.len())
    } else {
        String::new()
    };
    let about = format!(
        "Change of {} with its 90 % interval; the band is the threshold, ±{}{some}",
        Metric::Device.text(),
        Share(threshold)
    );
    let title = title(judgement, all, threshold);
    Some(Figure::new("forest", title, about, move |wide| {
        draw(&cases, threshold, wide)
    }))
}

/// The title: the result of the comparison.
fn title(judgement: &Judgement, all: usize, threshold: f64) -> String {
    let rows = judgement.rows.iter();
    let devices = rows.filter_map(|row| row.metric(Metric::Device));
    let of_word = |word| {
        let devices = devices.clone();
        devices.filter(move |metric| metric.change.word == word)
    };
    let (slower, faster) = (of_word(Word::Regressed), of_word(Word::Improved));
    let most = |ratios: &mut dyn Iterator<Item = f64>| {
        let largest = ratios.max_by(|a, b| a.ln().abs().total_cmp(&b.ln().abs()));
        largest.map(|ratio| Ratio(ratio).in_words())
    };
    let slowest = most(&mut slower.clone().map(|metric| metric.change.ratio.0));
    let fastest = most(&mut faster.clone().map(|metric| metric.change.ratio.0));
    let described = by_axes(judgement);
    let described = described.trim_end_matches('.');
    let cases = counted(all, "case");
    let counted = |number: usize, most: &str| match number {
        1 => format!("1 of {cases} is {most}"),
        number => format!("{number} of {cases} are up to {most}"),
    };
    match (slowest, fastest, of_word(Word::Inconclusive).count()) {
        (Some(_), ..) if described.contains("slower") => described.to_owned(),
        (Some(most), ..) => counted(slower.count(), &most),
        (None, Some(_), _) if described.contains("faster") => described.to_owned(),
        (_, Some(most), _) => counted(faster.count(), &most),
        // Some may be faster, since an improvement is only shown at its own error.
        (.., 0) => format!("No case of {all} is slower by {}", Share(threshold)),
        (.., open) => format!("{open} of {cases} may have changed"),
    }
}

fn draw(cases: &[ForestRow], threshold: f64, wide: f64) -> Sheet {
    let mut sheet = Sheet::default();
    let narrow = wide < 600.0;
    let widest = |read: &dyn Fn(&ForestRow) -> (&str, f64)| {
        let widths = cases.iter().map(|case| {
            let (text, size) = read(case);
            width(text, size, true)
        });
        widths.fold(0.0, f64::max)
    };
    let change = widest(&|case| (&case.change, 12.0)) + 14.0;
    let times = if narrow {
        0.0
    } else {
        widest(&|case| (&case.times, 12.0)) + 14.0
    };
    let names = if narrow {
        0.0
    } else {
        (widest(&|case| (&case.id, 12.0)) + 16.0).min(0.45 * wide)
    };
    // On a phone, an id has its own line.
    let (row, lower) = if narrow { (42.0, 13.0) } else { (26.0, 0.0) };
    let (top, bottom) = (22.0, 22.0 + row * cases.len() as f64);
    let ends = cases.iter().filter_map(|case| case.interval);
    let ends = ends.flat_map(|(low, high)| [low, high]);
    let band = [1.0 / (1.0 + threshold), 1.0 + threshold];
    let ratios = cases.iter().map(|case| case.ratio);
    let values = ends.chain(ratios).chain(band.map(|end| end.powf(1.6)));
    let (low, high) = values.fold((1_f64, 1_f64), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    let room = (high / low).powf(0.03);
    let scale = Scale {
        values: low / room..high * room,
        pixels: names + 6.0..wide - change - times,
        logarithmic: true,
    };
    let [left, right] = band.map(|end| scale.at(end));
    sheet.area((left, top), (right, bottom), 1.0, "band");
    let middle = scale.at(1.0);
    let factors = high / low > 4.0;
    let label = |tick: f64| match factors {
        true if tick >= 1.0 => format!("{}x", short(tick)),
        true => format!("1/{}", short(1.0 / tick)),
        false if tick == 1.0 => "0 %".to_owned(),
        false => format!("{:+} %", (1000.0 * (tick - 1.0)).round() / 10.0),
    };
    let mut last = f64::NEG_INFINITY;
    for tick in scale.ticks(if narrow { 4 } else { 6 }) {
        let (x, text) = (scale.at(tick), label(tick));
        sheet.line([(x, top), (x, bottom)], 1.0, "line");
        let half = width(&text, 11.0, false) / 2.0;
        if x - half > last {
            last = x + half + 8.0;
            sheet.text((x, bottom + 14.0), text, LABEL, HPos::Center);
        }
    }
    sheet.line([(middle, top), (middle, bottom)], 1.5, "muted");
    let head = format!("base {ARROW} head");
    if !narrow {
        sheet.text((wide, top - 10.0), &head, LABEL, HPos::Right);
    }
    // A middle at an end of the plot has no case on that side of it.
    let end = if narrow {
        wide
    } else {
        wide - width(&head, 11.0, false)
    };
    for (word, anchor, side) in [
        ("← faster", HPos::Right, -1.0),
        ("slower →", HPos::Left, 1.0),
    ] {
        let far = middle + side * (8.0 + width(word, 11.0, false));
        if (0.0..=end).contains(&far) {
            sheet.text((middle + 8.0 * side, top - 10.0), word, LABEL, anchor);
        }
    }
    for (place, case) in cases.iter().enumerate() {
        let upper = top + row * place as f64;
        let y = upper + (row + lower) / 2.0;
        if narrow {
            // A blank area keeps lines of the plot from crossing a name.
            sheet.area((0.0, upper + 3.0), (wide, upper + 21.0), 1.0, "page");
        }
        let changed = matches!(case.ink, "slow" | "fast");
        let at = (0.0, if narrow { upper + 12.0 } else { y });
        let room = if narrow { wide } else { names - 10.0 };
        sheet.text(at, fitted(&case.id, 12.0, room), NAME, HPos::Left);
        if let Some((low, high)) = case.interval {
            let from = scale.at(low);
            let to = scale.at(high).max(from + 1.0);
            sheet.line([(from, y), (to, y)], 2.5, case.ink);
        }
        let tip = format!("{}: {} {}", case.id, case.times, case.change);
        if changed {
            sheet.diamond((scale.at(case.ratio), y), 5.5, case.ink, tip);
        } else {
            sheet.dot((scale.at(case.ratio), y), 3.5, case.ink, tip);
        }
        let ink = if changed { case.ink } else { "text" };
        let end = (wide - times, y);
        sheet.text(end, &case.change, Letters(12.0, ink, changed), HPos::Right);
        if !narrow {
            sheet.text((wide, y), &case.times, ASIDE, HPos::Right);
        }
    }
    sheet.height = bottom + 26.0;
    sheet
}
