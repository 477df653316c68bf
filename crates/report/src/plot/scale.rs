//! From values to pixels, and where the ticks go.

/// An axis from values to pixels, linear or logarithmic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    start: i32,
    end: i32,
    log: bool,
}

impl Scale {
    /// A logarithmic axis that holds all positive finite values, with a little room at its ends.
    pub(super) fn log(values: impl IntoIterator<Item = f64>, start: i32, end: i32) -> Scale {
        let positive = |v: &f64| v.is_finite() && *v > 0.0;
        let (low, high) = extent(values.into_iter().filter(positive).map(f64::ln));
        let room = match high - low {
            0.0 => 0.1,
            range => 0.06 * range,
        };
        Scale {
            low: (low - room).exp(),
            high: (high + room).exp(),
            start,
            end,
            log: true,
        }
    }

    /// An axis with exactly these ends.
    pub(super) fn linear_between(low: f64, high: f64, start: i32, end: i32) -> Scale {
        Scale {
            low,
            high,
            start,
            end,
            log: false,
        }
    }

    /// An axis with exactly these ends, by logarithms.
    pub(super) fn log_between(low: f64, high: f64, start: i32, end: i32) -> Scale {
        Scale {
            low,
            high,
            start,
            end,
            log: true,
        }
    }

    /// True when the value lies on the axis.
    pub(super) fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// How far along the axis a value lies, from 0 to 1; the nearer end for one beyond it.
    pub(super) fn share(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.ln() - self.low.ln()) / (self.high.ln() - self.low.ln())
        } else {
            (value - self.low) / (self.high - self.low)
        };
        match share.is_finite() {
            true => share.clamp(0.0, 1.0),
            false => 0.0,
        }
    }

    /// The pixel of a value; the nearer end for one beyond the axis.
    pub(super) fn at(&self, value: f64) -> i32 {
        let share = self.share(value);
        let pixels = f64::from(self.end - self.start);
        self.start + (share * pixels).round() as i32
    }

    /// Round values on the axis, about as many as asked for.
    pub(super) fn ticks(&self, about: usize) -> Vec<f64> {
        if self.log && self.high / self.low > 4.0 {
            self.log_ticks(about)
        } else {
            self.linear_ticks(about)
        }
    }

    fn linear_ticks(&self, about: usize) -> Vec<f64> {
        let rough = (self.high - self.low) / about.max(1) as f64;
        let power = 10f64.powf(rough.log10().floor());
        if !power.is_finite() || power <= 0.0 {
            return Vec::new();
        }
        let step = [1.0, 2.0, 5.0, 10.0]
            .map(|factor| factor * power)
            .into_iter()
            .find(|step| *step >= rough)
            .unwrap_or(power);
        let first = (self.low / step).ceil();
        (0..=2 * about)
            .map(|i| (first + i as f64) * step)
            .take_while(|value| *value <= self.high)
            .collect()
    }

    fn log_ticks(&self, about: usize) -> Vec<f64> {
        // An end beyond what a float holds must not become two billion decades.
        let decade = |end: f64| end.log10().clamp(-300.0, 300.0);
        let decades = decade(self.low).floor() as i32..=decade(self.high).ceil() as i32;
        let within = |factors: &[f64]| -> Vec<f64> {
            decades
                .clone()
                .flat_map(|decade| factors.iter().map(move |f| f * 10f64.powi(decade)))
                .filter(|value| self.holds(*value))
                .collect()
        };
        let fine = within(&[1.0, 2.0, 5.0]);
        if fine.len() <= 2 * about {
            return fine;
        }
        let coarse = within(&[1.0]);
        let every = coarse.len().div_ceil(2 * about.max(1)).max(1);
        coarse.into_iter().step_by(every).collect()
    }
}

/// The smallest and the largest value; 0 and 1 when there is none.
fn extent(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| {
        (low.min(v), high.max(v))
    });
    if low <= high { (low, high) } else { (0.0, 1.0) }
}

/// Labels of times in nanoseconds: one unit, and as many digits as keep
/// neighbours apart.
pub(super) fn time_labels(ticks: &[f64]) -> Vec<String> {
    let largest = ticks.iter().copied().fold(0.0, f64::max);
    let (scale, unit) = match largest {
        ns if ns < 1e3 => (1.0, "ns"),
        ns if ns < 1e6 => (1e3, "µs"),
        ns if ns < 1e9 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    let step = ticks
        .windows(2)
        .map(|pair| (pair[1] - pair[0]) / scale)
        .fold(f64::INFINITY, f64::min);
    let digits = if step.is_finite() && step > 0.0 {
        (-(step * 1.0001).log10().floor()).clamp(0.0, 6.0) as usize
    } else {
        1
    };
    ticks
        .iter()
        .map(|tick| format!("{:.digits$} {unit}", tick / scale))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ticks_are_round_and_told_apart() {
        let scale = Scale::linear_between(1.02985e6, 1.03445e6, 0, 100);
        assert_eq!(
            time_labels(&scale.ticks(4)),
            ["1.030 ms", "1.032 ms", "1.034 ms"]
        );
        let scale = Scale::log([1.04e6, 105.2e6], 0, 100);
        assert_eq!(
            time_labels(&scale.ticks(4)),
            ["1 ms", "2 ms", "5 ms", "10 ms", "20 ms", "50 ms", "100 ms"]
        );
    }

    proptest! {
        #[test]
        fn any_values_land_on_the_axis(
            values in prop::collection::vec(prop::num::f64::ANY, 0..6),
            other in prop::num::f64::ANY,
        ) {
            for scale in [Scale::linear_between(0.0, 1e9, 10, 90), Scale::log(values.clone(), 10, 90)] {
                for value in values.iter().chain([&other]) {
                    prop_assert!((10..=90).contains(&scale.at(*value)));
                }
                prop_assert!(scale.ticks(5).len() < 50);
                time_labels(&scale.ticks(5));
            }
        }
    }
}
