//! Checks every variant against the float64 reference, through the worker.

use proptest::prelude::*;

use super::flash::Flash;
use super::kernel::{CpuKernel, GradientTensors, Operands, SavedTensors, Tally};
use super::{variant, worker};
use regatta_worker::attention::{Align, Attention, Mask, Varlen, results};
use regatta_worker::case::ParamValue;
use regatta_worker::on_processor::OnProcessor;
use regatta_worker::operator::Direction;
use regatta_worker::protocol::{Cache, Measure, Prepare, Prepared};
use regatta_worker::serve::{Refusal, Worker};
use regatta_worker::tolerance::tolerable;

fn request(variant: &str, problem: Attention, params: &[(&str, &str)]) -> Prepare {
    let mut request = Prepare::new(variant, problem.into(), 42);
    request.draw = Some(9);
    for (name, value) in params {
        request.params.set(name, ParamValue::from(*value));
    }
    request
}

fn verdict(problem: &Attention, prepared: &Prepared) -> Result<(), String> {
    let results = results(problem.direction);
    assert_eq!(prepared.errors.len(), results.len());
    for (name, direction) in results {
        let error = prepared.errors[*name].relative_l2;
        tolerable(problem.dtype, false, *direction, error)
            .map_err(|reason| format!("{name}: {reason}"))?;
        assert_eq!(prepared.probes[*name].len(), 16);
    }
    Ok(())
}

fn mask() -> impl Strategy<Value = Mask> {
    let side = || prop::option::of(0u32..150);
    (side(), side(), any::<bool>()).prop_map(|(left, right, bottom)| Mask {
        left,
        right,
        align: [Align::TopLeft, Align::BottomRight][usize::from(bottom)],
    })
}

/// Lengths near the edges of tiles: 64, 128 and 256.
fn length() -> impl Strategy<Value = u32> {
    prop_oneof![1u32..20, 60u32..70, 120u32..140, 250u32..300]
}

