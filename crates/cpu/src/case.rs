//! A case made ready: its kernel, the tensors of its calls, and what they hold by turns.

use std::collections::BTreeMap;

use super::contents::Set;
use super::flash::Flash;
use super::kernel::{Buffers, Geometry, Kernel, Tally};
use super::naive::Naive;
use super::offered::{ACCESS, COPIES, VIEWS, variants};
use super::split_key::{NUM_SPLITS_KEY, SplitKey};
use super::tensors::{OutOfMemory, Tensor};
use regatta_worker::attention::{Direction, Dtype, Layout, ParamValue, Params, Problem, work};
use regatta_worker::on_processor::device;
use regatta_worker::on_processor::timing::{self, Timed};
use regatta_worker::protocol::{Parameter, Prepare, VariantInfo};
use regatta_worker::serve::Refusal;
use regatta_worker::sets::Rotation;
use regatta_worker::units::{Bytes, Nanoseconds};

/// A case made ready.
pub struct Case {
    /// What it computes.
    pub problem: Problem,
    /// Of the first set of inputs; set `n` has this one and `n`.
    pub seed: u64,
    /// Sets that samples were asked to be taken on.
    asked: u32,
    pub kernel: Box<dyn Kernel>,
    /// As the caller holds them.
    pub buffers: Buffers,
    /// With `access = copies`: as the kernel is handed them.
    copies: Option<Buffers>,
    /// The set that is in place.
    in_place: u32,
    /// Every set, where there is memory for them and they are all that a call reads; else
    /// each is made anew when it is due.
    kept: Vec<Set>,
    /// What calls are counted with that nobody asks about.
    tally: Tally,
}

impl Case {
    pub fn new(request: &Prepare) -> Result<Case, Refusal> {
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
            problem,
            seed: request.seed,
            asked: request.input_sets,
            kernel,
            buffers,
            copies: copies.transpose().map_err(failed)?,
            in_place: 0,
            kept: Vec::new(),
            tally: Tally::new(),
        })
    }

    /// The first call, on poisoned results; for a gradient alone, the forward
    /// before it is not timed. Returns its time.
    pub fn first_call(&mut self) -> Nanoseconds {
        let tally = Tally::new();
        if self.problem.direction == Direction::Backward {
            self.run(Direction::Forward, &tally);
        }
        timing::time(|| self.counted(&tally))
    }

    /// A call that is counted.
    pub fn counted(&mut self, tally: &Tally) {
        self.run(self.problem.direction, tally);
    }

    /// The order in which samples take inputs, and memory for them: what can be kept is
    /// made now, so that changing is a copy. `None` where the inputs stay.
    pub fn rotation(&mut self) -> Option<Rotation> {
        let rotation = Rotation::of(self.asked)?;
        // Inputs, and what forward left, of each.
        let sets = u64::from(rotation.sets());
        let all = work::memory_bytes(&self.problem, false).saturating_mul(sets);
        let whole = !(self.has_forward_before() && self.kernel.remembers_forward());
        if whole && self.kept.is_empty() && fits(all).is_ok() {
            for set in 0..rotation.sets() {
                self.make(set);
                let copies = self.copies.as_ref().unwrap_or(&self.buffers);
                let lse = self.has_forward_before().then_some(&copies.saved.lse);
                let Ok(kept) = Set::keep(&self.buffers, lse) else {
                    self.kept.clear();
                    break;
                };
                self.kept.push(kept);
            }
        }
        Some(rotation)
    }

    /// As where memory is short; gives the sets that were kept.
    #[cfg(test)]
    pub fn drop_kept(&mut self) -> usize {
        std::mem::take(&mut self.kept).len()
    }

    /// True where a forward that is not timed comes before the calls.
    fn has_forward_before(&self) -> bool {
        self.problem.direction == Direction::Backward
    }

    /// Makes a set in place, from its seed.
    fn make(&mut self, set: u32) {
        if set == self.in_place {
            return;
        }
        self.buffers.randomise(self.seed.wrapping_add(set.into()));
        if self.has_forward_before() {
            let tally = Tally::new();
            self.run(Direction::Forward, &tally);
        }
        self.in_place = set;
    }

    /// The results of the last call, by name.
    pub fn results(&self) -> Vec<(&'static str, &Tensor)> {
        let buffers = &self.buffers;
        let mut results = Vec::new();
        if self.problem.direction.has_forward() {
            results.push(("out", &buffers.saved.out));
        }
        if self.problem.direction.has_backward() {
            let gradients = &buffers.gradients;
            results.push(("dq", &gradients.dq));
            results.push(("dk", &gradients.dk));
            results.push(("dv", &gradients.dv));
        }
        results
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

    pub fn effective(&self) -> BTreeMap<String, ParamValue> {
        let mut effective = self.kernel.effective();
        let access = if self.copies.is_some() { COPIES } else { VIEWS };
        effective.insert(ACCESS.to_owned(), ParamValue::from(access));
        effective
    }
}

impl Timed for Case {
    fn call(&mut self) {
        let tally = std::mem::take(&mut self.tally);
        self.counted(&tally);
        self.tally = tally;
    }

    fn change(&mut self, set: u32) -> Result<(), String> {
        let Some(kept) = self.kept.get(set as usize) else {
            self.make(set);
            return Ok(());
        };
        if set != self.in_place {
            let lse = self.copies.as_mut().map(|copies| &mut copies.saved.lse);
            kept.put(&mut self.buffers, lse);
            self.in_place = set;
        }
        Ok(())
    }
}

/// Copies each tensor into the other layout, as wrappers do that transpose and
/// make contiguous where a strided view would do.
fn copy(pairs: Vec<(&mut Tensor, &Tensor)>, tally: &Tally) {
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
    match device::available_memory() {
        Some(available) if bytes > available => Err(Refusal::Failed(format!(
            "the case and its float64 reference need {:.1} GiB; {:.1} GiB are available",
            Bytes(bytes).gib(),
            Bytes(available).gib()
        ))),
        _ => Ok(()),
    }
}
