//! Records from outcomes made by hand.

use super::*;
use crate::machine::{Activity, DeviceState, Launch, Named, Operation, Structure};
use crate::metric::Metric;
use crate::record::disturbance::Disturbance;
use crate::record::run_file::{self, Opening, RunWriter};
use crate::record::testing::header;
use crate::record::{BaseId, OpenCases};
use regatta_worker::case::CaseId;
use regatta_worker::protocol::Measured;
use regatta_worker::units::{Bytes, Nanoseconds, numbers, quantities};

const CASE: &str = "cpu/flash:s64,d64";

fn measured(ns: f64) -> Outcome {
    Outcome::Measured(timed([ns]))
}

fn timed(device_ns: impl IntoIterator<Item = f64>) -> Measurement {
    sampled(Measured {
        device_ns: quantities(device_ns),
        ..Measured::default()
    })
}

fn sampled(samples: Measured) -> Measurement {
    Measurement {
        samples,
        first_call_ns: Nanoseconds(1e6),
        ..Measurement::default()
    }
}

fn refused() -> Outcome {
    Outcome::unsupported("no workspace")
}

fn died() -> Outcome {
    Outcome::Failed {
        reason: "it died".to_owned(),
        fault: Fault::Crash,
        log: "ok\nCUDA error: an illegal memory access was encountered".to_owned(),
    }
}

/// A run of one case with these outcomes, each with its invocation, in the file's order.
fn run(outcomes: Vec<(u32, Outcome)>) -> Run {
    let mut header = header();
    header.plan = vec![CaseId(CASE.into())];
    let entries = outcomes.into_iter().map(|(invocation, outcome)| Entry {
        start: None,
        case: CaseId(CASE.into()),
        invocation,
        outcome,
    });
    Run {
        entries: entries.collect(),
        ..Run::begun(header)
    }
}

fn reduced(outcomes: Vec<(u32, Outcome)>) -> CaseRecord {
    Side::from_run("run", &run(outcomes)).cases[&CaseId(CASE.into())].clone()
}

/// Five invocations, and these later ones.
fn five_and(later: Vec<Outcome>) -> Vec<(u32, Outcome)> {
    let five = (0..5).map(|n| measured(f64::from(n) + 1.0));
    (0..).zip(five.chain(later)).collect()
}

fn five() -> Vec<(u32, Outcome)> {
    five_and(Vec::new())
}

#[test]
fn times_stand_in_the_order_of_invocations_whatever_the_files_is() {
    // A torn line of invocation 0, measured again: last in the file.
    let mut outcomes = five();
    outcomes.rotate_left(1);
    let record = reduced(outcomes);
    assert_eq!(numbers(&record.device_ns()), [1.0, 2.0, 3.0, 4.0, 5.0]);
    let order: Vec<u32> = record.invocations.iter().map(|one| one.number).collect();
    assert_eq!(order, [0, 1, 2, 3, 4]);
}

#[test]
fn results_that_nothing_checked_were_not_checked_before_timing() {
    let measurement = || sampled(Measured::default());
    let before = |measurement| {
        let outcomes = vec![(0, Outcome::Measured(measurement))];
        reduced(outcomes).conditions.checked_before_only
    };
    assert_eq!(before(measurement()), 0);
    let checked = Measurement {
        errors: [("y".to_owned(), 0.0)].into(),
        ..measurement()
    };
    assert_eq!(before(checked), 1);
}

