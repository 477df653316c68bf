//! The worker: names the variants, makes cases ready, times and counts them.

use std::collections::BTreeMap;

use super::case::Case;
use super::check::{self, References};
use super::kernel::Tally;
use super::offered::variants;
use super::peak::peak;
use super::softmax::Isa;
use regatta_core::machine::Structure;
use regatta_worker::attention::Dtype;
use regatta_worker::on_processor::device;
use regatta_worker::on_processor::timing;
use regatta_worker::protocol::{
    Checked, Hello, Measure, Measured, PROTOCOL_VERSION, Peak, Prepare, Prepared,
};
use regatta_worker::serve::{Refusal, Worker};
use regatta_worker::sets;

/// The worker's name.
pub const NAME: &str = "cpu";

const NO_CASE: &str = "no case is prepared";

/// Calls of a census, of which the one with the most threads counts.
const CENSUS_CALLS: usize = 5;

/// Runs attention on the processor.
#[derive(Default)]
pub struct CpuWorker {
    references: References,
    pub(super) case: Option<Case>,
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
        let whole = |name: &str| match (name, gradients.as_deref()) {
            ("dq", Some(reference)) => &reference.dq,
            ("dk", Some(reference)) => &reference.dk,
            ("dv", Some(reference)) => &reference.dv,
            _ => &forward.out,
        };
        let results = case.results();
        let prepared = Prepared {
            tuned: Vec::new(),
            first_call_parts: None,
            effective: case.effective(),
            errors: results
                .iter()
                .map(|(name, result)| ((*name).to_owned(), check::error(result, whole(name))))
                .collect(),
            probes: results
                .iter()
                .map(|(name, result)| ((*name).to_owned(), check::probes(result)))
                .collect(),
            first_call_ns,
            problems: 1,
        };
        self.case = Some(case);
        Ok(prepared)
    }

    fn measure(&mut self, request: &Measure) -> Result<Measured, Refusal> {
        let case = self.case.as_mut().ok_or(NO_CASE)?;
        let rotation = case.rotation();
        let rotates = rotation.is_some();
        let mut measured = timing::measure(request, &mut self.sweep, rotation, case)?;
        if rotates {
            let seed = case.seed.wrapping_add(sets::LAST.into());
            let parts = self
                .references
                .part(&case.problem, seed)
                .map_err(|error| Refusal::Failed(format!("the check after timing: {error}")))?;
            let results = case.results();
            measured.checked = Some(Checked {
                seed,
                errors: results
                    .iter()
                    .map(|(name, result)| {
                        let error = check::error_of_part(name, result, &parts);
                        ((*name).to_owned(), error)
                    })
                    .collect(),
                probes: results
                    .iter()
                    .map(|(name, result)| ((*name).to_owned(), check::probes(result)))
                    .collect(),
            });
        }
        Ok(measured)
    }

    fn census(&mut self) -> Result<Structure, Refusal> {
        let case = self.case.as_mut().ok_or(NO_CASE)?;
        // The pool may give the tasks of a short call to fewer threads than it
        // has, by chance; what a call can occupy is the most over a few.
        let mut threads = 0;
        let mut last = Tally::new();
        for _ in 0..CENSUS_CALLS {
            last = Tally::new();
            case.counted(&last);
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

    fn peak(&mut self, dtypes: &[Dtype]) -> Result<Peak, Refusal> {
        Ok(peak(dtypes))
    }

    fn release(&mut self) {
        self.case = None;
    }
}
