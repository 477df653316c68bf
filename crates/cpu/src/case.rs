//! A prepared case: its kernel, and the tensors of its calls.

use std::collections::BTreeMap;

use super::kernel::{CallBuffers, CpuKernel, Geometry, Tally};
use super::tensors::OutOfMemory;
use regatta_worker::attention::{Attention, Layout, work};
use regatta_worker::case::ParamValue;
use regatta_worker::machine::Structure;
use regatta_worker::on_processor::{ProcessorCase, available_memory, timing};
use regatta_worker::operator::Direction;
use regatta_worker::protocol::Prepare;
use regatta_worker::serve::Refusal;
use regatta_worker::units::{Bytes, Nanoseconds};

/// The number of calls in a census. The one with the most threads counts.
const CENSUS_CALLS: usize = 5;

/// Creates the kernel of a variant for a request.
pub type MakeKernel = fn(&Prepare, Geometry) -> Box<dyn CpuKernel>;

/// A prepared case.
pub struct CpuCase {
    problem: Attention,
    /// The seed of the first set of inputs. Set `n` has this seed plus `n`.
    seed: u64,
    kernel: Box<dyn CpuKernel>,
    buffers: CallBuffers,
    /// The counts of timed calls, which are not used.
    tally: Tally,
}

impl CpuCase {
    /// Allocates a case and makes its first inputs.
    ///
    /// # Errors
    /// It does not fit into memory.
    pub fn new(request: &Prepare, kernel: MakeKernel) -> Result<CpuCase, Refusal> {
        let problem = request
            .problem
            .attention()
            .map_err(Refusal::Unsupported)?
            .clone();
        if problem.layout != Layout::Bshd {
            let (variant, layout) = (&request.variant, problem.layout);
            let why = format!("cpu/{variant} takes the layout bshd, not {layout}");
            return Err(Refusal::Unsupported(why));
        }
        let tensors = work::memory_bytes(&problem, false);
        // Memory of the reference: float64 is twice as wide, and each tensor exists twice, in
        // logical order and with separate heads.
        let reference = work::memory_bytes(&problem.with(Direction::Both), false).saturating_mul(4);
        let needed = tensors.saturating_add(reference);
        fits(needed)?;
        let shape = Geometry::new(&problem);
        let mut kernel = kernel(request, shape.clone());
        fits(needed.saturating_add(kernel.workspace_bytes()))?;
        let failed = |error: OutOfMemory| Refusal::Failed(error.to_string());
        kernel.allocate().map_err(failed)?;
        let mut buffers = CallBuffers::new(&problem, &shape).map_err(failed)?;
        buffers.randomise(request.seed);
        Ok(CpuCase {
            problem,
            seed: request.seed,
            kernel,
            buffers,
            tally: Tally::default(),
        })
    }

    /// For a gradient that is timed alone, runs the forward pass before it.
    fn forward_before(&mut self) {
        if self.problem.direction == Direction::Backward {
            self.run(Direction::Forward, &Tally::default());
        }
    }

    fn run(&mut self, direction: Direction, tally: &Tally) {
        let buffers = &mut self.buffers;
        if direction.has_forward() {
            self.kernel
                .forward(&buffers.operands, &mut buffers.saved, tally);
        }
        if direction.has_backward() {
            let gradients = &mut buffers.gradients;
            self.kernel
                .backward(&buffers.operands, &buffers.saved, gradients, tally);
        }
    }
}

impl ProcessorCase for CpuCase {
    fn call(&mut self) {
        let tally = std::mem::take(&mut self.tally);
        self.run(self.problem.direction, &tally);
        self.tally = tally;
    }

    /// Changes the inputs, and runs the forward pass before a gradient that is timed alone.
    fn change(&mut self, set: u32) -> Result<(), String> {
        self.buffers.randomise(self.seed.wrapping_add(set.into()));
        self.forward_before();
        Ok(())
    }

    /// For a gradient that is timed alone, the forward pass is not timed.
    fn first_call(&mut self) -> Nanoseconds {
        self.forward_before();
        let tally = Tally::default();
        timing::time(|| self.run(self.problem.direction, &tally))
    }

    fn results(&self) -> Vec<Vec<f32>> {
        let (direction, gradients) = (self.problem.direction, &self.buffers.gradients);
        let out = direction.has_forward().then_some(&self.buffers.saved.out);
        let backward = [&gradients.dq, &gradients.dk, &gradients.dv];
        let backward = backward.into_iter().filter(|_| direction.has_backward());
        let results = out.into_iter().chain(backward);
        results.map(|tensor| tensor.values.clone()).collect()
    }

    fn effective(&self) -> BTreeMap<String, ParamValue> {
        self.kernel.effective()
    }

    fn census(&mut self) -> Structure {
        // The pool may happen to give the tasks of a short call to fewer threads than it has. The
        // maximum over a few calls is the number that a call can use.
        let mut threads = 0;
        let mut last = Tally::default();
        for _ in 0..CENSUS_CALLS {
            last = Tally::default();
            self.run(self.problem.direction, &last);
            threads = threads.max(last.threads());
            if threads == last.tasks().min(rayon::current_num_threads() as u64) {
                break;
            }
        }
        let counts = [
            ("threads", threads),
            ("tasks", last.tasks()),
            ("copies", 0),
            ("workspace_bytes", self.kernel.workspace_bytes()),
        ];
        Structure {
            counts: counts.map(|(name, n)| (name.to_owned(), n)).into(),
            ..Structure::default()
        }
    }
}

/// Refuses a case that is larger than the available memory before any of it is used: if the system
/// promises memory and cannot provide it, the process is killed.
fn fits(bytes: u64) -> Result<(), Refusal> {
    match available_memory() {
        Some(available) if bytes > available => Err(Refusal::Failed(format!(
            "the case and its float64 reference need {:.1} GiB; {:.1} GiB are available",
            Bytes(bytes).gib(),
            Bytes(available).gib()
        ))),
        _ => Ok(()),
    }
}
