//! A worker's figures and probes, before timing and after.

use super::*;
use regatta_worker::inputs::probe_indices;
use regatta_worker::protocol::{Cache, TensorError};
use regatta_worker::units::{Bytes, Nanoseconds, quantities};

const SEED: u64 = 7;

fn variant() -> VariantInfo {
    crate::testing::variant("x")
}

type Errors = BTreeMap<String, TensorError>;
type Probes = BTreeMap<String, Vec<Option<f64>>>;

/// The correct results of a worker for the inputs of `seed`.
fn right(problem: &Native, seed: u64) -> (Errors, Probes) {
    let (mut errors, mut probes) = (Errors::new(), Probes::new());
    for (name, whole) in problem.whole(seed).unwrap() {
        let error = TensorError {
            relative_l2: Some(1e-7),
            max_abs: Some(1e-7),
        };
        errors.insert(name.to_owned(), error);
        let single = probe_indices(whole.len() as u64, PROBES, None)
            .map(|index| Some(whole[index as usize]));
        probes.insert(name.to_owned(), single.collect());
    }
    (errors, probes)
}

fn prepared(problem: &Native) -> Prepared {
    let (errors, probes) = right(problem, SEED);
    crate::testing::prepared(errors, probes)
}

fn measured(problem: &Native, of: u64) -> Measured {
    let (errors, probes) = right(problem, of);
    Measured {
        device_ns: vec![Nanoseconds(1e6)],
        input_sets: 3,
        checked: Some(Checked {
            seed: SEED + 1,
            errors,
            probes,
            ..Checked::default()
        }),
        ..Measured::default()
    }
}

fn asked_by(draw: Option<u64>) -> AskedResult {
    AskedResult {
        checks_after: false,
        seed: SEED,
        draw,
        input_sets: 3,
        several: false,
    }
}

/// The verifier's answer for `input_sets` sets of inputs that start at `seed`.
fn after(
    verifier: &mut Verifier,
    problem: &Native,
    seed: u64,
    input_sets: u32,
    of: &Measured,
) -> Result<BTreeMap<String, f64>, Rejected> {
    let asked = AskedResult {
        seed,
        input_sets,
        ..asked_by(Some(1))
    };
    verifier.check_after(problem, asked, &variant(), of)
}

fn problem(id: &str) -> Native {
    id.parse().unwrap()
}

fn cost(id: &str) -> Cost {
    Cost::new(&problem(id).into(), &Operators::new())
}

#[test]
fn figures_that_none_can_be_are_refused_in_words() {
    let problem = problem("s24,d8,both");
    let check = |change: &dyn Fn(&mut Prepared)| {
        let mut prepared = prepared(&problem);
        change(&mut prepared);
        Verifier::default().check(&problem, asked_by(Some(1)), &variant(), &prepared)
    };
    assert_eq!(check(&|_| {}).unwrap().len(), 4);
    use Fault::{Other, WrongResult as Wrong};
    type Change = fn(&mut Prepared);
    #[rustfmt::skip]
    let cases: [(Fault, &str, Change); 12] = [
        (Other, "a first call of -5 ns", |answer| answer.first_call_ns = Nanoseconds(-5.0)),
        (Other, "a first call of 0 ns", |answer| answer.first_call_ns = Nanoseconds(0.0)),
        (Other, "a first call of NaN", |answer| answer.first_call_ns = Nanoseconds(f64::NAN)),
        (Other, "reports 0 problems", |answer| answer.problems = 0),
        (Other, "an error of -5 for dk", |answer| *relative_l2(answer, "dk") = Some(-5.0)),
        (Other, "an error of -1 for out", |answer| answer.errors.get_mut("out").unwrap().max_abs = Some(-1.0)),
        (Wrong, "no error for dv", |answer| answer.errors.retain(|name, _| name != "dv")),
        (Wrong, "0 probes of out", |answer| answer.probes.retain(|name, _| name != "out")),
        (Wrong, "dq has elements that are not finite", |answer| *probe(answer, "dq") = None),
        (Wrong, "relative L2 error 1.0e-1 is above", |answer| *relative_l2(answer, "dq") = Some(0.1)),
        (Wrong, "; the operator is softmax", |answer| *relative_l2(answer, "out") = Some(130.0)),
        (Wrong, "regatta's own float64 check: dq[", |answer| *probe(answer, "dq") = Some(9.0)),
    ];
    for (fault, says, change) in cases {
        let rejected = check(&change).unwrap_err();
        assert!(rejected.reason.contains(says), "{rejected}");
        assert_eq!(rejected.fault, fault, "{rejected}");
        let wrong = rejected.reason.starts_with("wrong result");
        assert_eq!(wrong, fault == Wrong, "{rejected}");
    }
}

