//! The worker: names the variants, makes cases ready, times and counts them.

use std::collections::BTreeMap;

use super::check::{self, References};
use super::device;
use super::flash::Flash;
use super::kernel::{Buffers, Geometry, Kernel, Tally};
use super::naive::Naive;
use super::softmax::Isa;
use super::split_key::{NUM_SPLITS_KEY, SplitKey};
use super::tensors::OutOfMemory;
use super::timing;
use crate::attention::{Direction, Dtype, Layout, ParamValue, Params, Problem, Structure, work};
use crate::worker::protocol::{
    Hello, Measure, Measured, PROTOCOL_VERSION, Parameter, Prepare, Prepared, VariantInfo,
};
use crate::worker::serve::{Refusal, Worker};

/// The worker's name.
pub const NAME: &str = "cpu";

/// The parameter that says how inputs of the other layout are taken.
const ACCESS: &str = "access";
const VIEWS: &str = "views";
const COPIES: &str = "copies";

const NO_CASE: &str = "no case is prepared";

/// Calls of a census, of which the one with the most threads counts.
const CENSUS_CALLS: usize = 5;

/// Runs attention on the processor.
#[derive(Default)]
pub struct CpuWorker {
    references: References,
    case: Option<Case>,
    sweep: Option<timing::Sweep>,
}

impl CpuWorker {
    /// A worker with no case prepared.
    pub fn new() -> CpuWorker {
        CpuWorker::default()
    }
}

