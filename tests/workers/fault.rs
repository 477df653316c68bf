//! Faults in a call of `fake/gpu`, and changes that are not faults.

use std::collections::BTreeMap;

use regatta_core::machine::{
    Activity, CountedCall, CountedKernel, Launch, Named, Operation, Structure, Work,
};
use regatta_worker::case::ParamValue;
use regatta_worker::protocol::{DeviceState, Prepare, Taken};
use regatta_worker::serve::Refusal;
use regatta_worker::units::{Bytes, Nanoseconds};

/// Faults that make the call slower, and by their names what they are.
const FAULTS: &str = "more-work grid kernel copies launches spills registers modules gaps host clock \
                      overlap environment clone waits driver-memory";

/// Ways in which a call's work is no longer reported.
const UNREPORTED: &str = "no-census no-structure no-launches no-count no-calls";

/// The same of hardware counters, and one instruction in a hundred more, in no time.
const OF_COUNTERS: &str = "no-instructions lost-instructions more-instructions";

/// Changes that harm nothing.
const HARMLESS: &str =
    "order anonymous unnamed file specialised spaces hash jitter workspace fewer";

/// Slow because of the machine: another process computes on the device, and is reported.
const CROWDED: &str = "crowded";

/// The host alone takes longer to issue a call.
const SLOW_HOST: &str = "slow-host";

/// The first call alone takes longer, since more is compiled.
const COMPILES: &str = "compiles";

/// A call sets more memory aside.
const MORE_MEMORY: &str = "memory";

/// A call has more device memory in use.
const MORE_IN_USE: &str = "more-in-use";

/// A call takes memory from the driver where it is timed, and nowhere else.
const WHEN_TIMED: &str = "when-timed";

/// A fault or a harmless change; `auto` is neither.
pub struct Fault(String);

/// Every word that the parameter takes.
pub fn words() -> Vec<String> {
    let single = [
        CROWDED,
        SLOW_HOST,
        COMPILES,
        MORE_MEMORY,
        MORE_IN_USE,
        WHEN_TIMED,
    ]
    .join(" ");
    let words = [FAULTS, UNREPORTED, HARMLESS, OF_COUNTERS, &single];
    let words = words.into_iter().flat_map(str::split_whitespace);
    words.map(str::to_owned).collect()
}

/// The fault that a case was handed.
pub fn of(case: &Prepare) -> Fault {
    match case.params.get("fault") {
        ParamValue::Word(word) => Fault(word),
        ParamValue::Int(_) => Fault(String::new()),
    }
}

impl Fault {
    fn is(&self, word: &str) -> bool {
        self.0 == word
    }

    fn is_any(&self, words: &str) -> bool {
        words.split_whitespace().any(|word| self.is(word))
    }

    /// By what factor the call takes longer.
    pub fn slows(&self) -> f64 {
        if self.is_any(FAULTS) || self.is(CROWDED) {
            1.5
        } else {
            1.0
        }
    }

    /// The host's time to issue a call.
    pub fn host_time(&self) -> Nanoseconds {
        Nanoseconds(match self.0.as_str() {
            "host" => 1e9,
            SLOW_HOST => 3e5,
            "clone" | "waits" | "driver-memory" => 1e5,
            _ => 1e3,
        })
    }

    /// The most device memory that is in use.
    pub fn peak(&self) -> Bytes {
        Bytes(if self.is(MORE_IN_USE) {
            553 << 20
        } else {
            44 << 20
        })
    }

    /// The time of the first call, and its parts.
    pub fn first_call(&self) -> (Nanoseconds, Option<BTreeMap<String, Taken>>) {
        let (all, compiling, count) = if self.is(COMPILES) {
            (81e6, 79.5e6, 4)
        } else {
            (1e6, 5e5, 1)
        };
        let part = |name: &str, ns, count| {
            let ns = Nanoseconds(ns);
            (name.to_owned(), Taken { ns, count })
        };
        let parts = [part("compiling", compiling, count), part("loading", 1e5, 1)];
        (Nanoseconds(all), Some(parts.into()))
    }

    /// Clock of the device.
    pub fn clock_mhz(&self) -> f64 {
        if self.is("clock") { 1320.0 } else { 1980.0 }
    }

