//! A worker whose variants run in this process, on this machine's processor.
//!
//! It provides the check against float64 before and after timing, sets of inputs that change
//! between samples, and the clock. A library with its own tensors, such as regatta's own kernels,
//! provides [`ProcessorVariant`]s; a function over slices is converted into one.

mod memory;
mod threads;
pub mod timing;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use self::timing::{Sweep, time};
use crate::case::{Dtype, ParamValue};
use crate::machine::Structure;
use crate::operator::{DrawnCall, Planes, References};
use crate::protocol::{
    Census, Checked, Device, DeviceKind, Hello, Measure, Measured, PROTOCOL_VERSION, Peak, Prepare,
    Prepared, Repeat, RepeatStep, VariantInfo,
};
use crate::serve::{Pause, Refusal, Worker};
use crate::sets::{LAST, Rotation, drawn_calls};
use crate::units::{Bytes, Nanoseconds};

/// A prepared case, which is timed, checked and counted.
pub trait ProcessorCase {
    /// One call.
    fn call(&mut self);

    /// Replaces the inputs by those of `set`.
    ///
    /// # Errors
    /// The reason for which the set cannot be made.
    fn change(&mut self, set: u32) -> Result<(), String>;

    /// Makes the first call, on poisoned results, and returns its time.
    fn first_call(&mut self) -> Nanoseconds {
        time(|| self.call())
    }

    /// The results of the last call in logical order, in the order in which the problem's operator
    /// names them.
    fn results(&self) -> Vec<Vec<f32>>;

    /// The effective value of each parameter.
    fn effective(&self) -> BTreeMap<String, ParamValue> {
        BTreeMap::new()
    }

    /// The structure of one call; empty if unknown.
    fn census(&mut self) -> Structure {
        Structure::default()
    }
}

/// Prepares a case on the inputs of its seed.
///
/// # Errors
/// The reason for which this case cannot be timed.
pub type MakeCase = dyn Fn(&Prepare) -> Result<Box<dyn ProcessorCase>, Refusal>;

/// A variant: what it supports, and how its cases are prepared.
pub struct ProcessorVariant {
    /// The description for the worker's introduction. Requests for anything else are refused before
    /// `prepare` is called.
    pub info: VariantInfo,
    /// Prepares its cases.
    pub prepare: Box<MakeCase>,
}

/// A worker whose variants run on the processor.
pub struct OnProcessor {
    name: &'static str,
    /// Versions of everything that affects a measurement; by default only the worker's own.
    pub versions: BTreeMap<String, String>,
    variants: Vec<ProcessorVariant>,
    /// Measures the processor's peak performance.
    pub peak: Option<fn(&[Dtype]) -> Peak>,
    references: References,
    prepared: Option<(Prepare, Box<dyn ProcessorCase>)>,
    sweep: Option<Sweep>,
}

const NO_CASE: &str = "no case is prepared";

impl OnProcessor {
    /// A worker named `name`. `version` is recorded with its measurements.
    pub fn new<V: Into<ProcessorVariant>>(
        name: &'static str,
        version: &'static str,
        variants: Vec<V>,
    ) -> OnProcessor {
        OnProcessor {
            name,
            versions: BTreeMap::from([(name.to_owned(), version.to_owned())]),
            variants: variants.into_iter().map(Into::into).collect(),
            peak: None,
            references: References::default(),
            prepared: None,
            sweep: None,
        }
    }

    /// The variant of a request, or the reason for which the request is not supported.
    fn variant(&self, request: &Prepare) -> Result<&ProcessorVariant, String> {
        let wanted = &request.variant;
        let mut variants = self.variants.iter();
        let variant = variants.find(|variant| variant.info.name == *wanted);
        let variant =
            variant.ok_or_else(|| format!("the {} worker has no variant `{wanted}`", self.name))?;
        let checked = variant
            .info
            .check(self.name, &request.problem, &request.params);
        checked.map(|()| variant)
    }
}

/// The number of calls after which a case is refused if reading its results took time after each.
const ATTEMPTS: usize = 10;

