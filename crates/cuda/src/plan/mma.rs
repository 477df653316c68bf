//! `flash_mma.cu` and `flash_mma_backward.cu`.

use super::steps::{Asked, Plan, holding, query_gradient_bytes, step};
use crate::kernels::contract::contracts;

pub fn plan(asked: &Asked) -> Result<Plan, String> {
    let p = asked.problem;
    let forward = &contracts().flash_mma.forward;
    let tile = holding(p, forward, 8)?;
    let grid = [p.seq_q.div_ceil(tile.queries), p.heads, p.batch];
    let mut plan = Plan {
        forward: vec![step(p, forward, tile, grid)],
        num_splits: 1,
        ..Plan::default()
    };
    if p.direction.has_backward() {
        let kernels = &contracts().flash_mma_backward;
        let tile = holding(p, &kernels.backward, 8)?;
        let query_tiles = p.seq_q.div_ceil(tile.queries);
        let queries = [query_tiles, p.heads, p.batch];
        let keys = [p.seq_k.div_ceil(tile.keys), p.kv_heads, p.batch];
        plan.backward = vec![
            step(p, &kernels.prepare, tile, queries),
            step(p, &kernels.backward, tile, keys),
            step(p, &kernels.finish, tile, queries),
        ];
        plan.workspace_bytes = query_gradient_bytes(tile)
            * u64::from(p.batch)
            * u64::from(p.heads)
            * u64::from(query_tiles);
    }
    Ok(plan)
}