impl Worker for CpuWorker {
    fn hello(&mut self) -> Result<Hello, Refusal> {
        Ok(Hello {
            packages: BTreeMap::new(),
            absent: None,
            protocol: PROTOCOL_VERSION,
            worker: NAME.to_owned(),
            versions: BTreeMap::from([
                ("regatta".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
                ("instructions".to_owned(), Isa::detect().to_string()),
            ]),
            device: device::device(),
            variants: variants(),
        })
    }

    fn prepare(&mut self, request: &Prepare) -> Result<Prepared, Refusal> {
        self.release();
        let mut case = Case::new(request)?;
        let first_call_ns = case.first_call();
        let (forward, gradients) = self
            .references
            .of(&request.problem, request.seed)
            .map_err(|error| Refusal::Failed(error.to_string()))?;
        let buffers = &case.buffers;
        let mut results = Vec::new();
        if request.problem.direction.has_forward() {
            results.push(("out", &buffers.saved.out, &forward.out));
        }
        if let Some(reference) = gradients.as_deref() {
            results.push(("dq", &buffers.gradients.dq, &reference.dq));
            results.push(("dk", &buffers.gradients.dk, &reference.dk));
            results.push(("dv", &buffers.gradients.dv, &reference.dv));
        }
        let prepared = Prepared {
            effective: case.effective(),
            errors: results
                .iter()
                .map(|(name, result, reference)| {
                    ((*name).to_owned(), check::error(result, reference))
                })
                .collect(),
            probes: results
                .iter()
                .map(|(name, result, _)| ((*name).to_owned(), check::probes(result)))
                .collect(),
            first_call_ns,
            problems: 1,
        };
        self.case = Some(case);
        Ok(prepared)
    }

    fn measure(&mut self, request: &Measure) -> Result<Measured, Refusal> {
        let case = self.case.as_mut().ok_or(NO_CASE)?;
        let tally = Tally::new();
        Ok(timing::measure(request, &mut self.sweep, || {
            case.call(&tally)
        })?)
    }

    fn census(&mut self) -> Result<Structure, Refusal> {
        let case = self.case.as_mut().ok_or(NO_CASE)?;
        // The pool may give the tasks of a short call to fewer threads than it
        // has, by chance; what a call can occupy is the most over a few.
        let mut threads = 0;
        let mut last = Tally::new();
        for _ in 0..CENSUS_CALLS {
            last = Tally::new();
            case.call(&last);
            threads = threads.max(last.threads());
            if threads == last.tasks().min(rayon::current_num_threads() as u64) {
                break;
            }
        }
        let counts = [
            ("threads", threads),
            ("tasks", last.tasks()),
            ("copies", last.copies()),
            ("workspace_bytes", case.kernel.workspace_bytes()),
        ];
        Ok(Structure {
            counts: counts.map(|(name, n)| (name.to_owned(), n)).into(),
            ..Structure::default()
        })
    }

    fn release(&mut self) {
        self.case = None;
    }
}

fn variants() -> Vec<VariantInfo> {
    let words = [VIEWS, COPIES].map(str::to_owned).to_vec();
    let access = (ACCESS.to_owned(), Parameter::Words(words));
    let splits = (NUM_SPLITS_KEY.to_owned(), Parameter::INTEGER);
    let info = |name: &str, summary: &str, parameters| VariantInfo {
        name: name.to_owned(),
        summary: summary.to_owned(),
        dtypes: Dtype::ALL.to_vec(),
        directions: Direction::ALL.to_vec(),
        projections: Vec::new(),
        parameters,
        stores_scores: name == "naive",
        tf32: false,
    };
    vec![
        info(
            "flash",
            "tiles and an online softmax; parallel over batch, heads and tiles",
            BTreeMap::from([access.clone()]),
        ),
        info(
            "naive",
            "the score matrix in memory; parallel over batch and heads",
            BTreeMap::from([access.clone()]),
        ),
        info(
            "split-key",
            "parallel over batch, heads and num_splits_key splits of the keys, nothing else",
            BTreeMap::from([access, splits]),
        ),
    ]
}

/// A case made ready.
struct Case {
    direction: Direction,
    kernel: Box<dyn Kernel>,
    /// As the caller holds them.
    buffers: Buffers,
    /// With `access = copies`: as the kernel is handed them.
    copies: Option<Buffers>,
}

impl Case {
    fn new(request: &Prepare) -> Result<Case, Refusal> {
        let info = variants()
            .into_iter()
            .find(|info| info.name == request.variant)
            .ok_or_else(|| {
                Refusal::Unsupported(format!(
                    "the cpu worker has no variant `{}`",
                    request.variant
                ))
            })?;
        check_params(&info, &request.params)?;
        let problem = request
            .problem
            .clone()
            .validated()
            .map_err(|error| Refusal::Unsupported(error.to_string()))?;
        let copying = request.params.get(ACCESS) == ParamValue::from(COPIES);
        let tensors = work::memory_bytes(&problem, false).saturating_mul(1 + u64::from(copying));
        // The reference: float64 is twice the width, and each tensor is there in
        // logical order and once more with heads apart.
        let reference = work::memory_bytes(&single(&problem), false).saturating_mul(4);
        let needed = tensors.saturating_add(reference);
        fits(needed)?;
        let shape = Geometry::of(&problem);
        let has_backward = problem.direction.has_backward();
        let mut kernel: Box<dyn Kernel> = match info.name.as_str() {
            "flash" => Box::new(Flash::new(shape.clone())),
            "naive" => Box::new(Naive::new(shape.clone())),
            _ => {
                let asked = match request.params.get(NUM_SPLITS_KEY) {
                    ParamValue::Int(splits) => Some(splits),
                    ParamValue::Word(_) => None,
                };
                Box::new(SplitKey::new(shape.clone(), asked, has_backward))
            }
        };
        fits(needed.saturating_add(kernel.workspace_bytes()))?;
        let failed = |error: OutOfMemory| Refusal::Failed(error.to_string());
        kernel.allocate().map_err(failed)?;
        let mut buffers = Buffers::new(&problem, &shape, problem.layout).map_err(failed)?;
        buffers.randomise(request.seed);
        let other = match problem.layout {
            Layout::Bshd => Layout::Bhsd,
            Layout::Bhsd => Layout::Bshd,
        };
        let copies = copying.then(|| Buffers::new(&problem, &shape, other));
        Ok(Case {
            direction: problem.direction,
            kernel,
            buffers,
            copies: copies.transpose().map_err(failed)?,
        })
    }