/// Reads the results of the last timed call, which took `call_ns`.
///
/// # Errors
/// The call did not compute its results: the first read of them takes time, and the second does
/// not. Other programs that take a core can cause this once, but not every time.
fn read_results(
    case: &mut dyn ProcessorCase,
    call_ns: Nanoseconds,
) -> Result<Vec<Vec<f32>>, String> {
    const MIN_TIME: Nanoseconds = Nanoseconds(1e6);
    let late =
        |(first, again): (Nanoseconds, Nanoseconds)| first - again > MIN_TIME.max(call_ns / 2.0);
    let mut results = Vec::new();
    let first = time(|| results = case.results());
    let mut read = (first, time(|| drop(case.results())));
    for _ in 1..ATTEMPTS {
        if !late(read) {
            break;
        }
        case.call();
        read = (time(|| drop(case.results())), time(|| drop(case.results())));
    }
    if !late(read) {
        return Ok(results);
    }
    let (first, again) = read;
    Err(format!(
        "reading the results took {first} after a call of {call_ns}, and {again} the second time: \
         the call left work for later. Compute the results in the call, and wait there for its \
         threads"
    ))
}

impl Worker for OnProcessor {
    fn hello(&mut self) -> Result<Hello, Refusal> {
        let variants = self.variants.iter();
        Ok(Hello {
            protocol: PROTOCOL_VERSION,
            worker: self.name.to_owned(),
            versions: self.versions.clone(),
            device: device(),
            variants: variants.map(|variant| variant.info.clone()).collect(),
            repeats: true,
            ..Hello::default()
        })
    }

    fn prepare(&mut self, request: &Prepare) -> Result<Prepared, Refusal> {
        self.release();
        let variant = self.variant(request).map_err(Refusal::Unsupported)?;
        let mut request = request.clone();
        request.problem = request.problem.validated().map_err(Refusal::Unsupported)?;
        let mut case = (variant.prepare)(&request)?;
        let first_call_ns = case.first_call();
        let (references, key) = (&mut self.references, (request.seed, request.draw));
        let checked = references.check(&request.problem, key, Planes::All, &case.results())?;
        let Checked { errors, probes, .. } = checked;
        let prepared = Prepared {
            effective: case.effective(),
            tuned: Vec::new(),
            first_call_parts: None,
            outputs: Vec::new(),
            errors,
            probes,
            draw: request.draw,
            first_call_ns,
            problems: 1,
        };
        self.prepared = Some((request, case));
        Ok(prepared)
    }

    fn measure(&mut self, request: &Measure, pause: Pause<'_>) -> Result<Measured, Refusal> {
        let (prepared, case) = self.prepared.as_mut().ok_or(NO_CASE)?;
        let case = case.as_mut();
        let rotation = Rotation::new(prepared.input_sets);
        let rotates = rotation.is_some();
        let (problem, seed) = (&prepared.problem, prepared.seed);
        let draw = prepared.draw.unwrap_or(seed);
        let (wanted, mut calls) = (drawn_calls(request, draw), Vec::new());
        let mut look = |number: u32, set: u32, case: &dyn ProcessorCase| {
            if rotates && wanted.contains(&number) {
                calls.push(DrawnCall {
                    number,
                    seed: seed.wrapping_add(set.into()),
                    results: case.results(),
                });
            }
        };
        let mut measured =
            timing::measure(request, &mut self.sweep, rotation, case, pause, &mut look)?;
        let fastest = measured.device_ns.iter().copied();
        let results = read_results(case, fastest.fold(Nanoseconds(f64::MAX), Nanoseconds::min))?;
        if rotates {
            let last = (seed.wrapping_add(LAST.into()), prepared.draw);
            let planes = Planes::Drawn(prepared.draw.unwrap_or(0));
            let checked = self.references.check(problem, last, planes, &results);
            let mut checked =
                checked.map_err(|error| format!("the check after timing: {error}"))?;
            for call in &calls {
                References::check_call(problem, call, draw, &mut checked)?;
            }
            measured.checked = Some(checked);
        }
        Ok(measured)
    }

    fn repeat(&mut self, request: Repeat) -> Result<(), Refusal> {
        let (_, case) = self.prepared.as_mut().ok_or(NO_CASE)?;
        if request.step != RepeatStep::Call {
            let reason = "this worker repeats calls on inputs that stay";
            return Err(Refusal::Unsupported(reason.to_owned()));
        }
        timing::repeat(request, case.as_mut());
        Ok(())
    }

    fn census(&mut self, metrics: &[String]) -> Result<Census, Refusal> {
        let (_, case) = self.prepared.as_mut().ok_or(NO_CASE)?;
        let mut census = Census {
            structure: case.census(),
            ..Census::default()
        };
        census.count(metrics, |_| {
            Err("this worker reads no hardware counters".to_owned())
        });
        Ok(census)
    }

    fn peak(&mut self, dtypes: &[Dtype]) -> Result<Peak, Refusal> {
        let no_peak = || Refusal::Unsupported("this worker measures no peak".to_owned());
        self.peak.map(|peak| peak(dtypes)).ok_or_else(no_peak)
    }

