//! Every case, in columns.

use owo_colors::Style;

use super::screen::Screen;
use crate::judge::judgement::{Row, Timing, Word};
use crate::report::text::one_line;

/// Every case of a run without a base, in a line each where its id leaves room.
pub(super) fn table_alone(screen: &mut Screen, rows: &[Row]) {
    const ID: usize = 50;
    screen.heading("Every case", rows.len(), Style::new().bold());
    for row in rows {
        let figures = match &row.head {
            Some(timing) => format!("{:>10}  {:>15}", timing.median_ns, rate(timing)),
            None => format!("{:>10}", row.word.text()),
        };
        let id = one_line(&row.case.0);
        if id.len() <= ID {
            screen.line(format!("  {id:ID$}{figures}").trim_end());
        } else {
            screen.case(2, &row.case.0);
            screen.line(format!("  {:ID$}{figures}", "").trim_end());
        }
    }
}

/// Every case in two lines: its id, then its figures in columns.
pub(super) fn table(screen: &mut Screen, rows: &[Row]) {
    screen.heading("Every case", rows.len(), Style::new().bold());
    for row in rows {
        screen.case(2, &row.case.0);
        let style = match row.word {
            Word::Regressed => Style::new().red(),
            Word::Improved => Style::new().green(),
            Word::NotMeasured | Word::Inconclusive => Style::new().yellow(),
            _ => Style::new(),
        };
        // Padded outside the paint: colour must not add spaces.
        let word = row.word.text();
        let padding = " ".repeat(13usize.saturating_sub(word.len()));
        let word = screen.paint(word, style);
        let time = |timing: &Option<Timing>| {
            let timing = timing.as_ref();
            timing.map_or(String::new(), |timing| timing.median_ns.to_string())
        };
        let figures = format!(
            "{:>10}  {:>10}  {:>14}  {:>8}",
            time(&row.base),
            time(&row.head),
            row.times_ratio()
                .map_or(String::new(), |ratio| ratio.to_string()),
            row.head.as_ref().map_or(String::new(), rate),
        );
        screen.line(format!("    {word}{padding}{figures}").trim_end());
    }
}

/// `193.4 GFLOP/s`, where a call has a rate.
fn rate(timing: &Timing) -> String {
    let rate = timing.tflops;
    rate.map_or_else(String::new, |rate| format!("{rate}FLOP/s"))
}
