//! Axes: from values to pixels, and the round values that have a label.

use std::ops::Range;

use plotters::coord::ranged1d::Ranged;
use plotters::coord::types::RangedCoordf64;

/// True for a value that can be drawn on a logarithmic axis.
pub(crate) fn is_drawable(value: f64) -> bool {
    (1e-12..1e21).contains(&value)
}

/// An axis from the pixel of its first value to that of its last.
#[derive(Clone)]
pub(super) struct Scale {
    pub values: Range<f64>,
    pub pixels: Range<f64>,
    pub logarithmic: bool,
}

impl Scale {
    /// A logarithmic axis that holds all values, with a little room at its ends.
    pub fn log(values: impl IntoIterator<Item = f64>, pixels: Range<f64>) -> Scale {
        Scale {
            values: log_range(values),
            pixels,
            logarithmic: true,
        }
    }

    /// The pixel of a value, within the axis.
    pub fn at(&self, value: f64) -> f64 {
        let place = |value: f64| if self.logarithmic { value.ln() } else { value };
        let Range { start, end } = self.values;
        let part = (place(value) - place(start)) / (place(end) - place(start));
        let part = if part.is_finite() {
            part.clamp(0.0, 1.0)
        } else {
            0.5
        };
        self.pixels.start + part * (self.pixels.end - self.pixels.start)
    }

    /// About `about` round values within the axis.
    pub fn ticks(&self, about: usize) -> Vec<f64> {
        if self.logarithmic {
            log_ticks(&self.values, about)
        } else {
            RangedCoordf64::from(self.values.clone()).key_points(about)
        }
    }
}

/// A range that holds all values, with a little room at its ends, by logarithms.
fn log_range(values: impl IntoIterator<Item = f64>) -> Range<f64> {
    let values = values.into_iter().filter(|value| is_drawable(*value));
    let (low, high) = values.fold((f64::INFINITY, 0_f64), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    if low > high {
        return 1.0..10.0;
    }
    let room = (high / low).powf(0.04).max(1.02);
    low / room..high * room
}

/// About `about` round values within a range of a logarithmic axis.
fn log_ticks(range: &Range<f64>, about: usize) -> Vec<f64> {
    if range.end / range.start <= 4.0 {
        return RangedCoordf64::from(range.clone()).key_points(about);
    }
    let decades = range.start.log10().floor() as i32..=range.end.log10().ceil() as i32;
    let within = |factors: &[f64]| -> Vec<f64> {
        let decades = decades.clone().map(|decade| 10f64.powi(decade));
        let ticks = decades.flat_map(|decade| factors.iter().map(move |f| f * decade));
        ticks.filter(|tick| range.contains(tick)).collect()
    };
    let fine = within(&[1.0, 2.0, 5.0]);
    if fine.len() <= 2 * about {
        return fine;
    }
    let coarse = within(&[1.0]);
    let every = coarse.len().div_ceil(2 * about).max(1);
    coarse.into_iter().step_by(every).collect()
}

/// A round value in few letters.
pub(super) fn short(value: f64) -> String {
    let value: f64 = format!("{value:.3e}").parse().unwrap_or(value);
    value.to_string()
}

/// Labels of times in nanoseconds, in one unit, with enough digits to distinguish neighbours.
pub(super) fn time_labels(ticks: &[f64]) -> impl Fn(&f64) -> String + use<> {
    let (scale, unit) = match ticks.iter().copied().fold(0.0, f64::max) {
        ns if ns < 1e3 => (1.0, "ns"),
        ns if ns < 1e6 => (1e3, "µs"),
        ns if ns < 1e9 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    let steps = ticks.windows(2).map(|pair| (pair[1] - pair[0]) / scale);
    let digits = steps.map(|step| -(step * 1.0001).log10().floor());
    let digits = digits.fold(0.0, f64::max).min(6.0) as usize;
    move |tick| format!("{:.digits$} {unit}", tick / scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_differ() {
        let labels = |range: Range<f64>| -> Vec<String> {
            let ticks = log_ticks(&range, 4);
            ticks.iter().map(time_labels(&ticks)).collect()
        };
        let narrow = labels(1.02985e6..1.03445e6);
        assert_eq!(narrow, ["1.030 ms", "1.032 ms", "1.034 ms"]);
        let wide = ["1 ms", "2 ms", "5 ms", "10 ms", "20 ms", "50 ms", "100 ms"];
        assert_eq!(labels(log_range([1.04e6, 105.2e6])), wide);
        assert!(log_ticks(&log_range([1e-300, 1e300, f64::NAN]), 5).len() < 50);
        assert!(log_ticks(&log_range([1e-11, 1e20]), 5).len() < 50);
    }
}
