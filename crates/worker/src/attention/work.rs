//! The least cost of a problem: arithmetic, memory traffic, memory size.
//!
//! Shapes come from users, so nothing here may overflow: counts are exact integers of up to 128
//! bits, and rates are f64.

use super::{Align, Attention, Mask, Sizes};
use crate::operator::Direction;

/// The number of query-key pairs that one head computes, over all sequences of the batch.
///
/// Counted exactly from the mask: 136 for a causal square of 16.
pub fn visible_pairs(problem: &Attention) -> u128 {
    match &problem.varlen {
        Some(lengths) => lengths
            .q
            .iter()
            .zip(&lengths.k)
            .map(|(&seq_q, &seq_k)| pairs_of_sequence(problem.mask, seq_q, seq_k))
            .sum(),
        None => {
            u128::from(problem.batch)
                * pairs_of_sequence(problem.mask, problem.seq_q, problem.seq_k)
        }
    }
}

/// Sum of the lengths of [`Mask::visible`] over the queries of one sequence, in
/// closed form: row `i` ends at `clamp(i + offset + right + 1, 0, seq_k)` and
/// starts at `clamp(i + offset - left, 0, seq_k)`, and the end is never first.
fn pairs_of_sequence(mask: Mask, seq_q: u32, seq_k: u32) -> u128 {
    let (rows, keys) = (i128::from(seq_q), i128::from(seq_k));
    let offset = match mask.align {
        Align::TopLeft => 0,
        Align::BottomRight => keys - rows,
    };
    let ends = mask.right.map_or(rows * keys, |right| {
        clamped_series(offset + i128::from(right) + 1, rows, keys)
    });
    let starts = mask.left.map_or(0, |left| {
        clamped_series(offset - i128::from(left), rows, keys)
    });
    (ends - starts) as u128
}

/// `Σ clamp(x, 0, most)` for `x` in `first..first + count`.
fn clamped_series(first: i128, count: i128, most: i128) -> i128 {
    // Σ clamp(t, 0, most) over t in 0..x.
    let below = |x: i128| match x {
        x if x <= 0 => 0,
        x if x <= most => x * (x - 1) / 2,
        x => most * (most - 1) / 2 + (x - most) * most,
    };
    below(first + count) - below(first)
}

/// Floating-point operations of the matrix products: a multiply and an add each.
///
/// For each visible pair and query head, forward computes `q·k` and `p·v`: `2 (D + Dv)`. Backward
/// computes `q·k` again, and `dout·v`, `dv = pᵀ dout`, `dq = ds k`, `dk = dsᵀ q`: `2 (3 D + 2 Dv)`,
/// which is 2.5 times forward if `D = Dv`. Softmax is left out. This is the count of
/// flash-attention's `benchmarks/benchmark_flash_attention.py` and of `torch.utils.flop_counter`,
/// except that masks are counted exactly. Query heads count, so GQA costs as much as MHA.
///
/// A projection has those of one rank, `2 · rows · hidden · columns` for both kinds. The additions
/// of reduce-scatter are left out.
pub fn flops(problem: &Attention) -> f64 {
    if let Some(sizes) = projected(problem) {
        return 2.0 * sizes.rows as f64 * sizes.hidden as f64 * sizes.columns as f64;
    }
    let pairs = visible_pairs(problem) as f64 * f64::from(problem.heads);
    let (d, dv) = (f64::from(problem.head_dim), f64::from(problem.head_dim_v));
    let forward = 2.0 * pairs * (d + dv);
    let backward = 2.0 * pairs * (3.0 * d + 2.0 * dv);
    match problem.direction {
        Direction::Forward => forward,
        Direction::Backward => backward,
        Direction::Both => forward + backward,
    }
}