    /// The state of the device with other work on it, where it is reported.
    pub fn state(&self) -> Option<DeviceState> {
        self.is(CROWDED).then(|| DeviceState {
            other_processes: Some(1),
            ..DeviceState::default()
        })
    }

    /// True where the call waits for the device by itself.
    pub fn opens_the_gate(&self) -> bool {
        self.is("waits") || self.is("driver-memory")
    }

    /// The structure that a census reports for a call.
    pub fn census(&self) -> Result<Structure, Refusal> {
        let mut structure = self.structure();
        match self.0.as_str() {
            "no-census" => return Err(Refusal::Failed("CUPTI is taken".to_owned())),
            "no-structure" => structure = Structure::default(),
            "no-launches" => structure.launches.clear(),
            "no-count" => {
                structure.counts.remove("workspace_bytes");
                let reason = "the allocator is another one".to_owned();
                let uncounted = &mut structure.uncounted;
                uncounted.insert("workspace_bytes".to_owned(), reason);
            }
            _ => {}
        }
        Ok(structure)
    }

    /// The hardware counters of three calls: instructions that are exact, but for those of a
    /// kernel with a lock, and how busy multiprocessors are.
    pub fn counted(&self, metrics: &[String]) -> Result<Vec<CountedCall>, String> {
        match self.0.as_str() {
            "no-instructions" => return Err("performance counters need root".to_owned()),
            "lost-instructions" => return Ok(Vec::new()),
            _ => {}
        }
        let more: f64 = match self.0.as_str() {
            "more-instructions" => 1.01,
            "more-work" => 1.5,
            _ => 1.0,
        };
        let active = if self.is("grid") { 0.65 } else { 98.2 };
        let counts = |launch: &Launch, call: f64| {
            let spins = if launch.name.contains("combine") {
                call
            } else {
                0.0
            };
            let executed = (1e5 * more).round() + 10.0 * spins;
            let values = [
                ("sm__inst_executed.sum", executed),
                (
                    "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
                    active,
                ),
            ];
            let asked = values
                .into_iter()
                .filter(|(name, _)| metrics.iter().any(|m| m == name));
            asked
                .map(|(name, value)| (name.to_owned(), value))
                .collect()
        };
        let call = |call| CountedCall {
            kernels: self
                .structure()
                .launches
                .iter()
                .map(|launch| CountedKernel {
                    name: launch.name.clone(),
                    counts: counts(launch, call),
                })
                .collect(),
        };
        Ok([0.0, 1.0, 2.0].map(call).to_vec())
    }

    /// The structure of a call: fills, attention, and combining its splits.
    pub fn structure(&self) -> Structure {
        let pick = |word, otherwise| if self.is(word) { Some(word) } else { otherwise };
        let attention = match pick("kernel", None) {
            Some(_) => "attention_simt<float, 64>(float*)",
            None => self.spelling(),
        };
        let number = |word: &str, fault: u64, usual: u64| if self.is(word) { fault } else { usual };
        let kernel = Launch {
            name: attention.to_owned(),
            grid: [number("grid", 1, 157) as u32, 1, 1],
            block: [128, 1, 1],
            registers: Some(match self.0.as_str() {
                "registers" => 255,
                "fewer" => 96,
                _ => 128,
            }),
            shared_bytes: Some(49_152),
            local_bytes: Some(number("spills", 256, 0)),
            blocks_per_sm: Some(2),
            ..Launch::default()
        };
        let plain = |name: &str| Launch {
            name: name.to_owned(),
            registers: Some(32),
            ..kernel.clone()
        };
        let combine = Launch {
            grid: [157, 1, 1],
            local_bytes: Some(0),
            ..plain("combine_splits<float>(float*)")
        };
        let mut launches = vec![kernel.clone(), combine.clone()];
        match self.0.as_str() {
            "copies" | "clone" => launches.insert(0, plain("at::native::direct_copy_kernel<4>")),
            "launches" => launches.extend([combine.clone(), combine]),
            "order" => launches.reverse(),
            _ => {}
        }
        let counts = [
            ("copies", 0),
            ("module_loads", number("modules", 3, 0)),
            ("allocations", number("fewer", 1, 2)),
            (
                "workspace_bytes",
                number("workspace", 1050, number(MORE_MEMORY, 3048, 1000)),
            ),
        ];
        let code = match self.0.as_str() {
            "spills" | "registers" | "kernel" | "fewer" => "b0",
            _ => "a0",
        };
        Structure {
            launches,
            counts: counts.map(|(name, n)| (name.to_owned(), n)).into(),
            code: Some(code.to_owned()),
            ..Structure::default()
        }
    }