#[test]
fn an_invocation_is_one_value_a_metric() {
    let reduced = |measurement| Invocation::reduced(0, &measurement);
    let samples = |number: u32| (1..=number).rev().map(|n| f64::from(10 * n));
    // Samples, and their median and 9th of 10.
    for (number, median, slow) in [
        (0, None, None),
        (1, Some(10.0), None),
        (4, Some(25.0), None),
        (5, Some(30.0), Some(50.0)),
        (9, Some(50.0), Some(90.0)),
        (10, Some(55.0), Some(90.0)),
        (11, Some(60.0), Some(100.0)),
        (20, Some(105.0), Some(180.0)),
    ] {
        let values = reduced(timed(samples(number))).values;
        assert_eq!(values.get(Metric::Device), median, "of {number}");
        assert_eq!(values.get(Metric::DeviceP90), slow, "of {number}");
    }
    let all = reduced(Measurement {
        first_call_ns: Nanoseconds(1e6),
        ..sampled(Measured {
            device_ns: quantities(samples(3)),
            host_ns: quantities([7.0, 9.0, 8.0]),
            host_reference_ns: quantities([2.0, 3.0, 8.0]),
            cpu_ns: quantities([40.0, 20.0, 90.0]),
            peak_bytes: Some(Bytes(4096)),
            ..Measured::default()
        })
    });
    let values: Vec<_> = Metric::ALL.map(|metric| all.values.get(metric)).into();
    let (first, peak) = (Some(1e6), Some(4096.0));
    let wanted = [
        Some(20.0),
        None,
        Some(8.0),
        Some(3.0),
        first,
        peak,
        Some(40.0),
    ];
    assert_eq!(values, wanted);
    // The values are 3.5, 3 and 1; the ratio of the medians is 8/3.
    assert_eq!(all.host_ratio, Some(3.0));
    // Missing measurements have no value, and absent memory is a value.
    let empty = reduced(Measurement::default());
    assert_eq!(empty.values, Values::default());
    assert_eq!(empty.host_ratio, None);
    let nothing = reduced(sampled(Measured {
        peak_bytes: Some(Bytes(0)),
        ..Measured::default()
    }));
    assert_eq!(nothing.values.get(Metric::PeakMemory), Some(1.0));
}

#[test]
fn an_invocation_has_its_threads_and_whether_waits_were_taken_out() {
    let counted = |threads: &[u32], waited_ns: &[f64]| {
        let measured = Measured {
            device_ns: vec![Nanoseconds(1e6); threads.len()],
            threads: threads.to_vec(),
            waited_ns: quantities(waited_ns.iter().copied()),
            ..Measured::default()
        };
        let invocation = Invocation::reduced(0, &sampled(measured));
        (invocation.threads, invocation.waits_taken_out)
    };
    assert_eq!(counted(&[], &[]), (None, false));
    assert_eq!(counted(&[1, 1, 1], &[0.0, 9e5, 0.0]), (Some(1), true));
    assert_eq!(counted(&[1, 1, 1], &[]), (Some(1), false));
    // One sample in ten had another thread beside its own.
    let mut ten = [1; 10];
    ten[3] = 2;
    assert_eq!(counted(&ten, &[0.0; 10]), (Some(1), true));
    ten[7] = 2;
    assert_eq!(counted(&ten, &[0.0; 10]), (Some(1), false));
    assert_eq!(counted(&[2, 3], &[0.0; 2]), (Some(3), false));
    assert_eq!(counted(&[4, 4, 1], &[0.0; 3]), (Some(4), false));
}

#[test]
fn what_other_programs_disturbed_keeps_its_values_and_says_so() {
    let mut outcomes = five();
    let load = Disturbance::ForeignLoad { cores: 1.9, of: 2 };
    for (number, change) in [
        (1, (vec![load.clone()], false)),
        (3, (Vec::new(), true)),
        (0, (vec![load], true)),
    ] {
        let Outcome::Measured(measurement) = &mut outcomes[number].1 else {
            panic!("measured");
        };
        (measurement.disturbed, measurement.first_call_disturbed) = change;
    }
    let record = reduced(outcomes);
    assert_eq!(record.status, Outcome::Measured(()));
    let device = Vec::from_iter(record.values(Metric::Device));
    assert_eq!(device, [1.0, 2.0, 3.0, 4.0, 5.0]);
    let invocations_of = |metric| -> Vec<u32> {
        let all = record.invocations.iter();
        let disturbed = all.filter(|one| one.is_disturbed(metric));
        disturbed.map(|one| one.number).collect()
    };
    for (metric, disturbed) in [
        (Metric::Device, &[0, 1][..]),
        (Metric::DeviceP90, &[0, 1]),
        (Metric::Host, &[0, 1]),
        (Metric::FirstCall, &[0, 3]),
        (Metric::PeakMemory, &[]),
        (Metric::CpuTime, &[]),
    ] {
        assert_eq!(invocations_of(metric), disturbed, "{metric:?}");
    }
    assert_eq!(record.disturbed().count(), 2);
    assert!(record.census_disturbed());
}

