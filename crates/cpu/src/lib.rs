//! The `cpu` worker: attention on the processor, in three ways.
//!
//! [`naive`] keeps the score matrix, [`flash`] tiles it away, [`split_key`] is
//! parallel over the keys alone. All do their arithmetic in f32.

mod case;
pub mod flash;
pub mod gemm;
pub mod kernel;
pub mod naive;
mod peak;
pub mod softmax;
pub mod split_key;
pub mod tensors;
#[cfg(test)]
mod tests;
mod tile;

use std::collections::BTreeMap;

use case::{CpuCase, MakeKernel};
use flash::Flash;
use naive::Naive;
use regatta_worker::attention::{Direction, Dtype, ParamValue};
use regatta_worker::on_processor::{OnProcessor, ProcessorVariant};
use regatta_worker::protocol::{Parameter, Prepare, VariantInfo};
use softmax::Isa;
use split_key::{NUM_SPLITS_KEY, SplitKey};

/// The worker's name.
pub const NAME: &str = "cpu";

/// The worker, with no case prepared.
pub fn worker() -> OnProcessor {
    let version = env!("CARGO_PKG_VERSION");
    let versions = BTreeMap::from([
        ("regatta".to_owned(), version.to_owned()),
        ("instructions".to_owned(), Isa::detect().to_string()),
    ]);
    let variants = vec![
        variant(
            "flash",
            "tiles and an online softmax; parallel over batch, heads and tiles",
            |_, shape| Box::new(Flash::new(shape)),
        ),
        variant(
            "naive",
            "the score matrix in memory; parallel over batch and heads",
            |_, shape| Box::new(Naive::new(shape)),
        ),
        variant(
            "split-key",
            "parallel over batch, heads and num_splits_key splits of the keys, nothing else",
            |request, shape| {
                let asked = match request.params.get(NUM_SPLITS_KEY) {
                    ParamValue::Int(splits) => Some(splits),
                    ParamValue::Word(_) => None,
                };
                let has_backward = request.problem.direction.has_backward();
                Box::new(SplitKey::new(shape, asked, has_backward))
            },
        ),
    ];
    let mut worker = OnProcessor::new(NAME, version, variants);
    worker.versions = versions;
    worker.peak = Some(peak::peak);
    worker
}

fn variant(name: &str, summary: &str, kernel: MakeKernel) -> ProcessorVariant {
    let mut parameters = BTreeMap::new();
    if name == "split-key" {
        parameters.insert(NUM_SPLITS_KEY.to_owned(), Parameter::INTEGER);
    }
    ProcessorVariant {
        info: VariantInfo {
            name: name.to_owned(),
            summary: summary.to_owned(),
            dtypes: Dtype::ALL.to_vec(),
            directions: Direction::ALL.to_vec(),
            parameters,
            stores_scores: name == "naive",
            ..VariantInfo::default()
        },
        prepare: Box::new(move |request: &Prepare| Ok(Box::new(CpuCase::new(request, kernel)?))),
    }
}