fn relative_l2<'a>(of: &'a mut Prepared, name: &str) -> &'a mut Option<f64> {
    &mut of.errors.get_mut(name).unwrap().relative_l2
}

fn probe<'a>(of: &'a mut Prepared, name: &str) -> &'a mut Option<f64> {
    &mut of.probes.get_mut(name).unwrap()[3]
}

/// With a single key `dq` is 0. Six correct kernels on an H200 were once called wrong here.
#[test]
fn noise_where_the_reference_is_zero_is_no_wrong_result() {
    let problem = problem("s1000,sk1,d16,bwd");
    let mut prepared = prepared(&problem);
    let dq = prepared.probes.get_mut("dq").unwrap();
    for probe in dq.iter_mut() {
        *probe = Some(1.9e-7);
    }
    let held = Verifier::default().check(&problem, asked_by(Some(1)), &variant(), &prepared);
    assert!(held.is_ok(), "{held:?}");
    prepared.probes.get_mut("dq").unwrap()[5] = Some(0.01);
    let held = Verifier::default().check(&problem, asked_by(Some(1)), &variant(), &prepared);
    assert_eq!(held.unwrap_err().fault, Fault::WrongResult);
}

#[test]
fn after_timing_the_result_is_held_to_that_of_the_next_seed() {
    let problem = problem("s24,d8,both");
    let mut verifier = Verifier::default();
    let mut held = |asked, of: &Measured| after(&mut verifier, &problem, SEED, asked, of);
    assert_eq!(held(3, &measured(&problem, SEED + 1)).unwrap().len(), 4);
    // Results kept from the first call, reported as correct.
    let rejected = held(3, &measured(&problem, SEED)).unwrap_err();
    assert_eq!(rejected.fault, Fault::WrongResult);
    let says = "wrong result after timing, found by regatta's own float64 check: out[";
    assert!(rejected.reason.starts_with(says), "{rejected}");
    // The same results, reported as wrong.
    let mut stale = measured(&problem, SEED);
    let errors = &mut stale.checked.as_mut().unwrap().errors;
    errors.get_mut("dv").unwrap().relative_l2 = Some(1.4);
    let rejected = held(3, &stale).unwrap_err();
    let says = "wrong result after timing: dv: relative L2 error 1.4e0";
    assert!(rejected.reason.starts_with(says), "{rejected}");
}

