//! The metrics by which a case is compared, as one table.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use crate::record::{Measurement, is_time, median};
use regatta_worker::protocol::Measured;
use regatta_worker::units::{Bytes, Nanoseconds, Share, numbers};
use regatta_worker::words;

words! {
    "metric",
    /// A quantity that is compared. [`Metric::ALL`] is the only list of them: run file, judge, tables
    /// and schema go through it, in the order in which tables show them.
    #[derive(
        Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
    )]
    #[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
    #[serde(rename_all = "snake_case")]
    pub enum Metric {
        /// Device time of a call: the median of an invocation's samples.
        #[default]
        Device = "device",
        /// The 9th of 10 of these samples in order, or the largest of 5 to 9: the time of a slow
        /// call.
        DeviceP90 = "device_p90",
        /// Host time to issue the call.
        Host = "host",
        /// Time of the reference operation that host time is divided by: load that slows every
        /// operation of a framework slows this one as well.
        HostReference = "host_reference",
        /// Time of the first call of a process, with all one-time work.
        FirstCall = "first_call",
        /// Peak memory in use: of a GPU, or of a worker's process on a CPU.
        PeakMemory = "peak_memory",
        /// CPU time of a call, summed over all threads, for a worker on the CPU.
        CpuTime = "cpu_time",
    }
}

/// The properties of a metric.
struct MetricInfo {
    /// The name for people.
    text: &'static str,
    /// The clock of the time, to end a sentence; empty for the device, which is usual.
    ending: &'static str,
    /// The smallest relative change that counts, as a multiple of the threshold of device time; a
    /// metric that varies in another way has one of its own ([`MetricInfo::own`]).
    of_device: f64,
    /// A lower bound of the smallest relative change that counts.
    own: f64,
    /// The smallest absolute change that counts, in nanoseconds or bytes, because a share of a tiny
    /// value means nothing.
    least: f64,
    /// The value of an invocation's samples.
    reduced: fn(&Measurement) -> Option<f64>,
}

/// The table of metrics, in the order of [`Metric`]. A new metric is a row here, and a list of
/// samples from which it is computed.
///
/// - *Slow tenth*: the 9th of 10 samples varies several times more than their median.
/// - *Host*: it varies between processes by 8 % with a reference operation, and by 40 % without. So
///   does the reference operation itself, for which only a doubling counts.
/// - *First call*: it depends on caches that no run controls, compiled kernels above all.
#[rustfmt::skip]
const INFO: [MetricInfo; 7] = [
    MetricInfo { text: "device time", ending: "", of_device: 1.0, own: 0.0, least: 0.0, reduced: |measurement| median(&measurement.samples.device_ns).map(number) },
    MetricInfo { text: "slow tenth", ending: " in its slow tenth", of_device: 3.0, own: 0.10, least: 2e3, reduced: |measurement| ninth_of_ten(&measurement.samples.device_ns) },
    MetricInfo { text: "host time", ending: " on the host", of_device: 0.0, own: 0.20, least: 10e3, reduced: |measurement| median(&measurement.samples.host_ns).map(number) },
    MetricInfo { text: "reference operation", ending: " in its reference operation", of_device: 0.0, own: 1.0, least: 10e3, reduced: |measurement| median(&measurement.samples.host_reference_ns).map(number) },
    MetricInfo { text: "first call", ending: " in its first call", of_device: 0.0, own: 1.0, least: 50e6, reduced: |measurement| Some(measurement.first_call_ns.0) },
    MetricInfo { text: "peak memory", ending: " of memory", of_device: 0.0, own: 0.10, least: 16.0 * 1024.0 * 1024.0, reduced: |measurement| Some((measurement.samples.peak_bytes?.0 as f64).max(1.0)) },
    MetricInfo { text: "CPU time", ending: " of CPU time", of_device: 1.0, own: 0.05, least: 10e3, reduced: |measurement| median(&measurement.samples.cpu_ns).map(number) },
];

