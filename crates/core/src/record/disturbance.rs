//! Decides when the machine, and not the code, affected a case's times.
//!
//! A disturbed invocation is left out if enough others remain. Only the machine's counters decide
//! which ones are disturbed, never the times, so leaving them out favours no side. The reasons for
//! each bound:
//!
//! - **Foreign load** is the work of the cores, less that of regatta and of all processes that it
//!   started. So a kernel with many threads does not count as foreign load, nor does a call that
//!   sleeps or waits. Foreign work disturbs in two ways. First, the worker's threads were *ready
//!   and had no core* for [`WAITED`] of a core's time while others used [`FOREIGN`] of a core: the
//!   calls waited. A call of many threads is as slow as the thread that waits, so neither bound
//!   grows with the number of cores. Waiting alone proves nothing, since a worker with more threads
//!   than cores waits for itself. Foreign work alone proves nothing either, since a machine may
//!   have free cores for it. The wait is the scheduler's own figure (`run_delay` of
//!   `/proc/PID/task/TID/schedstat`, in nanoseconds); if a kernel does not report it, foreign work
//!   counts as if threads had waited. Second, others used [`CROWDED`] of all cores: the case then
//!   shared caches, memory, clock frequency and the hardware threads of a core, whether or not it
//!   waited.
//! - **Steal**: no clock of this machine sees time that the hypervisor gives to other guests. It
//!   disturbs from [`STOLEN`] of a core on. An undisturbed virtual machine shows none, and an
//!   oversubscribed one always some.
//! - **Throttling** of a GPU by heat, by its power supply or by "hardware slowdown", which come and
//!   go. The *software power cap* does not count: a kernel that draws all of the board's power
//!   always meets it. It is reported as a cause if only one side met it.
//! - **Other processes** that compute on the GPU.
//!
//! The counters of a CPU apply to calls on the CPU. A time behind a GPU's gate does not include the
//! host, so they disturb no worker of a GPU.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::machine::DeviceState;
use regatta_worker::units::{Nanoseconds, Share};

/// The foreign work, in cores, from which a wait counts as caused by others. The kernel's own
/// threads and the rounding of ticks gave 0.07 on a quiet machine of two cores, over half a second.
pub const FOREIGN: f64 = 0.15;

/// The wait of the worker's ready threads, in cores, from which it disturbs. Threads that wake each
/// other up wait for themselves on the quietest machine, as long as this and longer.
pub const WAITED: f64 = 0.05;

/// The foreign work, as a share of all cores, that disturbs even if no thread waited.
pub const CROWDED: Share = Share(0.25);

/// The time stolen by the hypervisor, in cores, from which it disturbs.
pub const STOLEN: f64 = 0.05;

/// Reasons for throttling that come from the machine, not from the kernel.
const THROTTLED: [&str; 4] = [
    "hardware slowdown",
    "software thermal slowdown",
    "hardware thermal slowdown",
    "hardware power brake",
];

/// A disturbance that was observed while the case was timed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(tag = "by", rename_all = "kebab-case")]
pub enum Disturbance {
    /// Processes that regatta did not start used cores that the worker could have used.
    ForeignLoad {
        /// The number of cores that they used.
        cores: f64,
        /// The cores of the machine.
        of: u32,
    },
    /// The hypervisor gave cores to other machines.
    Steal {
        /// The share of the time of all cores.
        share: Share,
    },
    /// A GPU held its clocks back.
    Throttled {
        /// The reasons, in the driver's words.
        reasons: Vec<String>,
    },
    /// Other processes computed on the GPU.
    SharedDevice {
        /// The number of other processes.
        processes: u32,
    },
}

impl Disturbance {
    /// The amount of the disturbance, by which the worst of a kind is chosen.
    fn amount(&self) -> f64 {
        match self {
            Disturbance::ForeignLoad { cores, .. } => *cores,
            Disturbance::Steal { share } => share.0,
            Disturbance::Throttled { reasons } => reasons.len() as f64,
            Disturbance::SharedDevice { processes } => f64::from(*processes),
        }
    }

    /// The advice to the user.
    pub fn advice(&self) -> &'static str {
        match self {
            Disturbance::ForeignLoad { .. } => {
                "measure again when nothing else runs on these cores"
            }
            Disturbance::Steal { .. } => {
                "measure on a machine whose cores are its own, or when its neighbours are quiet"
            }
            Disturbance::Throttled { .. } => "let the device cool, or see to its power and cooling",
            Disturbance::SharedDevice { .. } => "end what else computes on the device",
        }
    }
}

impl fmt::Display for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Disturbance::ForeignLoad { cores, of } => {
                let plural = if *of == 1 { "" } else { "s" };
                write!(f, "foreign load {cores:.1} of {of} core{plural}")
            }
            Disturbance::Steal { share } => write!(f, "steal {share}"),
            Disturbance::Throttled { reasons } => write!(f, "throttled: {}", reasons.join(", ")),
            Disturbance::SharedDevice { processes } => {
                let plural = if *processes == 1 { "" } else { "es" };
                write!(f, "{processes} other process{plural} on the device")
            }
        }
    }
}