fn problem() -> impl Strategy<Value = Attention> {
    (
        (1u32..3, 1u32..4, 1u32..3, any::<bool>()),
        prop::collection::vec((length(), length()), 1..4),
        (1u32..36, 1u32..36),
        mask(),
        prop::sample::select(Direction::ALL.to_vec()),
    )
        .prop_map(|(sizes, lengths, dims, mask, direction)| {
            let (batch, group, kv_heads, ragged) = sizes;
            let mut problem = Attention {
                batch,
                heads: group * kv_heads,
                kv_heads,
                seq_q: lengths[0].0,
                seq_k: lengths[0].1,
                head_dim_v: dims.1,
                mask,
                direction,
                ..Attention::new(1, dims.0)
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_variant_agrees_with_float64(
        problem in problem(),
        splits in prop_oneof![Just("auto"), Just("-1"), Just("2"), Just("3"), Just("50")],
    ) {
        // A single worker, so that the variants share the reference.
        let mut worker = worker();
        for variant in ["naive", "flash", "split-key"] {
            let mut params = Vec::new();
            if variant == "split-key" {
                params.push(("num_splits_key", splits));
            }
            let request = request(variant, problem.clone(), &params);
            let prepared = worker.prepare(&request).unwrap();
            let verdict = verdict(&problem, &prepared);
            prop_assert!(verdict.is_ok(), "{variant} {splits}: {problem}: {verdict:?}");
        }
    }
}

#[test]
fn where_every_query_sees_one_key_the_gradient_is_zero() {
    let problem: Attention = "s70,d16,window-0-0,both".parse().unwrap();
    for variant in ["naive", "flash", "split-key"] {
        let prepared = worker()
            .prepare(&request(variant, problem.clone(), &[]))
            .unwrap();
        assert_eq!(verdict(&problem, &prepared), Ok(()), "{variant}");
    }
}

#[test]
fn the_split_that_was_asked_for_is_reported() {
    let mut worker = worker();
    for (asked, effective) in [("-1", 1), ("3", 3), ("1000", 4)] {
        let problem: Attention = "s200,d8,bwd".parse().unwrap();
        let params = [("num_splits_key", asked)];
        let prepared = worker
            .prepare(&request("split-key", problem, &params))
            .unwrap();
        assert_eq!(
            prepared.effective["num_splits_key"],
            ParamValue::Int(effective)
        );
        let counts = worker.census(&[]).unwrap().structure.counts;
        assert_eq!(counts["tasks"], effective as u64);
        if effective == 1 {
            assert_eq!(counts["threads"], 1, "one split of one head is one thread");
        }
    }
}

#[test]
fn what_cannot_be_served_is_refused_with_the_reason() {
    let mut worker = worker();
    let mut refuse = |variant: &str, problem: Attention, params: &[(&str, &str)]| {
        worker
            .prepare(&request(variant, problem, params))
            .unwrap_err()
    };
    assert_eq!(
        refuse("naive", "s16,d8,bhsd".parse().unwrap(), &[]).to_string(),
        "unsupported: cpu/naive takes the layout bshd, not bhsd"
    );
    let vast = "b16777216,h16777216,s16777216,d16777216";
    for variant in ["flash", "naive", "split-key"] {
        for size in [vast, "s16000000,h4096,d64", "b16777216,s4096,d64"] {
            let error = refuse(variant, size.parse().unwrap(), &[]);
            assert!(matches!(error, Refusal::Failed(_)), "{variant}: {error}");
        }
    }
}

fn three_sets(samples: u32) -> Measure {
    Measure {
        warmup: 1,
        samples,
        min_samples: 1,
        budget_ms: 60_000,
        cache: Cache::Hot,
        ..Measure::default()
    }
}

/// For every variant and direction, the results of the last timed call are correct for its own
/// inputs, whatever came before it.
#[test]
fn the_last_timed_call_is_checked_on_inputs_of_its_own() {
    let mut worker = worker();
    for id in [
        "b2,h4,kv2,s70,d16",
        "v30+1+70,h2,d8",
        "h1,s40,sk90,d8,causal-br",
    ] {
        for direction in Direction::ALL {
            let problem: Attention = id.parse().unwrap();
            let problem = Attention {
                direction,
                ..problem
            };
            for variant in ["naive", "flash", "split-key"] {
                let request = Prepare {
                    input_sets: 3,
                    ..request(variant, problem.clone(), &[])
                };
                let prepared = worker.prepare(&request).unwrap();
                let measured = worker.measure(&three_sets(4), &mut |_| Ok(false)).unwrap();
                assert_eq!((measured.device_ns.len(), measured.input_sets), (4, 5));
                let checked = measured.checked.unwrap();
                assert_eq!(checked.seed, 43);
                let results = results(direction);
                assert_eq!(checked.errors.len(), results.len());
                for (name, half) in results {
                    let error = checked.errors[*name].relative_l2;
                    let held = tolerable(problem.dtype, false, *half, error);
                    assert_eq!(held, Ok(()), "{problem} {variant} {name}");
                }
                // Another worker with this seed from the start gets the same elements.
                let other = super::worker().prepare(&Prepare {
                    seed: 43,
                    ..request
                });
                assert_eq!(checked.probes, other.unwrap().probes, "{problem} {variant}");
                assert_ne!(checked.probes, prepared.probes);
            }
        }
    }
}

/// A kernel that only computes in its first call; its results stay those of that call.
struct Stale {
    flash: Flash,
    called: [bool; 2],
}

impl CpuKernel for Stale {
    fn forward(&mut self, x: &Operands, saved: &mut SavedTensors, tally: &Tally) {
        if !std::mem::replace(&mut self.called[0], true) {
            self.flash.forward(x, saved, tally);
        }
    }
    fn backward(
        &mut self,
        x: &Operands,
        saved: &SavedTensors,
        gradients: &mut GradientTensors,
        tally: &Tally,
    ) {
        if !std::mem::replace(&mut self.called[1], true) {
            self.flash.backward(x, saved, gradients, tally);
        }
    }
}

#[test]
fn a_result_that_was_kept_is_seen_after_timing() {
    let stale = variant("stale", "", |_, shape| {
        let flash = Flash::new(shape);
        let called = [false; 2];
        Box::new(Stale { flash, called })
    });
    let mut worker = OnProcessor::new("cpu", "1", vec![stale]);
    for direction in Direction::ALL {
        let problem = Attention {
            direction,
            ..Attention::new(40, 16)
        };
        let request = Prepare {
            input_sets: 3,
            ..request("stale", problem.clone(), &[])
        };
        let prepared = worker.prepare(&request).unwrap();
        assert_eq!(verdict(&problem, &prepared), Ok(()));
        let checked = worker
            .measure(&three_sets(5), &mut |_| Ok(false))
            .unwrap()
            .checked
            .unwrap();
        for (name, error) in &checked.errors {
            let error = error.relative_l2.unwrap();
            assert!(error > 0.9, "{direction} {name}: {error}");
        }
    }
}