#[test]
fn what_was_checked_is_what_was_asked_for() {
    let problem = problem("s24,d8");
    let mut verifier = Verifier::default();
    let mut held = |asked, of: &Measured| after(&mut verifier, &problem, SEED, asked, of);
    // A worker that supports only one set.
    let older = Measured::default();
    assert_eq!(held(3, &older), Ok(BTreeMap::new()));
    let mut other = measured(&problem, SEED + 1);
    other.checked.as_mut().unwrap().seed = SEED;
    let rejected = held(3, &other).unwrap_err();
    assert_eq!(rejected.fault, Fault::Other);
    for seed in ["the inputs of seed 7", "those of seed 8"] {
        assert!(rejected.reason.contains(seed), "{rejected}");
    }
    // One set for lack of memory: the last call was on the first one's inputs.
    let mut short = measured(&problem, SEED);
    short.input_sets = 1;
    short.checked.as_mut().unwrap().seed = SEED;
    let rejected = held(3, &short).unwrap_err();
    assert!(rejected.reason.contains("does not say why"), "{rejected}");
    short.input_sets_reason = Some("no memory for more".to_owned());
    assert_eq!(held(3, &short).unwrap().len(), 1);
    let unchecked = Measured {
        input_sets: 0,
        ..Measured::default()
    };
    assert!(held(3, &unchecked).unwrap_err().reason.contains("0 sets"));
    // Seeds wrap.
    let mut last = measured(&problem, 0);
    last.checked.as_mut().unwrap().seed = 0;
    let wrapped = after(&mut verifier, &problem, u64::MAX, 3, &last);
    assert!(wrapped.is_ok(), "{wrapped:?}");
}

/// A result whose wrong elements are not at the fixed probes.
#[test]
fn probes_are_drawn_anew_and_from_what_was_asked_for() {
    let problem = problem("h4,s64,d32");
    let wrong_of = |draw: Option<u64>| {
        let mut out = problem.whole(SEED).unwrap().remove("out").unwrap();
        // All heads but the first.
        for row in out.chunks_exact_mut(4 * 32) {
            row[32..].fill(0.0);
        }
        let mut answer = prepared(&problem);
        answer.draw = draw;
        let indices = probe_indices(out.len() as u64, PROBES, draw);
        let probes = indices.map(|at| Some(out[at as usize])).collect();
        answer.probes.insert("out".to_owned(), probes);
        let asked = asked_by(draw.or(Some(1)));
        Verifier::default().check(&problem, asked, &variant(), &answer)
    };
    // All fixed probes are in head 0.
    assert!(wrong_of(None).is_ok());
    for draw in 0..20 {
        let reason = wrong_of(Some(draw)).unwrap_err().reason;
        let expected = "wrong result, found by regatta's own";
        assert!(reason.starts_with(expected), "{reason}");
    }
    let mut other = prepared(&problem);
    other.draw = Some(8);
    let rejected = Verifier::default().check(&problem, asked_by(Some(7)), &variant(), &other);
    let reason = rejected.unwrap_err().reason;
    assert_eq!(reason, "the worker drew its probes from 8; `draw` was 7");
}

#[test]
fn a_wrong_call_is_named_by_its_number() {
    let problem = problem("s24,d8");
    let mut wrong = measured(&problem, SEED + 1);
    let checked = wrong.checked.as_mut().unwrap();
    checked.errors.get_mut("out").unwrap().relative_l2 = Some(1.0);
    checked.call = Some(3);
    let rejected = after(&mut Verifier::default(), &problem, SEED, 3, &wrong).unwrap_err();
    let says = "wrong result after timing, in timed call 3: out: relative L2 error 1.0e0";
    assert!(rejected.reason.starts_with(says), "{rejected}");
}

/// The worker reports success, and its result was not checked.
#[test]
fn a_check_that_cannot_be_made_is_never_skipped() {
    let mut verifier = Verifier {
        references: ReferenceCache {
            compute: |_, _, _, bytes| {
                let bytes = bytes.into();
                Err(regatta_worker::operator::TooLarge { bytes })
            },
            ..ReferenceCache::default()
        },
    };
    let small = problem("s24,d8");
    let rejected = verifier
        .check(&small, asked_by(None), &variant(), &prepared(&small))
        .unwrap_err();
    assert_eq!(rejected.fault, Fault::Unchecked);
    let says = "the harness could not check the result: the float64 reference needs 536870912";
    assert!(rejected.reason.starts_with(says), "{rejected}");
    let held = after(&mut verifier, &small, SEED, 3, &measured(&small, SEED + 1));
    assert_eq!(held.unwrap_err().fault, Fault::Unchecked);
    // A result that is wrong by any reference is wrong.
    let mut off = prepared(&small);
    off.errors.get_mut("out").unwrap().relative_l2 = Some(0.1);
    let rejected = verifier
        .check(&small, asked_by(None), &variant(), &off)
        .unwrap_err();
    assert_eq!(rejected.fault, Fault::WrongResult);
    // Too large to recompute by the documented bounds, so the worker's check suffices.
    let large = problem("s16384,d8");
    let held = verifier.check(&large, asked_by(None), &variant(), &prepared(&small));
    assert!(held.is_ok(), "{held:?}");
}

