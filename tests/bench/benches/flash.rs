//! Compares `cpu/flash` with the machine's matrix products: criterion prints both
//! in FLOPs a second (as elements).

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rayon::prelude::*;
use regatta_cpu::worker;
use regatta_worker::attention::{Attention, work};
use regatta_worker::protocol::{Measure, Prepare};
use regatta_worker::serve::Worker;

/// Side of the square matrices of the product.
const SIDE: usize = 1536;

/// `c = a b`, rows of `a` and `c` shared out over the threads.
fn square_product(a: &[f32], b: &[f32], c: &mut [f32]) {
    let share = SIDE.div_ceil(rayon::current_num_threads()) * SIDE;
    let row = SIDE as isize;
    let parts = c.par_chunks_mut(share).zip(a.par_chunks(share));
    parts.for_each(|(c, a)| {
        let rows = a.len() / SIDE;
        let (a, b, c) = (a.as_ptr(), b.as_ptr(), c.as_mut_ptr());
        // SAFETY: `a` and `c` are whole rows of `SIDE` elements, `b` is square.
        unsafe {
            matrixmultiply::sgemm(rows, SIDE, SIDE, 1.0, a, row, 1, b, row, 1, 0.0, c, row, 1)
        }
    });
}

fn product(criterion: &mut Criterion) {
    let (a, b) = (vec![0.5; SIDE * SIDE], vec![0.25; SIDE * SIDE]);
    let mut c = vec![0.0; SIDE * SIDE];
    let mut group = criterion.benchmark_group("matrix product");
    group.throughput(Throughput::Elements(2 * (SIDE as u64).pow(3)));
    group.bench_function("1536", |bencher| {
        bencher.iter(|| square_product(&a, &b, black_box(&mut c)));
    });
}

fn flash(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("cpu/flash");
    for id in ["h8,s2048,d64", "h8,s2048,d64,causal", "h8,s2048,d64,bwd"] {
        let problem: Attention = id.parse().expect("a problem");
        group.throughput(Throughput::Elements(work::flops(&problem) as u64));
        let mut worker = worker();
        let request = Prepare::new("flash", problem.into(), 42);
        worker.prepare(&request).expect("prepared");
        let once = Measure::default();
        group.bench_function(id, |bencher| {
            bencher.iter_custom(|calls| {
                let call = |_| worker.measure(&once, &mut |_| Ok(false)).expect("measured").device_ns[0].seconds();
                Duration::from_secs_f64((0..calls).map(call).sum())
            });
        });
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = product, flash
}
criterion_main!(benches);
