//! `flash_mma.cu` and `flash_mma_backward.cu`.

use super::{Asked, Plan, bucket, step};

const HEAD_DIMS: [u32; 2] = [64, 128];

pub fn plan(asked: &Asked) -> Result<Plan, String> {
    let p = asked.problem;
    let d = bucket(p, &HEAD_DIMS, 8)?;
    let name = |kernel: &str| format!("flash_mma_{kernel}_{}_d{d}", p.dtype);
    let mut plan = Plan {
        forward: vec![step(
            "flash_mma",
            name("forward"),
            [p.seq_q.div_ceil(128), p.heads, p.batch],
        )],
        num_splits: 1,
        ..Plan::default()
    };
    if p.direction.has_backward() {
        let query_tiles = p.seq_q.div_ceil(8192 / d);
        let queries = [query_tiles, p.heads, p.batch];
        let keys = [p.seq_k.div_ceil(128), p.kv_heads, p.batch];
        plan.backward = [
            ("prepare", queries),
            ("backward", keys),
            ("finish", queries),
        ]
        .map(|(kernel, grid)| step("flash_mma_backward", name(kernel), grid))
        .into();
        // dq in float32, a tile 32 KiB.
        plan.workspace_bytes =
            32_768 * u64::from(p.batch) * u64::from(p.heads) * u64::from(query_tiles);
    }
    Ok(plan)
}