/// The disturbances of a case on the CPU; empty if none are known.
pub fn of_processor(load: &MachineLoad) -> Vec<Disturbance> {
    let mut disturbances = Vec::new();
    if let Some(cores) = load.foreign {
        let waited = load.waited.is_none_or(|waited| waited >= WAITED);
        let crowded = cores >= CROWDED.0 * f64::from(load.cores);
        if crowded || waited && cores >= FOREIGN {
            let total = load.cores;
            disturbances.push(Disturbance::ForeignLoad { cores, of: total });
        }
    }
    if let Some(stolen) = load.steal.filter(|stolen| *stolen >= STOLEN) {
        let share = Share(stolen / f64::from(load.cores.max(1)));
        disturbances.push(Disturbance::Steal { share });
    }
    disturbances
}

/// The disturbances of a case on a GPU.
pub fn of_gpu(state: &DeviceState) -> Vec<Disturbance> {
    let mut disturbances = Vec::new();
    let reasons: Vec<String> = state
        .throttled_by()
        .filter(|reason| THROTTLED.contains(&reason.as_str()))
        .collect();
    if !reasons.is_empty() {
        disturbances.push(Disturbance::Throttled { reasons });
    }
    if let Some(processes) = state.other_processes.filter(|others| *others > 0) {
        disturbances.push(Disturbance::SharedDevice { processes });
    }
    disturbances
}

/// The worst disturbance of each kind, in the order in which the kinds occur.
pub fn worst<'a>(all: impl IntoIterator<Item = &'a Disturbance>) -> Vec<Disturbance> {
    let mut worst: Vec<Disturbance> = Vec::new();
    for one in all {
        let same =
            |other: &Disturbance| std::mem::discriminant(other) == std::mem::discriminant(one);
        match worst.iter_mut().find(|other| same(other)) {
            Some(other) if other.amount() < one.amount() => *other = one.clone(),
            Some(_) => {}
            None => worst.push(one.clone()),
        }
    }
    worst
}

/// `foreign load 1.9 of 2 cores, steal 12.0 %`.
pub fn describe(all: &[Disturbance]) -> String {
    let each: Vec<String> = all.iter().map(ToString::to_string).collect();
    each.join(", ")
}

/// The load of the cores that regatta may run on, over the time in which a case was measured.
/// Amounts are in cores: 0.5 is half of the time of one. An unknown amount is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct MachineLoad {
    /// The length of the observed time, which ends with the samples.
    pub window_ns: Nanoseconds,
    /// The number of cores.
    pub cores: u32,
    /// The work of processes that regatta did not start: that of all cores, less that of regatta
    /// and of all processes that it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign: Option<f64>,
    /// The hypervisor's share for others (`steal` of proc_stat(5)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steal: Option<f64>,
    /// The time that the worker's threads waited for a core, ready to run, while it measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited: Option<f64>,
}

impl MachineLoad {
    /// The impossible value in it, as a sentence.
    pub(super) fn objection(&self) -> Option<String> {
        let window = ("window_ns", Some(self.window_ns.0));
        let amounts = [
            window,
            ("foreign", self.foreign),
            ("steal", self.steal),
            ("waited", self.waited),
        ];
        let known = amounts.into_iter();
        let mut known = known.filter_map(|(name, amount)| Some((name, amount?)));
        let (name, bad) = known.find(|(_, amount)| !(0.0..1e23).contains(amount))?;
        Some(format!("load.{name} is {bad}: no machine shows it"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_load(foreign: f64, waited: f64) -> MachineLoad {
        MachineLoad {
            cores: 2,
            foreign: Some(foreign),
            waited: Some(waited),
            steal: Some(0.0),
            ..MachineLoad::default()
        }
    }

    #[test]
    fn waiting_for_others_disturbs_and_neither_alone_does() {
        assert_eq!(
            of_processor(&MachineLoad::default()),
            [],
            "nothing is known"
        );
        assert_eq!(of_processor(&a_load(0.05, 0.0)), [], "a daemon");
        assert_eq!(of_processor(&a_load(0.02, 1.5)), [], "its own threads");
        assert_eq!(
            of_processor(&a_load(0.4, 0.0)),
            [],
            "on a core that was free"
        );
        let disturbances = of_processor(&a_load(1.06, 0.9));
        assert_eq!(describe(&disturbances), "foreign load 1.1 of 2 cores");
        assert!(!of_processor(&a_load(0.2, 0.1)).is_empty());
        // One busy loop beside sixty-four threads: each call waits for one of them.
        let many = |foreign, waited| MachineLoad {
            cores: 64,
            ..a_load(foreign, waited)
        };
        assert!(!of_processor(&many(0.6, 0.4)).is_empty());
        assert_eq!(of_processor(&many(8.0, 0.0)), [], "beside, on free cores");
        assert!(!of_processor(&many(40.0, 0.0)).is_empty(), "crowded");
    }

    #[test]
    fn a_wait_that_is_not_told_counts_as_one() {
        let mut load = a_load(0.3, 0.0);
        assert_eq!(of_processor(&load), []);
        load.waited = None;
        assert!(!of_processor(&load).is_empty());
        load.foreign = Some(0.05);
        assert_eq!(of_processor(&load), [], "a daemon");
    }

    #[test]
    fn a_gpu_is_disturbed_by_heat_and_company_not_by_its_power_limit() {
        let state = |bits, others| DeviceState {
            throttle_bits: Some(bits),
            other_processes: others,
            ..DeviceState::default()
        };
        assert_eq!(of_gpu(&state(0x1 | 0x4, Some(0))), []);
        assert_eq!(of_gpu(&state(0, None)), []);
        let both = of_gpu(&state(0x40, Some(1)));
        let expected = "throttled: hardware thermal slowdown, 1 other process on the device";
        assert_eq!(describe(&both), expected);
    }
}