/// Bytes that any implementation must move between memory and the chip.
///
/// Forward reads `q, k, v` and writes `out`; backward reads `q, k, v, dout` and writes
/// `dq, dk, dv`. `out` and `lse` as inputs of backward are left out, as in flash-attention's
/// `benchmarks/bench_utils`. A projection has those of one rank: its weight, `rows · columns`, and
/// `rows · hidden`, of which the shards of other ranks cross the link between the devices.
pub fn bytes(problem: &Attention) -> f64 {
    if let Some(sizes) = projected(problem) {
        let (rows, hidden) = (sizes.rows as f64, sizes.hidden as f64);
        let columns = sizes.columns as f64;
        let moved = rows * hidden + hidden * columns + rows * columns;
        return moved * problem.dtype.bytes() as f64;
    }
    let elements = ElementCounts::count(problem);
    let inputs = elements.q + elements.k + elements.v;
    let forward = inputs + elements.out;
    let backward = inputs + elements.out + inputs;
    let moved = match problem.direction {
        Direction::Forward => forward,
        Direction::Backward => backward,
        Direction::Both => forward + backward,
    };
    moved as f64 * problem.dtype.bytes() as f64
}

/// Bytes of a case's tensors that are allocated at the same time: `q, k, v, out`, the float32
/// log-sum-exp, with a gradient also `dout, dq, dk, dv`, and if the variant `stores_scores` the
/// float32 score matrix of every head.
///
/// A projection allocates on each rank its weight, `rows · columns`, `rows · hidden` (gathered, or
/// before the sum) and one shard of that.
///
/// Saturates at `u64::MAX`. A variant's workspace is not included.
pub fn memory_bytes(problem: &Attention, stores_scores: bool) -> u64 {
    const SINGLE: u128 = 4;
    if let Some(sizes) = projected(problem) {
        return projection_bytes(sizes, problem.dtype.bytes());
    }
    let elements = ElementCounts::count(problem);
    let inputs = elements.q + elements.k + elements.v;
    let mut stored = inputs + elements.out;
    if problem.direction.has_backward() {
        stored += elements.out + inputs;
    }
    let heads = u128::from(problem.heads);
    let mut total = (stored * u128::from(problem.dtype.bytes()))
        .saturating_add(u128::from(problem.total_q()) * heads * SINGLE);
    if stores_scores {
        let full = Attention {
            mask: Mask::FULL,
            ..problem.clone()
        };
        let scores = visible_pairs(&full)
            .saturating_mul(heads)
            .saturating_mul(SINGLE);
        total = total.saturating_add(scores);
    }
    u64::try_from(total).unwrap_or(u64::MAX)
}

fn projected(problem: &Attention) -> Option<Sizes> {
    let projection = problem.projection.as_ref()?;
    Some(projection.sizes(problem))
}

fn projection_bytes(sizes: Sizes, width: u64) -> u64 {
    let product = |a: u64, b: u64| u128::from(a).saturating_mul(b.into());
    let elements = [
        product(sizes.hidden, sizes.columns),
        product(sizes.rows, sizes.columns),
        product(sizes.rows, sizes.hidden),
        product(sizes.shard_rows, sizes.hidden),
    ];
    let total = elements
        .into_iter()
        .fold(0u128, |total, count| total.saturating_add(count));
    u64::try_from(total.saturating_mul(width.into())).unwrap_or(u64::MAX)
}

/// Element counts of each tensor, clamped below 2¹²² so that sums and sizes cannot overflow.
struct ElementCounts {
    q: u128,
    k: u128,
    v: u128,
    out: u128,
}

