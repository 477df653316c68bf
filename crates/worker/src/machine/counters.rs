//! The hardware counters of a call's kernels.
//!
//! They are read in calls that are not timed, several in each of a few processes. A figure counts
//! as exact only if every reading was the same.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::names::normalised;
use super::structure::Launch;

/// The key in [`Structure::uncounted`](super::Structure::uncounted) for the reason why no hardware
/// counter was read.
pub const INSTRUCTIONS: &str = "instructions";

/// The counters of one call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct CountedCall {
    /// The kernels, in the order of their launches.
    pub kernels: Vec<CountedKernel>,
}

/// The counters of one launch of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct CountedKernel {
    /// The name, as the census reports it.
    pub name: String,
    /// Counts by the metric's name in CUPTI. Metrics that the device does not have are absent.
    pub counts: BTreeMap<String, f64>,
}

/// A larger value is not a count, because a double cannot represent every whole number beyond.
const MAX_COUNT: f64 = 9_007_199_254_740_992.0;

/// A hardware counter that is read: instructions of a class, which do not depend on other users of
/// the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HardwareCounter {
    /// The name in CUPTI's range profiler.
    pub name: &'static str,
    /// The name in reports.
    pub words: &'static str,
}

/// All counters that are read, in the order of reports.
pub const METRICS: [HardwareCounter; 4] = {
    const fn metric(name: &'static str, words: &'static str) -> HardwareCounter {
        HardwareCounter { name, words }
    }
    [
        metric("sm__inst_executed.sum", "instructions"),
        metric(
            "sm__inst_executed_pipe_tensor.sum",
            "tensor-pipe instructions",
        ),
        metric("smsp__inst_executed_op_local_ld.sum", "local loads"),
        metric("smsp__inst_executed_op_local_st.sum", "local stores"),
    ]
};

/// The counters of a case, from several calls in one or more processes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Counters {
    /// The number of calls that were counted.
    pub calls: u32,
    /// The number of processes that counted. A count that is constant in one may differ in another.
    pub processes: u32,
    /// Counters by kernel, whose name is normalised so that two builds have the same.
    pub kernels: BTreeMap<String, KernelCounters>,
}

/// The counters of all launches of one kernel in a call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct KernelCounters {
    /// The largest number of launches in a call.
    pub launches: u32,
    /// Instructions by metric, summed over the kernel's launches.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub instructions: BTreeMap<String, Counts>,
}

/// The range of several measurements of one count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Counts {
    /// The smallest measurement.
    pub least: u64,
    /// The largest measurement, which is equal if the count is exact.
    pub most: u64,
}

impl Counts {
    /// The range of one measurement.
    pub fn exactly(count: u64) -> Counts {
        Counts {
            least: count,
            most: count,
        }
    }

    /// True if every measurement was the same.
    pub fn is_exact(&self) -> bool {
        self.least == self.most
    }

    /// The difference between the largest and the smallest measurement.
    pub fn spread(&self) -> u64 {
        self.most.saturating_sub(self.least)
    }

    /// The range over both measurements.
    pub fn with(self, other: Counts) -> Counts {
        Counts {
            least: self.least.min(other.least),
            most: self.most.max(other.most),
        }
    }

    /// The sum of two counters.
    pub fn plus(self, other: Counts) -> Counts {
        Counts {
            least: self.least.saturating_add(other.least),
            most: self.most.saturating_add(other.most),
        }
    }
}

impl std::fmt::Display for Counts {
    /// `664000001`, or `664000001 to 664000320` if measurements differ.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_exact() {
            write!(f, "{}", self.least)
        } else {
            write!(f, "{} to {}", self.least, self.most)
        }
    }
}

impl Counters {
    /// The counters of several calls of a case in one process; `None` if no call was counted, or no
    /// kernel ran.
    pub fn from_calls(calls: &[CountedCall]) -> Option<Counters> {
        let each: Vec<Counters> = calls.iter().map(Counters::from_call).collect();
        let merged = Counters::merged(&each)?;
        Some(Counters {
            processes: 1,
            ..merged
        })
    }

