//! Compares the reference with three loops, and its gradients with finite differences.

use proptest::prelude::*;

use super::*;
use crate::attention::{Align, Mask, Varlen, results};
use crate::case::Dtype;
use crate::operator::Direction;
use crate::tolerance::{Expected, tolerable};

/// The inputs of a problem in logical order, which tests can change.
#[derive(Clone)]
struct Inputs {
    q: Vec<f64>,
    k: Vec<f64>,
    v: Vec<f64>,
    dout: Vec<f64>,
}

impl Inputs {
    fn generate(problem: &Attention, seed: u64) -> Inputs {
        let fill = |tensor, rows: u64, heads: u32, dim: u32| {
            let indices = 0..rows * u64::from(heads) * u64::from(dim);
            let value = |i| rounded(element(seed, tensor, i), problem.dtype);
            indices.map(value).collect()
        };
        let (rows_q, rows_k) = (problem.total_q(), problem.total_k());
        Inputs {
            q: fill(Tensor::Q, rows_q, problem.heads, problem.head_dim),
            k: fill(Tensor::K, rows_k, problem.kv_heads, problem.head_dim),
            v: fill(Tensor::V, rows_k, problem.kv_heads, problem.head_dim_v),
            dout: fill(Tensor::Dout, rows_q, problem.heads, problem.head_dim_v),
        }
    }
}

impl Inputs {
    fn at(&self, tensor: Tensor, index: usize) -> f64 {
        match tensor {
            Tensor::Q => self.q[index],
            Tensor::K => self.k[index],
            Tensor::V => self.v[index],
            Tensor::Dout => self.dout[index],
        }
    }
}

/// Three loops over logical indices, without code of the module above.
fn textbook(problem: &Attention, inputs: &Inputs) -> Vec<f64> {
    let (h, kv) = (problem.heads as usize, problem.kv_heads as usize);
    let (d, dv) = (problem.head_dim as usize, problem.head_dim_v as usize);
    let mut out = Vec::new();
    let (mut first_q, mut first_k) = (0, 0);
    for (seq_q, seq_k) in problem.sequences() {
        for i in 0..seq_q {
            for head in 0..h {
                let kv_head = head * kv / h;
                let (mut sum, mut row) = (0.0, vec![0.0; dv]);
                for j in problem.mask.visible(i, seq_q, seq_k) {
                    let mut score = 0.0;
                    for x in 0..d {
                        score += inputs.q[((first_q + i) * h + head) * d + x]
                            * inputs.k[((first_k + j) * kv + kv_head) * d + x];
                    }
                    let weight = (score / (d as f64).sqrt()).exp();
                    sum += weight;
                    for (x, cell) in row.iter_mut().enumerate() {
                        *cell += weight * inputs.v[((first_k + j) * kv + kv_head) * dv + x];
                    }
                }
                out.extend(row.iter().map(|x| if sum > 0.0 { x / sum } else { 0.0 }));
            }
        }
        (first_q, first_k) = (first_q + seq_q, first_k + seq_k);
    }
    out
}

fn tiny() -> impl Strategy<Value = Attention> {
    let side = || prop::option::of(0u32..4);
    (
        (1u32..3, 1u32..3, 1u32..3),
        prop::collection::vec((1u32..5, 1u32..5), 1..3),
        (1u32..11, 1u32..4, any::<bool>()),
        (side(), side(), any::<bool>()),
    )
        .prop_map(|((batch, group, kv_heads), lengths, more, mask)| {
            let (head_dim, head_dim_v, ragged) = more;
            let mut problem = Attention {
                batch,
                heads: group * kv_heads,
                kv_heads,
                seq_q: lengths[0].0,
                seq_k: lengths[0].1,
                head_dim_v,
                mask: Mask {
                    left: mask.0,
                    right: mask.1,
                    align: [Align::TopLeft, Align::BottomRight][usize::from(mask.2)],
                },
                ..Attention::new(1, head_dim)
            };
            if ragged {
                problem.batch = lengths.len() as u32;
                let (q, k): (Vec<u32>, Vec<u32>) = lengths.into_iter().unzip();
                problem.seq_q = *q.iter().max().unwrap();
                problem.seq_k = *k.iter().max().unwrap();
                problem.varlen = Some(Varlen { q, k });
            }
            problem.validated().unwrap()
        })
}