#[test]
fn what_is_measured_in_some_invocations_alone_is_missing() {
    let empty = || Outcome::Measured(sampled(Measured::default()));
    let replaced = |places: &[usize], outcome: fn() -> Outcome| {
        let mut outcomes = five();
        for place in places {
            outcomes[*place].1 = outcome();
        }
        outcomes
    };
    let missing = |outcomes, reason: &str| {
        assert_eq!(reduced(outcomes).status, Outcome::missing(reason));
    };
    let says = "unsupported in 2 of 5 invocations: no workspace";
    missing(replaced(&[1, 4], refused), says);
    let says = "unsupported in 1 of 6 invocations: no workspace";
    missing(five_and(vec![refused()]), says);
    let says = "4 of 5 invocations are in the file";
    missing(five().into_iter().take(4).collect(), says);
    // A later one stands in for none.
    let later = five_and(vec![measured(6.0)]);
    missing(later.into_iter().skip(1).collect(), says);
    missing(replaced(&[3], empty), "invocation 3 has no sample");
    let later = five_and(vec![measured(6.0), empty()]);
    missing(later, "invocation 6 has no sample");
    let refused_all = reduced(replaced(&[0, 1, 2, 3, 4], refused));
    assert!(matches!(refused_all.status, Outcome::Unsupported { .. }));
    let more = reduced(five_and(vec![measured(6.0), measured(7.0)]));
    assert_eq!(more.status, Outcome::Measured(()));
    assert_eq!(more.invocations.len(), 7);
}

#[test]
fn one_failure_in_any_invocation_is_a_failure() {
    let later = five_and(vec![measured(6.0), died()]);
    let mut first = five();
    first[0].1 = died();
    let mut beside = five_and(vec![died()]);
    beside[2].1 = refused();
    beside.remove(3);
    for outcomes in [later, first, beside] {
        let status = reduced(outcomes).status;
        assert_eq!(status.fault(), Some(Fault::Crash));
        let reason = status.reason().unwrap();
        assert!(reason.starts_with("it died; its last words: "), "{reason}");
    }
}

/// A parameter, or the kernels of a recorded call, that differ between invocations.
#[test]
fn what_differs_between_invocations_is_kept() {
    use crate::machine::{Named, Part};
    let with = |splits: Option<i64>, kernels: &[&str]| {
        let parts = kernels.iter().map(|name| Part {
            work: Work::Kernel(Named {
                name: (*name).to_owned(),
            }),
            stream: None,
            operator: None,
            ns: Nanoseconds(1.0),
            gap_ns: Nanoseconds(0.0),
            host_ns: None,
        });
        let splits = splits.map(|splits| ("splits".to_owned(), ParamValue::Int(splits)));
        Outcome::Measured(Measurement {
            effective: splits.into_iter().collect(),
            division: Some(Box::new(Division {
                calls: 5,
                time_ns: None,
                parts: parts.collect(),
            })),
            ..timed([1.0])
        })
    };
    let varying = |outcomes: [Outcome; 5]| reduced((0..).zip(outcomes).collect()).varying;
    let flash = || with(Some(157), &["flash"]);
    assert!(varying([flash(), flash(), flash(), flash(), flash()]).is_empty());
    let one = || with(Some(1), &["flash"]);
    let variation = varying([flash(), flash(), one(), flash(), one()]);
    let expected = "157 in invocation 0, 1 in invocation 2";
    assert_eq!(variation["splits"], expected);
    let without = || with(None, &["flash"]);
    let variation = varying([flash(), without(), flash(), flash(), flash()]);
    let expected = "157 in invocation 0, not reported in invocation 1";
    assert_eq!(variation["splits"], expected);
    let more = || with(Some(157), &["flash", "combine"]);
    let variation = varying([flash(), more(), flash(), flash(), flash()]);
    let expected = "1 in invocation 0, 2, with combine in invocation 1";
    assert_eq!(variation["launches"], expected);
}