    fn from_call(call: &CountedCall) -> Counters {
        let mut launches: BTreeMap<String, Vec<&CountedKernel>> = BTreeMap::new();
        for kernel in &call.kernels {
            let name = normalised(&kernel.name);
            launches.entry(name).or_default().push(kernel);
        }
        Counters {
            calls: 1,
            processes: 1,
            kernels: launches
                .into_iter()
                .map(|(name, launches)| (name, KernelCounters::sum(&launches)))
                .collect(),
        }
    }

    /// The counters over several processes. A kernel that did not run in one of them executed
    /// nothing there.
    pub fn merged(several: &[Counters]) -> Option<Counters> {
        let mut several = several.iter().filter(|counters| counters.calls > 0);
        let mut all = several.next()?.clone();
        for one in several {
            all.add(one);
        }
        (!all.kernels.is_empty()).then_some(all)
    }

    fn add(&mut self, other: &Counters) {
        let names: BTreeSet<&String> = self.kernels.keys().chain(other.kernels.keys()).collect();
        let empty = KernelCounters::default();
        let kernels = names.into_iter().map(|name| {
            let [ours, theirs] =
                [&self.kernels, &other.kernels].map(|all| all.get(name).unwrap_or(&empty));
            (name.clone(), ours.with(theirs))
        });
        self.kernels = kernels.collect();
        self.calls = self.calls.saturating_add(other.calls);
        self.processes = self.processes.saturating_add(other.processes);
    }

    /// True if the kernels are exactly those of `launches`, and each of them executed instructions.
    /// Otherwise the counters are not those of the call.
    pub fn is_of(&self, launches: &[Launch]) -> bool {
        let launched: BTreeSet<String> = launches.iter().map(|l| normalised(&l.name)).collect();
        let executes = |kernel: &KernelCounters| {
            let executed = kernel.instructions.get(METRICS[0].name);
            executed.is_some_and(|counts| counts.most > 0)
        };
        self.kernels.keys().eq(launched.iter()) && self.kernels.values().all(executes)
    }

    /// A sentence about an impossible value, if it has one.
    pub fn objection(&self) -> Option<String> {
        if self.calls == 0 || self.calls < self.processes {
            let (calls, processes) = (self.calls, self.processes);
            return Some(format!(
                "counters of {calls} calls in {processes} processes"
            ));
        }
        let all = self.kernels.iter().flat_map(|(name, kernel)| {
            let counts = kernel.instructions.values();
            counts.map(move |counts| (name, counts))
        });
        let mut wrong = all.filter(|(_, counts)| counts.least > counts.most);
        let (name, counts) = wrong.next()?;
        Some(format!(
            "{name}: {counts} instructions: the least is more than the most"
        ))
    }

    /// The number of instructions in the whole call for a metric; `None` if one of its kernels has
    /// no such count.
    pub fn total(&self, metric: &str) -> Option<Counts> {
        let mut counts = self.kernels.values();
        counts.try_fold(Counts::exactly(0), |sum, kernel| {
            Some(sum.plus(*kernel.instructions.get(metric)?))
        })
    }
}

impl KernelCounters {
    /// The sum over a kernel's launches in one call, without counters that one of the launches
    /// lacks.
    fn sum(launches: &[&CountedKernel]) -> KernelCounters {
        let mut sum = KernelCounters {
            launches: launches.len() as u32,
            ..KernelCounters::default()
        };
        for metric in &METRICS {
            let values = launches.iter().map(|kernel| {
                let value = kernel.counts.get(metric.name).copied();
                value.filter(|value| (0.0..=MAX_COUNT).contains(value))
            });
            let Some(values) = values.collect::<Option<Vec<f64>>>() else {
                continue;
            };
            let count = Counts::exactly(values.iter().sum::<f64>() as u64);
            sum.instructions.insert(metric.name.to_owned(), count);
        }
        sum
    }