    /// The calls of CUDA during timed calls, beside those elsewhere.
    pub fn asked_when_timed(&self) -> BTreeMap<String, u64> {
        let names = ["allocations", "frees"].map(|name| (name.to_owned(), 1));
        names.into_iter().filter(|_| self.is(WHEN_TIMED)).collect()
    }

    /// The device's work in a call of the suite's small problem, which takes 2.7 us and
    /// with a fault 1.3 us more: its kernels in order, a gap before the last, and a copy
    /// beside the first.
    pub fn activity(&self) -> Option<Activity> {
        let asked = |fault: &str, number| if self.is(fault) { number } else { 0 };
        let calls = [
            (
                "synchronisations",
                asked("waits", 1) + asked("driver-memory", 2),
            ),
            ("allocations", asked("driver-memory", 2)),
            ("frees", asked("driver-memory", 2)),
            ("launches", self.structure().launches.len() as u64),
        ];
        let calls = calls.map(|(name, n)| (name.to_owned(), n)).into();
        let gap = match self.0.as_str() {
            "no-calls" | "no-structure" => return None,
            "gaps" | "host" => 1_400,
            "clone" | "waits" | "driver-memory" => 136_000,
            "jitter" => 110,
            _ => 100,
        };
        // Work that is not the kernel's fault stands beside it.
        let beside = "copies clone gaps host waits driver-memory overlap launches";
        let launches = self.structure().launches;
        let mut operations = Vec::new();
        let mut now = 0;
        for (place, launch) in launches.iter().enumerate() {
            if place + 1 == launches.len() {
                now += gap;
            }
            let took = match launch.name.as_str() {
                name if name.contains("combine") => 400,
                name if name.contains("copy") => 1_300,
                _ if self.slows() > 1.0 && !self.is_any(beside) => 3_500,
                _ => 2_200,
            };
            // The host is ahead, but where it is the fault.
            let late = self.host_time().0 > 1e3 && place > 0;
            let name = launch.name.clone();
            operations.push(Operation {
                stream: Some(7),
                launched_ns: Some(if late { now as i64 - 20 } else { -900 }),
                ..Operation::new(Work::Kernel(Named { name }), now, now + took)
            });
            now += took;
        }
        let copied = if self.is("overlap") { now } else { 0 };
        let copy = Work::Copy {
            direction: "HtoD".to_owned(),
            bytes: Some(4096),
        };
        operations.push(Operation {
            stream: Some(8),
            launched_ns: Some(-500),
            ..Operation::new(copy, copied, copied + 1_000)
        });
        operations.sort_by_key(|operation| operation.start_ns);
        Some(Activity {
            operations,
            host_ns: self.host_time().0 as u64,
            calls,
            ..Activity::default()
        })
    }

    /// The attention kernel's name, as one compiler or another spells it.
    fn spelling(&self) -> &'static str {
        match self.0.as_str() {
            "anonymous" => "void _GLOBAL__N__5c0f_9_flash_cu_1b22_77::flash<float, 64>(float*)",
            "unnamed" => "void <unnamed>::flash<float, 64>(float*)",
            "file" => {
                "_INTERNAL_77aa_8_flash_cu_0c::(anonymous namespace)::flash<float, 64>(float*)"
            }
            "spaces" => "(anonymous namespace)::flash< float,64 >( float * )",
            "specialised" => "(anonymous namespace)::flash<float, 64>(float*)_0d1d2de",
            "hash" => "(anonymous namespace)::flash<float, 64>(float*)_9f86d081884c7d65",
            _ => "(anonymous namespace)::flash<float, 64>(float*)",
        }
    }
}
