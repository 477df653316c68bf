//! Criterion's clock, replaced: nanoseconds that the device worked.

use criterion::Throughput;
use criterion::measurement::{Measurement, ValueFormatter};

/// Device time in nanoseconds, summed over the calls of a sample. A worker reads it,
/// so a benchmark hands it over with `iter_custom`.
#[derive(Clone, Copy, Debug)]
pub struct DeviceTime;

impl Measurement for DeviceTime {
    type Intermediate = ();
    type Value = f64;

    fn start(&self) {}

    fn end(&self, (): ()) -> f64 {
        unreachable!("the clock is the worker's: use iter_custom")
    }

    fn add(&self, a: &f64, b: &f64) -> f64 {
        a + b
    }

    fn zero(&self) -> f64 {
        0.0
    }

    fn to_f64(&self, value: &f64) -> f64 {
        *value
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        &Nanoseconds
    }
}

/// Shows nanoseconds in a readable unit, and FLOPs over them as a rate.
struct Nanoseconds;

/// The unit for a value: the largest of which it is at least one.
fn unit(value: f64, units: &[(f64, &'static str)]) -> (f64, &'static str) {
    let fits = units.iter().rev().find(|(one, _)| value >= *one);
    *fits.unwrap_or(&units[0])
}

const TIMES: [(f64, &str); 4] = [(1.0, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")];
const RATES: [(f64, &str); 4] = [
    (1.0, "FLOP/s"),
    (1e6, "MFLOP/s"),
    (1e9, "GFLOP/s"),
    (1e12, "TFLOP/s"),
];

impl ValueFormatter for Nanoseconds {
    fn scale_values(&self, typical: f64, values: &mut [f64]) -> &'static str {
        let (one, name) = unit(typical, &TIMES);
        for value in values {
            *value /= one;
        }
        name
    }

    fn scale_throughputs(
        &self,
        typical: f64,
        throughput: &Throughput,
        values: &mut [f64],
    ) -> &'static str {
        // Only FLOPs are ever given here; they travel as criterion's "elements".
        let flops = match throughput {
            Throughput::Elements(flops) => *flops as f64,
            _ => 0.0,
        };
        let rate = |ns: f64| flops / (ns * 1e-9);
        let (one, name) = unit(rate(typical), &RATES);
        for value in values {
            *value = rate(*value) / one;
        }
        name
    }

    fn scale_for_machines(&self, _values: &mut [f64]) -> &'static str {
        "ns"
    }
}
