//! The worker: lists the variants, and prepares, times and counts cases.

use regatta_probe::{CacheState, Cuda, StreamClock};
use regatta_worker::protocol::{
    self, Census, Checked, DeviceKind, DeviceState, Hello, Measure, Measured, PROTOCOL_VERSION,
    Prepare, Prepared,
};
use regatta_worker::serve::{Pause, Refusal, Worker};
use regatta_worker::sets;
use regatta_worker::units::Bytes;

use super::activity;
use super::case::{self, CudaCase};
use super::check::{self, CopiedCall};
use super::driver::CudaDevice;
use super::error::CudaError;
use super::offer::Offer;
use super::plan::PlanRequest;
use super::reference::{Extent, Reference, reference_bytes};
use super::samples;
use crate::kernels::compile::Compiler;
use crate::kernels::source::KernelSource;

/// Environment variable with the compiler: `nvrtc` (default) or `nvcc`. Set in a suite's
/// environment.
const COMPILER: &str = "REGATTA_COMPILER";

const NO_CASE: &str = "no case is prepared";

/// Runs kernels on the first CUDA device.
pub struct CudaWorker {
    offer: Offer,
    open: Option<OpenDevice>,
}

/// The open device, and what is allocated on it.
struct OpenDevice {
    // Fields are dropped in this order: memory first, then the clock, then the device.
    case: Option<(Prepare, CudaCase)>,
    /// The cache state of the case's last samples, if its single calls can be recorded in that
    /// state.
    timed: Option<CacheState>,
    references: Vec<Reference>,
    clock: StreamClock<Cuda>,
    device: CudaDevice,
}

impl CudaWorker {
    /// A worker that opens the device at its first request.
    pub fn new(offer: Offer) -> CudaWorker {
        CudaWorker { offer, open: None }
    }

    fn open(&mut self) -> Result<&mut OpenDevice, Refusal> {
        if self.open.is_none() {
            self.open = Some(OpenDevice::new(self.offer.source.clone())?);
        }
        self.open
            .as_mut()
            .ok_or_else(|| Refusal::Failed("the device is not open".to_owned()))
    }
}

impl OpenDevice {
    fn new(own: Option<KernelSource>) -> Result<OpenDevice, Refusal> {
        let asked = std::env::var(COMPILER).ok().filter(|word| !word.is_empty());
        let compiler = asked.map_or(Ok(Compiler::default()), |word| word.parse());
        let compiler =
            compiler.map_err(|error| Refusal::Unavailable(format!("{COMPILER}: {error}")))?;
        let device = CudaDevice::open(compiler, own)?;
        // SAFETY: the stream lives as long as the device, which is dropped after the clock.
        let timed = unsafe { Cuda::open(0, device.stream.cast()) };
        let clock = timed.and_then(|timed| {
            let mut clock = StreamClock::new(timed)?;
            clock.calibrate().map(|_| clock)
        });
        let clock = clock.map_err(CudaError::from)?;
        Ok(OpenDevice {
            case: None,
            timed: None,
            references: Vec::new(),
            clock,
            device,
        })
    }

    fn prepare(&mut self, offer: &Offer, request: &Prepare) -> Result<Prepared, Refusal> {
        let problem = request.problem.attention().map_err(Refusal::Unsupported)?;
        let validated = problem.clone().validated();
        let problem = validated.map_err(|error| Refusal::Unsupported(error.to_string()))?;
        let asked = PlanRequest {
            problem: &problem,
            params: &request.params,
            limits: self.device.limits,
        };
        let plan = offer.plan(&request.variant, &asked)?;
        let needed = case::bytes(&problem, &plan) + reference_bytes(&problem, Extent::Whole);
        self.make_room(needed)?;
        let mut case = CudaCase::new(&self.device, &problem, plan)?;
        check::write_inputs(&mut self.device, &case, request.seed)?;
        let reference = self.reference(&case, request.seed, Extent::Whole)?;
        let first_call_ns = case.first_call(&mut self.device)?;
        let compared = check::compare(&mut self.device, &case, &reference, request.draw);
        self.references.push(reference);
        let (errors, probes) = compared?;
        let prepared = Prepared {
            tuned: Vec::new(),
            first_call_parts: None,
            outputs: Vec::new(),
            effective: case.plan.effective.clone(),
            errors,
            probes,
            draw: request.draw,
            first_call_ns,
            problems: 1,
        };
        self.case = Some((request.clone(), case));
        Ok(prepared)
    }

