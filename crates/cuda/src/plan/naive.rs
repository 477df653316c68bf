//! `naive.cu`: a kernel a product, scores in memory.

use super::steps::{Asked, Plan, Step, step};
use crate::kernels::contract::{Kernel, Naive, contracts};
use regatta_worker::attention::Problem;

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

fn forward(p: &Problem) -> Vec<Step> {
    let planes = p.batch * p.heads;
    let Naive {
        scores,
        softmax,
        out,
        ..
    } = &contracts().naive;
    let keys = p.seq_k.div_ceil(scores.tile().keys);
    let columns = p.head_dim_v.div_ceil(out.tile().columns);
    vec![
        launch(p, scores, [keys, p.seq_q, planes]),
        launch(p, softmax, [p.seq_q, 1, planes]),
        launch(p, out, [columns, p.seq_q, planes]),
    ]
}

fn gradients(p: &Problem) -> Vec<Step> {
    let planes = p.batch * p.heads;
    let widest = p.head_dim.max(p.head_dim_v);
    let Naive {
        delta,
        score_grads,
        query_grads,
        key_grads,
        ..
    } = &contracts().naive;
    let keys = p.seq_k.div_ceil(score_grads.tile().keys);
    let columns = p.head_dim.div_ceil(query_grads.tile().columns);
    let widest = widest.div_ceil(key_grads.tile().columns);
    vec![
        launch(p, delta, [p.seq_q, 1, planes]),
        launch(p, score_grads, [keys, p.seq_q, planes]),
        launch(p, query_grads, [columns, p.seq_q, planes]),
        launch(p, key_grads, [widest, p.seq_k, p.batch * p.kv_heads]),
    ]
}

fn launch(p: &Problem, kernel: &Kernel, grid: [u32; 3]) -> Step {
    step(p, kernel, kernel.tile(), grid)
}