fn weighted(problem: &Attention, inputs: &Inputs) -> f64 {
    let out = &whole_from(problem, &|tensor, index| inputs.at(tensor, index)).unwrap()["out"];
    out.iter()
        .zip(&inputs.dout)
        .map(|(out, dout)| out * dout)
        .sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn forward_is_the_textbook(problem in tiny(), seed in any::<u64>()) {
        let inputs = Inputs::generate(&problem, seed);
        let results = problem.whole(seed).unwrap();
        for (a, b) in results["out"].iter().zip(textbook(&problem, &inputs)) {
            prop_assert!((a - b).abs() < 1e-12, "{problem}: {a} {b}");
        }
    }

    #[test]
    fn backward_is_the_slope_of_forward(problem in tiny(), seed in any::<u64>()) {
        const STEP: f64 = 1e-5;
        let inputs = Inputs::generate(&problem, seed);
        let results = problem.with(Direction::Backward).whole(seed).unwrap();
        type Pick = fn(&mut Inputs) -> &mut [f64];
        let axes: [(&str, Pick); 3] = [
            ("dq", |inputs| &mut inputs.q),
            ("dk", |inputs| &mut inputs.k),
            ("dv", |inputs| &mut inputs.v),
        ];
        for (gradient, pick) in axes {
            for (i, slope) in results[gradient].iter().enumerate() {
                let nudged = |by: f64| {
                    let mut inputs = inputs.clone();
                    pick(&mut inputs)[i] += by;
                    weighted(&problem, &inputs)
                };
                let measured = (nudged(STEP) - nudged(-STEP)) / (2.0 * STEP);
                prop_assert!((slope - measured).abs() < 1e-7, "{problem}: {slope} {measured}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Parts from the seed have the same values as whole tensors.
    #[test]
    fn what_is_expected_of_parts_is_that_of_the_whole(
        problem in tiny(),
        seed in any::<u64>(),
        memory in prop_oneof![Just(0u64), Just(1 << 20)],
        draw in any::<Option<u64>>(),
    ) {
        let both = problem.with(Direction::Both);
        let results = both.expected(seed, draw, memory).unwrap();
        for (name, whole) in both.whole(seed).unwrap() {
            let right = Expected::from_tensor(&whole, 16, draw);
            prop_assert_eq!(&results[name].probes, &right.probes, "{} {}", both, name);
        }
    }
}

/// A window on a long sequence needs only the memory of the window.
#[test]
fn memory_follows_the_mask_and_not_the_tensors() {
    let problem: Attention = "s1,sk10000000,d128,window-63-0-br".parse().unwrap();
    let rows_q = 2 * (128 + 128) + 2;
    let rows_k = 64 * 2 * (128 + 128);
    assert_eq!(problem.cost_of_reference().1, 8 * (rows_q + rows_k));
    let results = problem.expected(1, None, 1 << 20).unwrap();
    assert!(results["out"].squares > 0.0);
    let full: Attention = "s1,sk10000000,d128".parse().unwrap();
    assert!(full.cost_of_reference().1 > 8 * 10_000_000 * 256);
}

#[test]
fn an_eighth_of_the_planes_is_checked_the_first_and_the_last_among_them() {
    let checked = |planes| {
        checked_runs(planes, 0)
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
    };
    assert_eq!(checked(1), [0]);
    assert_eq!(checked(8), [0]);
    assert_eq!(checked(9), [0, 8]);
    assert_eq!(checked(64), [0, 1, 2, 3, 18, 33, 48, 63]);
    assert_eq!(
        checked_runs(128, 0)[1..],
        [36..38, 66..68, 96..98, 126..128]
    );
    for planes in 1..300 {
        let checked = checked(planes);
        assert!(8 * checked.len() >= planes);
        assert!(checked.is_sorted_by(|a, b| a < b), "{checked:?}");
        assert!(*checked.last().unwrap() < planes);
        for draw in [1, 7, u64::MAX] {
            let mut moved: Vec<usize> = checked_runs(planes, draw).into_iter().flatten().collect();
            let along = |at: &usize| (*at as u64 + draw % planes as u64) as usize % planes;
            moved.sort_unstable();
            let mut wanted: Vec<usize> = checked.iter().map(along).collect();
            wanted.sort_unstable();
            assert_eq!(moved, wanted);
        }
    }
}

#[test]
fn a_query_without_keys_is_zero() {
    let problem: Attention = "s4,sk2,d3,causal-br,both".parse().unwrap();
    let results = problem.whole(1).unwrap();
    assert_eq!(results["out"][..6], [0.0; 6]);
    assert_eq!(results["dq"][..6], [0.0; 6]);
    assert!(results["dk"].iter().all(|x| x.is_finite()));
}

fn of_rank_0(id: &str) -> (Attention, Sizes, Vec<f64>) {
    let problem: Attention = id.parse().unwrap();
    let rank = problem.projection.unwrap();
    let out = projection(&problem, &rank, 42).unwrap();
    let sizes = rank.sizes(&problem);
    (problem, sizes, out)
}

fn at(tensor: Tensor, index: u64) -> f64 {
    rounded(element(42, tensor, index), Dtype::F16)
}

/// Three loops over the definition, without indexing code of the module above.
#[test]
fn all_gather_is_the_whole_times_the_first_block() {
    let (_, sizes, out) = of_rank_0("b2,h2,s3,d2,f16,ag5,r3");
    assert_eq!(out.len(), 6 * 4);
    for row in 0..6 {
        for column in 0..4 {
            let products = (0..5).map(|x| {
                at(Tensor::Q, row * sizes.hidden + x) * at(Tensor::K, x * sizes.columns + column)
            });
            let expected: f64 = products.sum();
            let value = out[(row * 4 + column) as usize];
            assert!((value - expected).abs() < 1e-12, "{row},{column}");
        }
    }
}

#[test]
fn reduce_scatter_sums_over_ranks_and_keeps_the_first_shard() {
    let (_, sizes, out) = of_rank_0("b2,h2,s3,d2,f16,rs5,r3");
    assert_eq!((sizes.shard_rows, out.len()), (2, 2 * 5));
    for row in 0..2 {
        for wide in 0..5 {
            let mut expected = 0.0;
            for rank in 0..3 {
                for column in 0..4 {
                    expected += at(Tensor::Q, (rank * 6 + row) * 4 + column)
                        * at(Tensor::K, (rank * 4 + column) * 5 + wide);
                }
            }
            let value = out[(row * 5 + wide) as usize];
            assert!((value - expected).abs() < 1e-12, "{row},{wide}");
        }
    }
}

fn distance(wrong: &[f64], right: &[f64]) -> Option<f64> {
    let difference: f64 = wrong.iter().zip(right).map(|(a, b)| (a - b).powi(2)).sum();
    let norm: f64 = right.iter().map(|b| b * b).sum();
    Some((difference / norm).sqrt())
}

/// The errors of a kernel that computes `wrong` instead of `right`.
fn mistake(right: &Attention, wrong: &Attention) -> Vec<(Direction, Option<f64>)> {
    let run = |problem: &Attention| problem.with(Direction::Both).whole(42).unwrap();
    let (found, right) = (run(wrong), run(right));
    let named = results(Direction::Both).iter();
    named
        .map(|(name, direction)| (*direction, distance(&found[name], &right[name])))
        .collect()
}

#[test]
fn a_dropped_tile_and_a_shifted_diagonal_fail_in_every_type() {
    let full = Attention::new(128, 64);
    // This window only hides keys at the far end, like a lost tile.
    let dropped = Attention {
        mask: Mask {
            left: None,
            right: Some(96),
            align: Align::TopLeft,
        },
        ..full.clone()
    };
    let causal = Attention {
        mask: Mask::causal(Align::TopLeft),
        ..full.clone()
    };
    let shifted = Attention {
        mask: Mask {
            left: None,
            right: Some(1),
            align: Align::TopLeft,
        },
        ..full.clone()
    };
    for (right, wrong) in [(&full, &dropped), (&causal, &shifted)] {
        for (direction, error) in mistake(right, wrong) {
            for dtype in Dtype::ALL {
                let verdict = tolerable(dtype, true, direction, error);
                assert!(verdict.is_err(), "{dtype} {direction}: {error:?} passed");
            }
        }
    }
}