    /// Takes the reference of the case from the cache, or computes it.
    fn reference(
        &mut self,
        case: &CudaCase,
        seed: u64,
        extent: Extent,
    ) -> Result<Reference, Refusal> {
        let mine = |kept: &Reference| kept.is_of(&case.problem, seed, extent);
        match self.references.iter().position(mine) {
            Some(at) => Ok(self.references.remove(at)),
            None => Ok(Reference::compute(&mut self.device, case, seed, extent)?),
        }
    }

    /// Compares the results of the last timed call and of the drawn ones with parts of the
    /// reference.
    fn checked(
        &mut self,
        (prepared, case): &(Prepare, CudaCase),
        calls: &[CopiedCall],
    ) -> Result<Checked, Refusal> {
        let seed = prepared.seed.wrapping_add(sets::LAST.into());
        let (problem, draw) = (&case.problem, prepared.draw);
        let part = Extent::Part(draw.unwrap_or(0));
        let reference = self.reference_after(case, seed, part, check::finite_bytes(problem))?;
        let compared = check::compare(&mut self.device, case, &reference, draw);
        self.references.push(reference);
        let (errors, probes) = compared?;
        let mut checked = Checked {
            seed,
            errors,
            probes,
            draw,
            call: None,
        };
        for call in calls {
            let reference = self.reference_after(case, call.seed, call.extent, 0)?;
            let compared = call.check(&mut self.device, problem, &reference, &mut checked);
            self.references.push(reference);
            compared?;
        }
        Ok(checked)
    }

    /// The reference of a timed call, after making room for it and `more` bytes. It is computed
    /// from the inputs that the seed defines, even if a kernel has changed them.
    fn reference_after(
        &mut self,
        case: &CudaCase,
        seed: u64,
        extent: Extent,
        more: u64,
    ) -> Result<Reference, Refusal> {
        self.make_room(reference_bytes(&case.problem, extent) + more)?;
        check::write_inputs(&mut self.device, case, seed)?;
        self.reference(case, seed, extent)
    }

    /// Drops references, oldest first, until they use at most an eighth of the memory and `needed`
    /// bytes are free. Refuses a case for which there is not enough memory.
    fn make_room(&mut self, needed: u64) -> Result<(), Refusal> {
        let all = self.device.memory_bytes()?;
        loop {
            let held: u64 = self.references.iter().map(Reference::held_bytes).sum();
            let free = self.device.free_bytes()?;
            let fits = needed <= free;
            if fits && held <= all / 8 {
                return Ok(());
            }
            if self.references.is_empty() {
                return Err(Refusal::Unavailable(format!(
                    "the case and its float64 reference need {:.1} GiB of device memory; \
                     {:.1} of {:.1} GiB are free",
                    Bytes(needed).gib(),
                    Bytes(free).gib(),
                    Bytes(all).gib()
                )));
            }
            self.references.remove(0);
        }
    }

    fn census(&mut self, metrics: &[String]) -> Result<Census, Refusal> {
        let (_, case) = self.case.as_mut().ok_or(NO_CASE)?;
        let mut census = Census {
            structure: case.structure(),
            activity: known(activity::record_call(&mut self.device, case)),
            ..Census::default()
        };
        if let Some(cache) = self.timed {
            let recorded = activity::record_samples(&mut self.clock, case, cache);
            census.recorded = known(recorded).unwrap_or_default();
        }
        census.count(metrics, |metrics| {
            let counted = activity::count_kernels(&mut self.device, case, metrics);
            counted.map_err(|error| error.to_string())
        });
        Ok(census)
    }

    fn measure(&mut self, request: &Measure, pause: Pause<'_>) -> Result<Measured, Refusal> {
        let mut case = self.case.take().ok_or(NO_CASE)?;
        let measured = self.measured(request, &mut case, pause);
        self.case = Some(case);
        measured
    }