    /// The ranges over both. If one of them did not launch the kernel, it executed nothing there. A
    /// counter that is missing in one is left out.
    fn with(&self, other: &KernelCounters) -> KernelCounters {
        let counts = |metric: &String| {
            let [one, other] = [self, other].map(|kernel| match kernel.launches {
                0 => Some(Counts::exactly(0)),
                _ => kernel.instructions.get(metric).copied(),
            });
            Some((metric.clone(), one?.with(other?)))
        };
        let metrics = self.instructions.keys().chain(other.instructions.keys());
        KernelCounters {
            launches: self.launches.max(other.launches),
            instructions: metrics.filter_map(counts).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXECUTED: &str = "sm__inst_executed.sum";

    fn call(kernels: &[(&str, &[(&str, f64)])]) -> CountedCall {
        let kernel = |(name, counts): &(&str, &[(&str, f64)])| CountedKernel {
            name: (*name).to_owned(),
            counts: counts
                .iter()
                .map(|(name, n)| ((*name).to_owned(), *n))
                .collect(),
        };
        CountedCall {
            kernels: kernels.iter().map(kernel).collect(),
        }
    }

    #[test]
    fn exact_is_what_every_call_of_every_process_read() {
        let one = |n| call(&[("flash", &[(EXECUTED, n)]), ("add", &[(EXECUTED, 5.0)])]);
        let first = Counters::from_calls(&[one(600.0), one(600.0)]).unwrap();
        assert!(first.kernels["flash"].instructions[EXECUTED].is_exact());
        let second = Counters::from_calls(&[one(602.0)]).unwrap();
        let all = Counters::merged(&[first, second]).unwrap();
        assert_eq!(all.calls, 3);
        let flash = all.kernels["flash"].instructions[EXECUTED];
        assert_eq!((flash.least, flash.most, flash.spread()), (600, 602, 2));
        assert!(all.kernels["add"].instructions[EXECUTED].is_exact());
    }

    #[test]
    fn what_one_launch_or_process_does_not_tell_is_not_known() {
        let whole = call(&[
            ("flash", &[(EXECUTED, 600.0)]),
            ("flash", &[(EXECUTED, 1.0)]),
        ]);
        let part = call(&[
            ("flash", &[(EXECUTED, 600.0)]),
            ("flash", &[(EXECUTED, f64::NAN)]),
        ]);
        let counters = Counters::from_calls(std::slice::from_ref(&part)).unwrap();
        assert_eq!(counters.total(EXECUTED), None);
        let both = Counters::from_calls(&[whole, part]).unwrap();
        assert_eq!(both.kernels["flash"].instructions.get(EXECUTED), None);
        assert_eq!(Counters::from_calls(&[]), None);
        assert_eq!(Counters::from_calls(&[CountedCall::default()]), None);
    }

    #[test]
    fn a_kernel_that_is_launched_and_executes_nothing_was_not_counted() {
        let launches = ["flash", "add"].map(|name| Launch {
            name: name.to_owned(),
            ..Launch::default()
        });
        let counters_of =
            |kernels: &[(&str, &[(&str, f64)])]| Counters::from_calls(&[call(kernels)]).unwrap();
        let (flash, add) = (
            ("flash", &[(EXECUTED, 6.0)][..]),
            ("add", &[(EXECUTED, 5.0)][..]),
        );
        assert!(counters_of(&[flash, add]).is_of(&launches));
        assert!(!counters_of(&[add]).is_of(&launches), "one is missing");
        assert!(!counters_of(&[flash, add, ("other", &[(EXECUTED, 5.0)])]).is_of(&launches));
        assert!(
            !counters_of(&[flash, ("add", &[])]).is_of(&launches),
            "nothing is known of it"
        );
        assert!(!counters_of(&[flash, ("add", &[(EXECUTED, 0.0)])]).is_of(&launches));
    }

    #[test]
    fn counters_that_cannot_be_are_named() {
        let mut counters = Counters::from_calls(&[call(&[("flash", &[(EXECUTED, 6.0)])])]).unwrap();
        assert_eq!(counters.objection(), None);
        let flash = counters.kernels.get_mut("flash").unwrap();
        flash.instructions.get_mut(EXECUTED).unwrap().least = 7;
        assert!(counters.objection().unwrap().contains("7 to 6"));
        counters.calls = u32::MAX;
        let both = Counters::merged(&[counters.clone(), counters]);
        assert_eq!(both.map(|all| all.calls), Some(u32::MAX));
        assert!(Counters::default().objection().is_some());
    }
}