    fn release(&mut self) {
        self.prepared = None;
    }
}

/// The processor as the protocol describes devices.
pub fn device() -> Device {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    Device {
        kind: DeviceKind::Cpu.to_string(),
        name: model_name(),
        memory_bytes: Bytes(available_memory().unwrap_or(0)),
        facts: BTreeMap::from([("cores".to_owned(), cores.to_string())]),
    }
}

/// The first `model name` of `/proc/cpuinfo`, or the architecture.
fn model_name() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == "model name")
        .map_or_else(
            || std::env::consts::ARCH.to_owned(),
            |(_, name)| name.trim().to_owned(),
        )
}

/// `MemAvailable` of `/proc/meminfo` in bytes: the memory that is available without swapping.
pub fn available_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let (_, rest) = text.split_once("MemAvailable:")?;
    let kibibytes: u64 = rest.split_whitespace().next()?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// The total size of all last-level caches in bytes, as Linux describes them.
///
/// Several processors share a cache, and a large chip has several caches. Each is identified by the
/// list of processors that share it, and counted once.
pub fn last_level_cache() -> Option<u64> {
    let mut caches = BTreeMap::new();
    for processor in fs::read_dir("/sys/devices/system/cpu").ok()?.flatten() {
        let Ok(indices) = fs::read_dir(processor.path().join("cache")) else {
            continue;
        };
        let read = |path: &Path, name: &str| {
            let text = fs::read_to_string(path.join(name)).ok()?;
            Some(text.trim().to_owned())
        };
        let largest = indices
            .flatten()
            .filter_map(|index| {
                let level: u32 = read(&index.path(), "level")?.parse().ok()?;
                let size = bytes(&read(&index.path(), "size")?)?;
                Some((level, read(&index.path(), "shared_cpu_list")?, size))
            })
            .max_by_key(|(level, ..)| *level);
        if let Some((_, shared, size)) = largest {
            caches.insert(shared, size);
        }
    }
    (!caches.is_empty()).then(|| caches.values().sum())
}

/// Parses a size of sysfs: `512K`, `32M`.
fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at(text.find(char::is_alphabetic).unwrap_or(text.len()));
    let unit = match unit {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::thread::{JoinHandle, sleep, spawn};
    use std::time::Duration;

    use super::*;
    use crate::operator::Problem;

    const WORK: Duration = Duration::from_millis(20);

    /// The moment at which a case does its work: in the call, in a thread, or when its results are
    /// read.
    #[derive(Clone, Copy, PartialEq)]
    enum Works {
        InTheCall,
        InAThread,
        WhenRead,
        /// In the call, while other programs take the cores in all attempts except the last.
        Disturbed,
    }

    struct LateCase {
        works: Works,
        open: RefCell<Option<JoinHandle<()>>>,
        calls: usize,
    }

    impl ProcessorCase for LateCase {
        fn call(&mut self) {
            self.calls += 1;
            *self.open.borrow_mut() = match self.works {
                Works::InTheCall => {
                    sleep(WORK);
                    None
                }
                Works::InAThread => Some(spawn(|| sleep(WORK))),
                Works::WhenRead => Some(spawn(|| {})),
                Works::Disturbed => (self.calls < ATTEMPTS).then(|| spawn(|| sleep(WORK))),
            };
        }

        fn change(&mut self, _set: u32) -> Result<(), String> {
            Ok(())
        }

        fn results(&self) -> Vec<Vec<f32>> {
            if let Some(thread) = self.open.borrow_mut().take() {
                thread.join().unwrap();
                if self.works == Works::WhenRead {
                    sleep(WORK);
                }
            }
            vec![vec![0.0]]
        }
    }

    #[test]
    fn work_that_a_call_leaves_for_later_is_refused() {
        use Works::{Disturbed, InAThread, InTheCall, WhenRead};
        for works in [InTheCall, InAThread, WhenRead, Disturbed] {
            let open = RefCell::new(None);
            let case = Box::new(LateCase {
                works,
                open,
                calls: 0,
            });
            let mut worker = OnProcessor::new("mine", "1", Vec::<ProcessorVariant>::new());
            let mut request = Prepare::new("", Problem::example(), 1);
            request.input_sets = 2;
            worker.prepared = Some((request, case));
            let measured = worker.measure(&Measure::default(), &mut |_| Ok(false));
            let refused = measured.err().map(|refusal| refusal.to_string());
            let late = refused.is_some_and(|why| why.contains("the call left work for later"));
            assert_eq!(late, [InAThread, WhenRead].contains(&works));
        }
    }
}