impl Metric {
    fn info(self) -> &'static MetricInfo {
        &INFO[self as usize]
    }

    /// The name for readers.
    pub fn text(self) -> &'static str {
        self.info().text
    }

    /// The smallest relative change that counts, from `device`, that of the device time.
    pub fn threshold(self, device: Share) -> Share {
        let info = self.info();
        Share(info.own.max(info.of_device * device.0))
    }

    /// The smallest absolute change that counts, in nanoseconds or bytes.
    pub fn least_change(self) -> f64 {
        self.info().least
    }

    /// A value with its unit.
    pub fn value(self, value: f64) -> String {
        match self {
            Metric::PeakMemory => Bytes(value as u64).to_string(),
            _ => Nanoseconds(value).to_string(),
        }
    }

    /// The clock of the time, to end a sentence; empty for the device, which is usual.
    pub fn where_timed(self) -> &'static str {
        self.info().ending
    }

    /// True for a wall-clock time, which other programs on the same cores lengthen.
    pub fn is_wall_time(self) -> bool {
        matches!(self, Metric::Device | Metric::DeviceP90 | Metric::Host)
    }
}

/// The value of each metric in one invocation; a metric may have none.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schemas", schemars(with = "BTreeMap<Metric, f64>"))]
#[serde(into = "BTreeMap<Metric, f64>")]
pub struct Values {
    /// NaN stands for a missing value, because a run may have millions of these.
    by_metric: [f64; Metric::ALL.len()],
}

impl Values {
    /// Reduces an invocation's samples to one value for each metric; values that no clock can show
    /// are left out.
    pub fn reduced(measurement: &Measurement) -> Values {
        let mut values = Values::default();
        for metric in Metric::ALL {
            let value = (metric.info().reduced)(measurement);
            values.set(metric, value.filter(|value| is_time(Nanoseconds(*value))));
        }
        values
    }

    /// The value of a metric.
    #[inline]
    pub fn get(&self, metric: Metric) -> Option<f64> {
        Some(self.by_metric[metric as usize]).filter(|value| !value.is_nan())
    }

    /// Sets the value of a metric, or removes it.
    pub fn set(&mut self, metric: Metric, value: Option<f64>) {
        self.by_metric[metric as usize] = value.unwrap_or(f64::NAN);
    }
}

impl Default for Values {
    fn default() -> Values {
        let by_metric = [f64::NAN; Metric::ALL.len()];
        Values { by_metric }
    }
}

impl PartialEq for Values {
    fn eq(&self, other: &Values) -> bool {
        let mut metrics = Metric::ALL.into_iter();
        metrics.all(|metric| self.get(metric) == other.get(metric))
    }
}

impl<'de> Visitor<'de> for Values {
    type Value = Values;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("values by metric")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Values, A::Error> {
        while let Some((metric, value)) = map.next_entry()? {
            self.set(metric, Some(value));
        }
        Ok(self)
    }
}

impl<'de> Deserialize<'de> for Values {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Values, D::Error> {
        deserializer.deserialize_map(Values::default())
    }
}

impl From<Values> for BTreeMap<Metric, f64> {
    fn from(values: Values) -> BTreeMap<Metric, f64> {
        let known = Metric::ALL.into_iter();
        known
            .filter_map(|metric| Some((metric, values.get(metric)?)))
            .collect()
    }
}

/// The ratio of a head's samples to a base's that were taken in turns of `turn` samples: the median
/// of the Walsh averages of the logarithms of the turns' ratios. `None` for a metric that has no
/// sample for each call, or with fewer than two turns.
pub fn ratio_in_turns(metric: Metric, base: &Measured, head: &Measured, turn: u32) -> Option<f64> {
    let figures = |of: &Measured| match metric {
        Metric::Device => numbers(&of.device_ns),
        Metric::CpuTime => numbers(&of.cpu_ns),
        Metric::Host => host_ratios(of),
        _ => Vec::new(),
    };
    let logs = turn_ratios(&figures(base), &figures(head), turn);
    let middle = median(&walsh_averages(&logs)).filter(|_| logs.len() > 1);
    middle.map(f64::exp)
}

/// The Walsh averages: the means of every two values, and of each with itself. Their median is the
/// estimate of Hodges and Lehmann (Annals of Mathematical Statistics 34, 1963).
pub fn walsh_averages(values: &[f64]) -> Vec<f64> {
    let means = (0..values.len()).flat_map(|at| {
        let first = values[at];
        let rest = values[at..].iter();
        rest.map(move |second| (first + second) / 2.0)
    });
    means.collect()
}