/// A plain request for `samples` samples.
fn asked(samples: u32, min_samples: u32) -> Measure {
    Measure {
        warmup: 0,
        samples,
        min_samples,
        budget_ms: 1,
        cache: Cache::Hot,
        ..Measure::default()
    }
}

fn device(name: &str) -> Device {
    crate::testing::hello("cuda", name, &[]).device
}

#[test]
fn samples_above_the_peak_and_memory_that_no_machine_has_are_refused() {
    let cost = cost("h16,s8192,d128,bf16");
    let held = |name: &str, ns: f64, bytes: u64| {
        let measured = Measured {
            device_ns: vec![Nanoseconds(ns)],
            peak_bytes: Some(Bytes(bytes)),
            ..Measured::default()
        };
        samples(&cost, &device(name), &asked(1, 1), &measured)
    };
    // 0.55 TFLOP in 0.1 ms: 5,500 TFLOP/s.
    let error = held("NVIDIA H200", 1e5, 1 << 37).unwrap_err();
    assert!(error.contains("above the 989.0 TFLOP/s"), "{error}");
    assert_eq!(held("NVIDIA H200", 1e6, 1 << 37), Ok(()));
    assert_eq!(held("abacus", 1e5, 1 << 37), Ok(()));
    let error = held("abacus", 1e6, 1 << 63).unwrap_err();
    let expected = "peak_bytes is 9223372036854775808";
    assert!(error.starts_with(expected), "{error}");
}

/// A function that returns a lazy result, or leaves its work to a thread, returns at once.
#[test]
fn samples_that_no_processor_can_take_are_refused() {
    let mut device = crate::testing::hello("cpu", "abacus", &[]).device;
    device.facts.insert("cores".to_owned(), "2".to_owned());
    let held = |problem: &str, ns: f64| {
        let measured = Measured {
            device_ns: vec![Nanoseconds(ns), Nanoseconds(1e9)],
            ..Measured::default()
        };
        samples(&cost(problem), &device, &asked(2, 2), &measured)
    };
    // A decode has little arithmetic on many keys.
    for (problem, refused, taken, says) in [
        ("s1,d1", 0.1, 30.0, "a sample of 0.10 ns: the clock or"),
        ("s64,d32", 10.0, 1e3, "52.4 TFLOP/s, above the 6.00 TFLOP/s"),
        ("s1,sk8192,d128", 1e3, 1e4, "8390 GB/s, above the 2000 GB/s"),
    ] {
        let error = held(problem, refused).unwrap_err();
        assert!(error.contains(says), "{error}");
        assert!(error.contains("leave work to a thread"), "{error}");
        assert_eq!(held(problem, taken), Ok(()));
    }
}

#[test]
fn a_worker_that_ignores_the_kind_of_sample_is_found_out() {
    let asked = |graph| Measure {
        graph,
        ..asked(1, 1)
    };
    let plain = Measured::default();
    assert_eq!(as_asked(&asked(false), &plain), Ok(()));
    let error = as_asked(&asked(true), &plain).unwrap_err();
    assert!(error.contains("does not replay CUDA graphs"), "{error}");
    let replayed = Measured {
        graph: true,
        ..Measured::default()
    };
    assert_eq!(as_asked(&asked(true), &replayed), Ok(()));
    assert!(as_asked(&asked(false), &replayed).is_err());
}

