//! How near `cpu/flash` comes to what the machine's matrix products allow.
//!
//! Prints its rate, the GEMM rate measured in the same run, and their ratio:
//! the number that `docs/` and the README quote.

use std::hint::black_box;
use std::time::Instant;

use rayon::prelude::*;

use regatta::attention::{Params, Problem, work};
use regatta::variants;
use regatta::worker::protocol::{Cache, Measure, Prepare};
use regatta::worker::serve::Worker;

/// Side of the square matrices of the GEMM.
const SIDE: usize = 1536;
/// Rounds of GEMM and attention by turns, for the ratio.
const ROUNDS: usize = 15;

/// `c = a b`, rows of `a` and `c` shared out over the threads.
fn square_gemm(a: &[f32], b: &[f32], c: &mut [f32]) {
    let share = SIDE.div_ceil(rayon::current_num_threads()) * SIDE;
    c.par_chunks_mut(share)
        .zip(a.par_chunks(share))
        .for_each(|(c, a)| {
            // SAFETY: `a` and `c` are whole rows of `SIDE` elements, `b` is square.
            unsafe {
                matrixmultiply::sgemm(
                    a.len() / SIDE,
                    SIDE,
                    SIDE,
                    1.0,
                    a.as_ptr(),
                    SIDE as isize,
                    1,
                    b.as_ptr(),
                    SIDE as isize,
                    1,
                    0.0,
                    c.as_mut_ptr(),
                    SIDE as isize,
                    1,
                );
            }
        });
}

fn prepared(id: &str) -> (Box<dyn Worker>, f64) {
    let problem: Problem = id.parse().expect("a problem");
    let flops = work::flops(&problem);
    let mut worker = variants::worker("cpu").expect("the cpu worker");
    let request = Prepare {
        known: Default::default(),
        variant: "flash".to_owned(),
        problem,
        params: Params::default(),
        seed: 42,
        counters: Vec::new(),
        input_sets: 1,
    };
    worker.prepare(&request).expect("prepared");
    (worker, flops)
}

fn seconds(worker: &mut dyn Worker) -> f64 {
    let once = Measure {
        known: Default::default(),
        warmup: 0,
        samples: 1,
        min_samples: 1,
        budget_ms: 0,
        cache: Cache::Hot,
        graph: false,
        calls_per_sample: 1,
    };
    worker.measure(&once).expect("measured").device_ns[0].seconds()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Both rates by turns, so that a busy machine slows both alike.
fn ratio(label: &str, id: &str, gemm: &mut dyn FnMut() -> f64) {
    let (mut worker, flops) = prepared(id);
    let (mut attention, mut products) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        attention.push(flops / seconds(worker.as_mut()) * 1e-9);
        products.push(gemm());
    }
    let (attention, products) = (median(attention), median(products));
    println!(
        "cpu/flash {label} = {attention:.1} GFLOP/s, GEMM = {products:.1} GFLOP/s, ratio {:.2}",
        attention / products
    );
}

fn main() {
    let ones = |x: f32| vec![x; SIDE * SIDE];
    let (a, b, mut c) = (ones(0.5), ones(0.25), ones(0.0));
    let gemm_flops = 2.0 * (SIDE as f64).powi(3);
    let mut gemm = || {
        let start = Instant::now();
        square_gemm(&a, &b, black_box(&mut c));
        gemm_flops / start.elapsed().as_secs_f64() * 1e-9
    };
    for (label, id) in [
        ("forward", "h8,s2048,d64"),
        ("forward causal", "h8,s2048,d64,causal"),
        ("backward", "h8,s2048,d64,bwd"),
    ] {
        ratio(label, id, &mut gemm);
    }
}