    /// The first call, on poisoned results; for a gradient alone, the forward
    /// before it is not timed. Returns its nanoseconds.
    fn first_call(&mut self) -> f64 {
        let tally = Tally::new();
        if self.direction == Direction::Backward {
            self.run(Direction::Forward, &tally);
        }
        timing::time(|| self.call(&tally))
    }

    fn call(&mut self, tally: &Tally) {
        self.run(self.direction, tally);
    }

    fn run(&mut self, direction: Direction, tally: &Tally) {
        let kernel = &mut self.kernel;
        let Some(theirs) = &mut self.copies else {
            let mine = &mut self.buffers;
            if direction.has_forward() {
                kernel.forward(&mine.operands, &mut mine.saved, tally);
            }
            if direction.has_backward() {
                kernel.backward(&mine.operands, &mine.saved, &mut mine.gradients, tally);
            }
            return;
        };
        let mine = &mut self.buffers;
        let (x, y) = (&mine.operands, &mut theirs.operands);
        let mut inputs = vec![(&mut y.q, &x.q), (&mut y.k, &x.k), (&mut y.v, &x.v)];
        if direction.has_backward() {
            inputs.push((&mut y.dout, &x.dout));
        }
        if direction == Direction::Backward {
            inputs.push((&mut theirs.saved.out, &mine.saved.out));
        }
        copy(inputs, tally);
        if direction.has_forward() {
            kernel.forward(&theirs.operands, &mut theirs.saved, tally);
            copy(vec![(&mut mine.saved.out, &theirs.saved.out)], tally);
        }
        if direction.has_backward() {
            let (y, theirs_dx) = (&theirs.saved, &mut theirs.gradients);
            kernel.backward(&theirs.operands, y, theirs_dx, tally);
            let mine = &mut mine.gradients;
            let results = vec![
                (&mut mine.dq, &theirs_dx.dq),
                (&mut mine.dk, &theirs_dx.dk),
                (&mut mine.dv, &theirs_dx.dv),
            ];
            copy(results, tally);
        }
    }

    fn effective(&self) -> BTreeMap<String, ParamValue> {
        let mut effective = self.kernel.effective();
        let access = if self.copies.is_some() { COPIES } else { VIEWS };
        effective.insert(ACCESS.to_owned(), ParamValue::from(access));
        effective
    }
}

/// Copies each tensor into the other layout, as wrappers do that transpose and
/// make contiguous where a strided view would do.
fn copy(pairs: Vec<(&mut super::tensors::Tensor, &super::tensors::Tensor)>, tally: &Tally) {
    for (to, from) in pairs {
        to.copy_from(from);
        tally.copy();
    }
}

/// The problem with everything that its float64 reference computes.
fn single(problem: &Problem) -> Problem {
    Problem {
        dtype: Dtype::F32,
        direction: Direction::Both,
        ..problem.clone()
    }
}

fn check_params(info: &VariantInfo, params: &Params) -> Result<(), Refusal> {
    for (name, value) in params.iter() {
        let Some(parameter) = info.parameters.get(name) else {
            return Err(Refusal::Unsupported(format!(
                "cpu/{} has no parameter `{name}`",
                info.name
            )));
        };
        if !parameter.allows(value) {
            let allowed = match parameter {
                Parameter::Integer(_) => "an integer".to_owned(),
                Parameter::Words(words) => words.join(" or "),
            };
            return Err(Refusal::Unsupported(format!(
                "`{name}` of cpu/{} is {allowed}, not `{value}`",
                info.name
            )));
        }
    }
    Ok(())
}

/// Refuses what is larger than memory before it is touched: an allocation that the
/// system promises and cannot keep ends the process.
fn fits(bytes: u64) -> Result<(), Refusal> {
    const GIB: f64 = (1u64 << 30) as f64;
    match device::available_memory() {
        Some(available) if bytes > available => Err(Refusal::Failed(format!(
            "the case and its float64 reference need {:.1} GiB; {:.1} GiB are available",
            bytes as f64 / GIB,
            available as f64 / GIB
        ))),
        _ => Ok(()),
    }
}