/// Structure is counted in the first and the third invocation alone.
#[test]
fn what_a_launch_shows_is_what_the_parameter_became() {
    let one = |number: u32, shown: i64| {
        let splits = |splits| [("splits".to_owned(), ParamValue::Int(splits))].into();
        let structure = Structure {
            effective: splits(shown),
            counts: [("tasks".to_owned(), 1)].into(),
            ..Structure::default()
        };
        let access = ("access".to_owned(), ParamValue::Word("views".to_owned()));
        Outcome::Measured(Measurement {
            effective: [access].into(),
            structure: [0, 2].contains(&number).then_some(structure),
            ..timed([1.0])
        })
    };
    let record = reduced((0..5).map(|number| (number, one(number, 157))).collect());
    assert_eq!(record.effective["splits"], ParamValue::Int(157));
    assert_eq!(record.effective.len(), 2);
    assert!(record.varying.is_empty(), "{:?}", record.varying);
}

#[test]
fn a_count_that_one_invocation_alone_has_differs_between_them() {
    let counted = |counts: &[(&str, u64)], uncounted: &[(&str, &str)]| Structure {
        counts: counts
            .iter()
            .map(|(name, n)| ((*name).to_owned(), *n))
            .collect(),
        uncounted: uncounted
            .iter()
            .map(|(name, why)| ((*name).to_owned(), (*why).to_owned()))
            .collect(),
        ..Structure::default()
    };
    let varying = |usual: &Structure, other: &Structure| varying_structure([0, 2], usual, other);
    let copies = counted(&[("copies", 2), ("tasks", 8)], &[]);
    let tasks = counted(&[("tasks", 8)], &[]);
    let variation = varying(&copies, &tasks);
    let how = "2 in invocation 0, not counted in invocation 2";
    assert_eq!(variation, [("copies".to_owned(), how.to_owned())]);
    let how = "not counted in invocation 0, 2 in invocation 2";
    assert_eq!(
        varying(&tasks, &copies),
        [("copies".to_owned(), how.to_owned())]
    );
    let peak = counted(&[("call_peak_bytes", 900), ("tasks", 8)], &[]);
    let why = [("array_operations", "two calls differ")];
    let more = counted(&[("call_peak_bytes", 916), ("tasks", 8)], &why);
    assert_eq!(varying(&peak, &more), [], "evidence for causes");
    let calls = counted(&[("calls.f", 1), ("tasks", 8)], &[]);
    assert_eq!(varying(&calls, &tasks), [], "its module may not be loaded");
    let refused = counted(&[("tasks", 8)], &[("calls.f", "it is not a function")]);
    assert_eq!(varying(&calls, &refused).len(), 1);
}

#[test]
fn a_reason_of_megabytes_is_cut() {
    let outcome = Outcome::failed("é".repeat(3_000_000), Fault::Crash);
    let side = Side::from_run("head", &run(vec![(0, outcome)]));
    let reason = side.cases[&CaseId(CASE.into())].status.reason().unwrap();
    assert!(reason.len() < 17_000 && reason.ends_with('…'));
}