    fn measured(
        &mut self,
        request: &Measure,
        of: &mut (Prepare, CudaCase),
        pause: Pause<'_>,
    ) -> Result<Measured, Refusal> {
        let (prepared, case) = of;
        // Room for three copies of a plane, with at most four bytes for each element.
        self.make_room(2 * reference_bytes(&case.problem, Extent::Plane(0)))?;
        let taken = samples::take(
            &mut self.clock,
            &mut self.device,
            case,
            request,
            prepared,
            pause,
        );
        let (mut measured, calls) = taken?;
        // Replays of a graph were timed, and the graph no longer exists.
        let recorded = !measured.synchronised && !request.graph;
        self.timed = recorded.then(|| samples::cache(request.cache));
        measured.state = self.clock.device().state().map(state_of);
        measured.peak_bytes = Some(Bytes(case.held_bytes()));
        if prepared.input_sets > 1 {
            measured.checked = Some(self.checked(of, &calls)?);
        }
        Ok(measured)
    }

    fn describe(&mut self) -> Result<protocol::Device, CudaError> {
        let (major, minor) = self.device.limits.capability;
        let known = self.clock.device().facts();
        let unknown = || "unknown".to_owned();
        let watts = |milliwatts: u32| (f64::from(milliwatts) / 1e3).round().to_string();
        let facts = [
            ("sms", self.device.limits.sms.to_string()),
            ("compute_capability", format!("{major}.{minor}")),
            ("driver", known.driver.unwrap_or_else(unknown)),
            ("cuda", self.device.cuda_version()?),
            (
                "power_limit_w",
                known.power_limit_mw.map_or_else(unknown, watts),
            ),
            ("mig", known.mig.map_or_else(unknown, mig_word)),
            ("l2_bytes", self.device.limits.l2_bytes.to_string()),
        ];
        Ok(protocol::Device {
            kind: DeviceKind::Cuda.to_string(),
            name: self.clock.device().name()?,
            memory_bytes: Bytes(self.device.memory_bytes()?),
            facts: facts.map(|(name, fact)| (name.to_owned(), fact)).into(),
        })
    }
}

impl Worker for CudaWorker {
    fn hello(&mut self) -> Result<Hello, Refusal> {
        let open = self.open()?;
        let device = open.describe()?;
        let versions = [
            ("regatta", env!("CARGO_PKG_VERSION").to_owned()),
            ("clock", format!("probe {}", regatta_probe::VERSION)),
            ("compiler", open.device.compiler_version()),
            ("cuda", device.facts["cuda"].clone()),
            ("driver", device.facts["driver"].clone()),
        ];
        Ok(Hello {
            protocol: PROTOCOL_VERSION,
            worker: self.offer.name.clone(),
            versions: versions
                .map(|(name, version)| (name.to_owned(), version))
                .into(),
            device,
            variants: self.offer.variants(),
            ..Hello::default()
        })
    }

    fn prepare(&mut self, request: &Prepare) -> Result<Prepared, Refusal> {
        self.release();
        self.open()?;
        let open = self.open.as_mut().ok_or(NO_CASE)?;
        open.prepare(&self.offer, request)
    }

    fn measure(&mut self, request: &Measure, pause: Pause<'_>) -> Result<Measured, Refusal> {
        self.open()?.measure(request, pause)
    }

    fn census(&mut self, metrics: &[String]) -> Result<Census, Refusal> {
        self.open()?.census(metrics)
    }

    fn release(&mut self) {
        if let Some(open) = &mut self.open {
            (open.case, open.timed) = (None, None);
        }
    }
}

/// Times of single operations. If they are missing, the reason is in the worker's log; launches are
/// known without them.
fn known<T>(result: Result<T, CudaError>) -> Option<T> {
    result
        .inspect_err(|error| eprintln!("no times of single operations: {error}"))
        .ok()
}

fn mig_word(enabled: bool) -> String {
    let word = if enabled { "enabled" } else { "disabled" };
    word.to_owned()
}

/// Converts the clock's state of a device to the protocol's.
fn state_of(state: regatta_probe::NvmlState) -> DeviceState {
    DeviceState {
        sm_mhz: state.sm_mhz.map(f64::from),
        memory_mhz: state.memory_mhz.map(f64::from),
        throttle_bits: state.throttle_reasons,
        power_w: state.power_mw.map(|milliwatts| f64::from(milliwatts) / 1e3),
        temperature_c: state.temperature_c.map(f64::from),
        other_processes: state.other_processes,
    }
}
