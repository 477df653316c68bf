//! A worker in Rust: attention as it is written on a board, in float32.
//!
//!     cargo build --release -p regatta-worker --example naive
//!     regatta worker check -- target/release/examples/naive

use regatta_worker::attention::{Attention, Function, Tensors};
use regatta_worker::on_processor::OnProcessor;
use regatta_worker::serve::serve_on_descriptors;

/// `softmax(q kᵀ / √head_dim) v`, separately for each head of each query.
fn attention(problem: &Attention, of: &Tensors) -> Vec<Vec<f32>> {
    let [heads, kv_heads] = [problem.heads, problem.kv_heads].map(|n| n as usize);
    let [d, dv] = [problem.head_dim, problem.head_dim_v].map(|n| n as usize);
    let [seq_q, seq_k] = [problem.seq_q, problem.seq_k].map(|n| n as usize);
    let mut out = Vec::with_capacity(of.q.len() / d * dv);
    for (row, q) in of.q.chunks_exact(d).enumerate() {
        let (sequence, kv_head) = (row / heads / seq_q, row % heads / (heads / kv_heads));
        let key = |j: usize| (sequence * seq_k + j) * kv_heads + kv_head;
        let products = |j: usize| q.iter().zip(&of.k[key(j) * d..]).map(|(q, k)| q * k);
        let score = |j| products(j).sum::<f32>() / (d as f32).sqrt();
        let scores: Vec<f32> = (0..seq_k).map(score).collect();
        let top = scores.iter().copied().fold(f32::MIN, f32::max);
        let weights: Vec<f32> = scores.iter().map(|score| (score - top).exp()).collect();
        let total: f32 = weights.iter().sum();
        for i in 0..dv {
            let parts = (0..seq_k).map(|j| weights[j] * of.v[key(j) * dv + i]);
            out.push(parts.sum::<f32>() / total);
        }
    }
    vec![out]
}

fn main() -> std::io::Result<()> {
    let naive = Function {
        unsupported: |problem| {
            (!problem.mask.is_full() || problem.varlen.is_some()).then(|| "masks".into())
        },
        ..Function::forward("naive", "every score of a query at once", attention)
    };
    serve_on_descriptors(&mut OnProcessor::new("mine", "1", vec![naive]))
}