#[test]
fn each_part_has_its_median_and_what_is_not_named_took_nothing() {
    let parts = |name: &str, ns, count| {
        let ns = Nanoseconds(ns);
        Parts::from([(name.to_owned(), Taken { ns, count })])
    };
    let all = [
        parts("compiling", 5.0, 2),
        parts("compiling", 9.0, 4),
        parts("compiling", 7.0, 3),
        parts("loading", 4.0, 1),
        Parts::new(),
    ];
    let medians = median_parts(&all).unwrap();
    let compiling = medians["compiling"];
    assert_eq!((compiling.ns, compiling.count), (Nanoseconds(5.0), 2));
    assert_eq!(medians["loading"].ns, Nanoseconds(0.0));
    let impossible = [parts("compiling", -5.0, 1), parts("compiling", f64::NAN, 1)];
    assert_eq!(
        median_parts(&impossible).unwrap()["compiling"].ns,
        Nanoseconds(0.0)
    );
    assert_eq!(median_parts(&[]), None);
    assert_eq!(median_parts(&[Parts::new()]), Some(Parts::new()));
}

/// Everything that a measurement can hold.
fn full(ns: f64) -> Outcome {
    let ran = Operation::new(Work::Kernel(Named::default()), 0, ns as u64);
    Outcome::Measured(Measurement {
        samples: Measured {
            device_ns: quantities([ns, 2.5 * ns, 0.1 + ns]),
            host_ns: quantities([9.0, 8.0, 7.0]),
            state: Some(DeviceState {
                sm_mhz: Some(1980.0),
                ..DeviceState::default()
            }),
            ..Measured::default()
        },
        first_call_ns: Nanoseconds(1e6),
        effective: [("num_splits_key".to_owned(), ParamValue::Int(157))].into(),
        errors: [("dq".to_owned(), 2e-5), ("dk".to_owned(), 0.5 / ns)].into(),
        structure: Some(Structure {
            launches: vec![Launch {
                name: "a \"kernel\" }".to_owned(),
                ..Launch::default()
            }],
            ..Structure::default()
        }),
        activity: Some(Box::new(Activity {
            operations: vec![ran],
            ..Activity::default()
        })),
        errors_after: [("dq".to_owned(), 1.25e-7)].into(),
        ..Measurement::default()
    })
}

/// Torn and repeated lines, and invocations that are measured last, change no case.
#[test]
fn a_side_is_the_same_in_whatever_order_its_file_is() {
    let plan = [64, 128, 192, 256].map(|seq| CaseId(format!("cpu/a:s{seq},d64").into()));
    let mut run = Run::begun(header());
    run.header.plan = plan.to_vec();
    for invocation in 0..7 {
        for case in &plan[..3] {
            run.entries.push(Entry {
                case: case.clone(),
                invocation,
                outcome: full(100.0 + f64::from(invocation)),
                start: None,
            });
        }
    }
    run.entries[10].outcome = died();
    run.entries[5].outcome = refused();
    run.open = vec![OpenCases {
        base: BaseId {
            name: "s".to_owned(),
            sum: String::new(),
        },
        cases: vec![plan[0].clone()],
        fresh: 3,
    }];
    let ordered = Side::from_run("run", &run);
    run.entries.rotate_left(2);
    let folder = tempfile::tempdir().unwrap();
    let opened = RunWriter::open(folder.path(), &run.header, &Opening::default());
    let (mut writer, _) = opened.unwrap();
    for entry in &run.entries {
        writer.append(entry).unwrap();
    }
    writer.write_open(run.open[0].clone()).unwrap();
    let path = writer.path();
    let mut text = std::fs::read_to_string(path).unwrap();
    let torn = text.lines().nth(5).unwrap()[..90].to_owned();
    let twice = text.lines().nth(6).unwrap().to_owned();
    text += &format!("{torn}\n{twice}\r\n\n");
    writer.check_unchanged().unwrap();
    std::fs::write(path, text).unwrap();
    let changed = writer.check_unchanged().unwrap_err().to_string();
    assert!(changed.contains("another process changed it"), "{changed}");
    let (read, side) = Side::read(path, "run").unwrap();
    assert_eq!(side.cases, ordered.cases);
    assert_eq!(side.damage.len(), 3, "{:?}", side.damage);
    let whole = run_file::read(path).unwrap();
    assert_eq!((&whole.entries, &whole.open), (&run.entries, &run.open));
    assert_eq!(
        read,
        Run {
            entries: Vec::new(),
            ..whole
        }
    );
}