/// For each turn that both sides have, the logarithm of the ratio of its means.
pub fn turn_ratios(base: &[f64], head: &[f64], turn: u32) -> Vec<f64> {
    let turn = turn.max(1) as usize;
    let mean = |samples: &[f64]| samples.iter().sum::<f64>() / samples.len() as f64;
    let turns = base.chunks_exact(turn).zip(head.chunks_exact(turn));
    let logs = turns.map(|(base, head)| (mean(head) / mean(base)).ln());
    logs.filter(|log| log.is_finite()).collect()
}

/// The host time of each sample, divided by that of the reference operation right after it.
pub(crate) fn host_ratios(samples: &Measured) -> Vec<f64> {
    let pairs = samples.host_ns.iter().zip(&samples.host_reference_ns);
    pairs
        .map(|(host, reference)| host.0 / reference.0)
        .collect()
}

/// The fewest samples that have a slow tenth.
const MIN_SAMPLES: usize = 5;

/// The 9th of 10 samples in order, with the rank rounded up: of 5 to 9 samples the largest. `None`
/// for fewer, of which one sample would be as much as a third.
fn ninth_of_ten(samples: &[Nanoseconds]) -> Option<f64> {
    let mut sorted = numbers(samples);
    let place = (9 * sorted.len()).div_ceil(10).checked_sub(1)?;
    (sorted.len() >= MIN_SAMPLES).then(|| {
        let (_, value, _) = sorted.select_nth_unstable_by(place, f64::total_cmp);
        *value
    })
}

fn number(time: Nanoseconds) -> f64 {
    time.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_metric_has_one_key_everywhere() {
        for (place, metric) in Metric::ALL.into_iter().enumerate() {
            assert_eq!(metric as usize, place, "{metric:?}");
            assert_eq!(metric.name().parse(), Ok(metric));
            assert_eq!(serde_json::to_value(metric).unwrap(), metric.name());
        }
        let keys: BTreeSet<&str> = Metric::ALL.into_iter().map(Metric::name).collect();
        let texts: BTreeSet<&str> = Metric::ALL.into_iter().map(Metric::text).collect();
        assert_eq!((keys.len(), texts.len()), (INFO.len(), INFO.len()));
    }

    #[test]
    fn values_are_written_by_metric_those_that_there_are() {
        let mut values = Values::default();
        values.set(Metric::Host, Some(2.5));
        values.set(Metric::PeakMemory, Some(4096.0));
        values.set(Metric::CpuTime, Some(1.0));
        values.set(Metric::CpuTime, None);
        let text = serde_json::to_string(&values).unwrap();
        assert_eq!(text, r#"{"host":2.5,"peak_memory":4096.0}"#);
        assert_eq!(serde_json::from_str::<Values>(&text).unwrap(), values);
        assert!(serde_json::from_str::<Values>(r#"{"hots":1.0}"#).is_err());
    }

    #[test]
    fn the_ratio_of_turns_takes_what_both_sides_share_out() {
        let measured = |times: &[f64]| Measured {
            device_ns: times.iter().map(|time| Nanoseconds(*time)).collect(),
            ..Measured::default()
        };
        // The machine is twice as slow from the third turn on.
        let base = measured(&[10.0, 10.0, 11.0, 9.0, 20.0, 20.0, 22.0, 18.0]);
        let head = measured(&[11.0, 11.0, 11.0, 11.0, 22.0, 22.0, 22.0, 22.0, 99.0]);
        let ratio = ratio_in_turns(Metric::Device, &base, &head, 2).unwrap();
        assert!((ratio - 1.1).abs() < 1e-9, "{ratio}");
        assert_eq!(ratio_in_turns(Metric::Device, &base, &head, 8), None);
        assert_eq!(ratio_in_turns(Metric::PeakMemory, &base, &head, 2), None);
        assert_eq!(ratio_in_turns(Metric::CpuTime, &base, &head, 2), None);
    }
}
