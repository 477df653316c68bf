//! Criterion's clock, replaced: nanoseconds that the device worked.

use criterion::Throughput;
use criterion::measurement::{Measurement, ValueFormatter};
use regatta::units::Nanoseconds;

/// Device time, summed over the calls of a sample. A worker reads it,
/// so a benchmark hands it over with `iter_custom`.
#[derive(Clone, Copy, Debug)]
pub struct DeviceTime;

impl Measurement for DeviceTime {
    type Intermediate = ();
    type Value = Nanoseconds;

    fn start(&self) {}

    fn end(&self, (): ()) -> Nanoseconds {
        unreachable!("the clock is the worker's: use iter_custom")
    }

    fn add(&self, a: &Nanoseconds, b: &Nanoseconds) -> Nanoseconds {
        *a + *b
    }

    fn zero(&self) -> Nanoseconds {
        Nanoseconds::ZERO
    }

    fn to_f64(&self, time: &Nanoseconds) -> f64 {
        time.0
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        &Readable
    }
}

/// Shows nanoseconds in a readable unit, and FLOPs over them as a rate.
struct Readable;

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

impl ValueFormatter for Readable {
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
