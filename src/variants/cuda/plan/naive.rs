//! `naive.cu`: a kernel a product, scores in memory.

use super::{Asked, Plan, Step, step};
use crate::attention::Problem;

/// Grid y and z.
const LONGEST: u32 = 1 << 16;

pub fn plan(asked: &Asked) -> Result<Plan, String> {
    let p = asked.problem;
    for (axis, length) in [("seq_q", p.seq_q), ("seq_k", p.seq_k)] {
        if length >= LONGEST {
            return Err(format!(
                "{axis} = {length}; cuda/naive takes less than 65536"
            ));
        }
    }
    let backward = p.direction.has_backward();
    let planes = u64::from(p.batch) * u64::from(p.heads);
    let pairs = planes * u64::from(p.seq_q) * u64::from(p.seq_k);
    Ok(Plan {
        forward: forward(p),
        backward: if backward { gradients(p) } else { Vec::new() },
        // Scores; with gradients, probabilities and score gradients.
        workspace_bytes: pairs * if backward { 8 } else { 4 },
        num_splits: 1,
        ..Plan::default()
    })
}

fn kernel(p: &Problem, name: &str, grid: [u32; 3]) -> Step {
    step("naive", format!("naive_{name}_{}", p.dtype), grid)
}

fn blocks(elements: u32) -> u32 {
    elements.div_ceil(128)
}

fn forward(p: &Problem) -> Vec<Step> {
    let planes = p.batch * p.heads;
    vec![
        kernel(p, "scores", [blocks(p.seq_k), p.seq_q, planes]),
        kernel(p, "softmax", [p.seq_q, 1, planes]),
        kernel(p, "out", [blocks(p.head_dim_v), p.seq_q, planes]),
    ]
}

fn gradients(p: &Problem) -> Vec<Step> {
    let planes = p.batch * p.heads;
    let widest = p.head_dim.max(p.head_dim_v);
    vec![
        kernel(p, "delta", [p.seq_q, 1, planes]),
        kernel(p, "score_grads", [blocks(p.seq_k), p.seq_q, planes]),
        kernel(p, "query_grads", [blocks(p.head_dim), p.seq_q, planes]),
        kernel(
            p,
            "key_grads",
            [blocks(widest), p.seq_k, p.batch * p.kv_heads],
        ),
    ]
}
