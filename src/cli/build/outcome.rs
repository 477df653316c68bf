//! What came of one kernel file.

use regatta::kernels::arch::Arch;
use regatta::kernels::compile::{BuildError, Image};
use regatta::kernels::ledger::Row;

/// One kernel file for one architecture, and what came of it.
pub struct Outcome {
    pub file: String,
    pub arch: Arch,
    pub image: Result<Image, BuildError>,
}

/// The rows of a ledger for its entry points.
pub fn rows(outcome: &Outcome) -> Vec<Row> {
    let image = outcome.image.as_ref().ok();
    let resources = image.into_iter().flat_map(|image| &image.resources);
    resources
        .map(|resources| Row::new(&outcome.file, outcome.arch, resources))
        .collect()
}