#[test]
fn samples_that_no_clock_gives_are_refused() {
    let cost = cost("s16,d16");
    let with = |device_ns: &[f64], host_ns: &[f64], clock_mhz: &[f64]| Measured {
        device_ns: quantities(device_ns.iter().copied()),
        host_ns: quantities(host_ns.iter().copied()),
        clock_mhz: clock_mhz.to_vec(),
        ..Measured::default()
    };
    let pair = [1e9, 2e9];
    for (measured, says) in [
        (with(&[], &[], &[]), "no sample"),
        (with(&[0.0, 1e9], &[], &[]), "of 0 ns"),
        (with(&[f64::NAN, 1e9], &[], &[]), "NaN ns"),
        (with(&[1e300, 1e9], &[], &[]), "000 ns"),
        (with(&pair, &[1.0], &[]), "1 of host_ns"),
        (with(&pair, &[1.0, 0.0], &[]), "of 0 ns"),
        (with(&pair, &[1.0, f64::NAN], &[]), "NaN ns"),
        (with(&pair, &[], &[-1980.0, 1980.0]), "-1980 MHz"),
        (with(&pair, &[], &[0.0, 1980.0]), "of 0 MHz"),
        (with(&pair, &[], &[1980.0, 1e308]), "MHz"),
        (with(&pair, &[], &[1980.0; 3]), "3 of clock_mhz"),
    ] {
        let error = samples(&cost, &device("x"), &asked(2, 2), &measured).unwrap_err();
        assert!(error.contains(says), "{error}");
    }
    let waited = |waited_ns: &[f64]| Measured {
        waited_ns: quantities(waited_ns.iter().copied()),
        ..with(&pair, &[], &[])
    };
    let held = |measured| samples(&cost, &device("x"), &asked(2, 2), &measured);
    assert_eq!(held(waited(&[0.0, 5.0])), Ok(()));
    for wrong in [[0.0, -5.0], [0.0, f64::NAN]] {
        let error = held(waited(&wrong)).unwrap_err();
        assert!(error.starts_with("a wait for a core of "), "{error}");
    }
    let plain = with(&pair, &[1.0, 2.0], &[1980.0, 210.0]);
    let one_clock = with(&pair, &[1.0, 2.0], &[1980.0]);
    for measured in [plain, one_clock] {
        let held = samples(&cost, &device("x"), &asked(2, 2), &measured);
        assert_eq!(held, Ok(()));
    }
}

#[test]
fn more_or_fewer_samples_than_asked_for_are_refused() {
    let cost = cost("s16,d16");
    let taken = |count: usize| Measured {
        device_ns: vec![Nanoseconds(1e9); count],
        ..Measured::default()
    };
    let held =
        |count, samples_, min| samples(&cost, &device("x"), &asked(samples_, min), &taken(count));
    for (count, fine) in [(2, false), (3, true), (20, true), (21, false), (500, false)] {
        assert_eq!(held(count, 20, 3).is_ok(), fine, "{count}");
    }
    // A suite that asks for fewer samples than its minimum.
    assert!(held(1, 1, 5).is_ok());
    assert!(held(5, 1, 5).is_ok());
}

#[test]
fn a_worker_that_repeats_checks_its_last_call() {
    let problem = problem("s16,d8");
    let unchecked = Measured {
        input_sets: 3,
        ..Measured::default()
    };
    let asked = |checks_after, input_sets| AskedResult {
        checks_after,
        input_sets,
        ..asked_by(Some(1))
    };
    let held = |asked| {
        let verifier = &mut Verifier::default();
        verifier.check_after(&problem, asked, &variant(), &unchecked)
    };
    assert!(held(asked(false, 3)).is_ok(), "one that does not");
    assert!(held(asked(true, 1)).is_ok(), "on one set of inputs");
    let rejected = held(asked(true, 3)).unwrap_err();
    assert!(rejected.reason.contains("has no `checked`"), "{rejected}");
}
