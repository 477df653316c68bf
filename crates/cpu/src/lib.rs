//! The `cpu` worker: three variants of attention on the processor.
//!
//! [`naive`] stores the score matrix, [`flash`] computes it in tiles, and [`split_key`] is parallel
//! over the keys only. All compute in f32 with the layout bshd.

mod case;
pub mod flash;
pub mod kernel;
pub mod naive;
pub mod softmax;
pub mod split_key;
pub mod tensors;
#[cfg(test)]
mod tests;
mod tile;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use case::{CpuCase, MakeKernel};
use flash::Flash;
use naive::Naive;
use rayon::prelude::*;
use regatta_worker::attention::inputs::{Tensor, element};
use regatta_worker::case::{Dtype, ParamValue};
use regatta_worker::matrix::{Matrix, multiply};
use regatta_worker::on_processor::{OnProcessor, ProcessorVariant, last_level_cache};
use regatta_worker::operator::Direction;
use regatta_worker::protocol::{Parameter, Peak, Prepare, VariantInfo};
use regatta_worker::units::{Nanoseconds, Rate};
use softmax::Isa;
use split_key::{NUM_SPLITS_KEY, SplitKey};

/// The worker's name.
pub const NAME: &str = "cpu";

/// The worker, without a prepared case.
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
                let attention = request.problem.attention();
                let has_backward = attention.is_ok_and(|one| one.direction.has_backward());
                Box::new(SplitKey::new(shape, asked, has_backward))
            },
        ),
    ];
    let mut worker = OnProcessor::new(NAME, version, variants);
    worker.versions = versions;
    worker.peak = Some(peak);
    worker
}

fn variant(name: &str, summary: &str, kernel: MakeKernel) -> ProcessorVariant {
    let mut parameters = BTreeMap::new();
    if name == "split-key" {
        parameters.insert(NUM_SPLITS_KEY.to_owned(), Parameter::Integer);
    }
    ProcessorVariant {
        info: VariantInfo {
            name: name.to_owned(),
            summary: summary.to_owned(),
            dtypes: vec![Dtype::F32],
            directions: Direction::ALL.to_vec(),
            parameters,
            stores_scores: name == "naive",
            ..VariantInfo::default()
        },
        prepare: Box::new(move |request: &Prepare| Ok(Box::new(CpuCase::new(request, kernel)?))),
    }
}

/// Rows and columns of each thread's matrices. Three of them fit into a second-level cache.
const SIDE: usize = 384;
/// The number of products of a thread in one sample.
const PRODUCTS: usize = 16;
/// The number of samples, of which the fastest counts, because disturbances only add time.
const SAMPLES: usize = 7;
/// The number of bytes to copy if the size of the caches is unknown.
const COPY: u64 = 256 << 20;

/// The processor's peak, from the matrix product that the variants use and from a copy. float32 is
/// the only storage type, because all variants compute in it.
fn peak(dtypes: &[Dtype]) -> Peak {
    let products = dtypes.contains(&Dtype::F32).then(|| {
        let flops = 2.0 * (SIDE as f64).powi(3) * (PRODUCTS * rayon::current_num_threads()) as f64;
        (Dtype::F32, Rate::of_work(flops, best(multiplied())))
    });
    // Four times the caches, so that none of the data is still cached.
    let bytes = last_level_cache().map_or(COPY, |cache| (4 * cache).clamp(COPY / 4, 4 * COPY));
    let elements = bytes as usize / size_of::<f32>();
    let copied = best(copied(elements));
    Peak {
        tflops: BTreeMap::from_iter(products),
        // A byte in a nanosecond is a GB/s.
        gbps: Some(2.0 * bytes as f64 / copied.0),
        how: format!(
            "matrixmultiply of {SIDE} x {SIDE} on each of {} threads; a copy of {} MiB",
            rayon::current_num_threads(),
            bytes >> 20
        ),
    }
}

fn best(mut sample: impl FnMut() -> Duration) -> Nanoseconds {
    sample();
    let times = (0..SAMPLES).map(|_| Nanoseconds::from(sample()));
    times.fold(Nanoseconds(f64::INFINITY), Nanoseconds::min)
}

fn multiplied() -> impl FnMut() -> Duration {
    let random = |tensor| -> Vec<f32> {
        let elements = 0..(SIDE * SIDE) as u64;
        elements.map(|at| element(1, tensor, at) as f32).collect()
    };
    let (a, b) = (random(Tensor::Q), random(Tensor::K));
    let mut results = vec![vec![0.0_f32; SIDE * SIDE]; rayon::current_num_threads()];
    move || {
        let begin = Instant::now();
        results.par_iter_mut().for_each(|c| {
            for _ in 0..PRODUCTS {
                let matrix = |values| Matrix::new(values, SIDE, SIDE, SIDE);
                multiply(matrix(&a), matrix(&b), 0.0, c, SIDE);
            }
        });
        let took = begin.elapsed();
        black_box(&results);
        took
    }
}

fn copied(elements: usize) -> impl FnMut() -> Duration {
    let from = vec![1.0_f32; elements];
    let mut into = vec![0.0_f32; elements];
    let part = elements.div_ceil(rayon::current_num_threads()).max(1);
    move || {
        let begin = Instant::now();
        let parts = into.par_chunks_mut(part).zip(from.par_chunks(part));
        parts.for_each(|(into, from)| into.copy_from_slice(from));
        let took = begin.elapsed();
        black_box(&into);
        took
    }
}