impl ElementCounts {
    fn count(problem: &Attention) -> ElementCounts {
        let product = |rows: u64, heads: u32, dim: u32| {
            (u128::from(rows) * u128::from(heads))
                .saturating_mul(u128::from(dim))
                .min(u128::MAX >> 6)
        };
        let (rows_q, rows_k) = (problem.total_q(), problem.total_k());
        ElementCounts {
            q: product(rows_q, problem.heads, problem.head_dim),
            k: product(rows_k, problem.kv_heads, problem.head_dim),
            v: product(rows_k, problem.kv_heads, problem.head_dim_v),
            out: product(rows_q, problem.heads, problem.head_dim_v),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::case::MAX_AXIS;

    fn problem(id: &str) -> Attention {
        id.parse().unwrap()
    }

    #[test]
    fn flops_by_hand() {
        // 16·16 pairs, 2·(8 + 8) each.
        assert_eq!(flops(&problem("s16,d8")), 8192.0);
        // 16·17/2 = 136 pairs for each of 3 heads.
        assert_eq!(flops(&problem("h3,s16,d8,causal")), 136.0 * 3.0 * 32.0);
        // 2·(3·8 + 2·4) for each pair.
        assert_eq!(flops(&problem("s16,d8,dv4,bwd")), 256.0 * 64.0);
        assert_eq!(flops(&problem("s16,d8,both")), 8192.0 * 3.5);
        // 4² + 6·2 pairs.
        assert_eq!(flops(&problem("v4+6:4+2,d1")), 28.0 * 4.0);
        // Decoding: the last query sees all keys.
        assert_eq!(flops(&problem("s1,sk100,d1,causal-br")), 400.0);
        assert_eq!(flops(&problem("s1,sk100,d1,causal-tl")), 4.0);
    }

    #[test]
    fn bytes_by_hand() {
        // q and out 2·4·4·8 elements, k and v 2·4·2·8.
        let gqa = problem("b2,h4,kv2,s4,d8,bf16");
        assert_eq!(bytes(&gqa), (2.0 * 256.0 + 2.0 * 128.0) * 2.0);
        assert_eq!(memory_bytes(&gqa, false), 768 * 2 + 2 * 4 * 4 * 4);
        assert_eq!(
            memory_bytes(&gqa, true),
            768 * 2 + 2 * 4 * 4 * 4 + 2 * 4 * 16 * 4
        );
        let gradient = problem("b2,h4,kv2,s4,d8,bwd");
        assert_eq!(bytes(&gradient), (512.0 + 256.0 + 512.0) * 4.0);
        assert_eq!(
            memory_bytes(&gradient, false),
            768 * 4 + 128 + (256 + 512) * 4
        );
    }

    #[test]
    fn projections_by_hand() {
        for kind in ["ag", "rs"] {
            // 8 rows, width 32, and 2·4 columns on each rank.
            let projection = problem(&format!("b2,h2,s4,d4,bf16,{kind}32,r2"));
            assert_eq!(flops(&projection), 2.0 * 8.0 * 32.0 * 8.0);
            assert_eq!(bytes(&projection), (256.0 + 256.0 + 64.0) * 2.0);
            assert_eq!(
                memory_bytes(&projection, true),
                (256 + 64 + 256 + 128) * 2,
                "the scores of {kind} are not stored"
            );
        }
    }

    #[test]
    fn absurd_shapes_do_not_overflow() {
        let most = MAX_AXIS;
        let absurd = problem(&format!("b{most},h{most},s{most},d{most},both"));
        assert!(flops(&absurd) > 1e36);
        assert!(bytes(&absurd).is_finite());
        assert_eq!(memory_bytes(&absurd, true), u64::MAX);
        let absurd = problem(&format!("b{most},h{most},s{most},d{most},ag{most},r1"));
        assert!(flops(&absurd) > 1e36 && bytes(&absurd).is_finite());
        assert_eq!(memory_bytes(&absurd, false), u64::MAX);
    }

    proptest! {
        #[test]
        fn pairs_are_those_of_the_mask(
            seq_q in 1u32..40,
            seq_k in 1u32..40,
            left in prop::option::of(0u32..50),
            right in prop::option::of(0u32..50),
            bottom in any::<bool>(),
        ) {
            let align = if bottom { Align::BottomRight } else { Align::TopLeft };
            let mask = Mask { left, right, align };
            let counted: usize = (0..seq_q as usize)
                .map(|i| mask.visible(i, seq_q as usize, seq_k as usize).len())
                .sum();
            prop_assert_eq!(pairs_of_sequence(mask, seq_q, seq_k), counted as u128);
        }
    }
}
