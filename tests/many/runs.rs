//! Runs of as many cases as one likes, made and not measured: for what is read, judged and
//! written of them.

use std::collections::BTreeMap;
use std::path::Path;

use regatta_core::machine::{Activity, DeviceState, Launch, Named, Operation, Structure, Work};
use regatta_core::record::run_file::{Opening, RunWriter};
use regatta_core::record::{
    Entry, Fault, Judged, Measurement, Outcome, RunEnd, RunHeader, VerdictOutcome,
};
use regatta_worker::case::{CaseId, ParamValue};
use regatta_worker::protocol::Measured;
use regatta_worker::units::{Bytes, Nanoseconds, quantities};

/// Starts of each worker.
pub const INVOCATIONS: u32 = 5;

/// Samples of a case in each.
pub const SAMPLES: usize = 20;

/// One in so many cases of the head is slower by a fifth, for it lost its blocks.
pub const SLOWER: usize = 1_000;

/// One in so many is faster by a fifth.
const FASTER: usize = 1_500;

/// One in so many failed.
const FAILED: usize = 2_500;

const HEADER: &str = r#"{"schema":4,"method":1,"tool":"0.1.0","argv":["regatta","run","many"],
"started":"2026-11-20T12:00:00Z","suite":{"name":"many","description":"made, not measured"},
"rules":{"expectations":[],"policy":{"threshold":0.05,"allow":[]}},
"settings":{"invocations":5,"warmup":3,"samples":20,"min_samples":5,"budget_ms":500,
"cache":"cold","seed":1,"timeout_s":120},
"machine":{"name":"h200-132sm","hard":{"cuda":"NVIDIA H200","cuda.sms":"132"},"soft":{}},
"workers":[{"name":"cuda","device_kind":"cuda","device":"NVIDIA H200","versions":{}}],"plan":[]}"#;

/// Which of two runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// The older side.
    Base,
    /// The newer side.
    Head,
}

/// Writes a run of so many cases into a folder.
pub fn write(folder: &Path, cases: usize, which: Which) {
    let mut header: RunHeader = serde_json::from_str(HEADER).unwrap();
    header.plan = (0..cases).map(id).collect();
    header.plan.sort();
    let (mut writer, _) = RunWriter::open(folder, &header, &Opening::default()).unwrap();
    for invocation in 0..INVOCATIONS {
        for case in 0..cases {
            writer.append(&entry(case, invocation, which)).unwrap();
        }
    }
    let end = RunEnd {
        finished: header.started,
        judged: Some(Judged {
            base: None,
            outcome: VerdictOutcome::Passed,
            reasons: Vec::new(),
        }),
    };
    writer.finish(end).unwrap();
}

/// The case of a number: eight variants of shapes of every kind.
pub fn id(case: usize) -> CaseId {
    let pick = |below: &mut usize, of: &[&str]| {
        let word = of[*below % of.len()].to_owned();
        *below /= of.len();
        word
    };
    let rest = &mut case.clone();
    let variant = pick(
        rest,
        &["flash-mma", "flash-wgmma", "split-kv", "flash-simt"],
    );
    let dtype = pick(rest, &[",bf16", ",f16"]);
    let head_dim = pick(rest, &["64", "128"]);
    let mask = pick(rest, &["", ",causal"]);
    let direction = pick(rest, &["", ",bwd"]);
    let heads = pick(rest, &["8", "16", "32"]);
    let splits = pick(rest, &["", ":num_splits_key=4"]);
    let seq = 128 * (1 + *rest);
    CaseId(
        format!("cuda/{variant}:h{heads},s{seq},d{head_dim}{dtype}{mask}{direction}{splits}")
            .into(),
    )
}

/// The same number for the same place in every run, within ±1.
pub fn noise(place: [usize; 4]) -> f64 {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for part in place {
        state = (state ^ part as u64).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state ^= state >> 31;
        state = state.wrapping_mul(0x94d0_49bb_1331_11eb);
        state ^= state >> 29;
    }
    (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

fn entry(case: usize, invocation: u32, which: Which) -> Entry {
    let id = id(case);
    let head = which == Which::Head;
    let outcome = if head && case % FAILED == 17 {
        Outcome::Failed {
            reason: "its worker ended (signal 11)".to_owned(),
            fault: Fault::Crash,
            log: "Segmentation fault".to_owned(),
        }
    } else {
        Outcome::Measured(measurement(&id, case, invocation, which))
    };
    Entry {
        case: id,
        invocation,
        outcome,
        start: None,
    }
}

fn measurement(id: &CaseId, case: usize, invocation: u32, which: Which) -> Measurement {
    let side = usize::from(which == Which::Head);
    let slower = side == 1 && case % SLOWER == 5;
    let factor = match () {
        () if slower => 1.2,
        () if side == 1 && case % FASTER == 11 => 0.8,
        () => 1.0,
    };
    let place = |of: usize| [case, side, invocation as usize, of];
    let level = 40_000.0 * (1.0 + (case % 977) as f64) * factor;
    let level = level * (1.0 + 0.004 * noise(place(0)));
    // As events tell it: halves of a microsecond in single precision.
    let device =
        |sample| f64::from((level * (1.0 + 0.01 * noise(place(sample)))) as f32 / 1e6) * 1e6;
    let host = |sample| (9_000.0 + 900.0 * noise(place(100 + sample))).round();
    let backward = id.0.contains(",bwd");
    let results: &[&str] = if backward {
        &["dk", "dq", "dv"]
    } else {
        &["out"]
    };
    let errors = || -> BTreeMap<String, f64> {
        let results = results.iter().enumerate();
        let error = |result| 0.0024 + 1e-6 * noise(place(200 + result));
        results
            .map(|(i, name)| ((*name).to_owned(), error(i)))
            .collect()
    };
    let splits = id.0.contains("num_splits_key");
    let effective = splits.then(|| ("num_splits_key".to_owned(), ParamValue::Int(4)));
    let samples = 1..=SAMPLES;
    Measurement {
        samples: Measured {
            device_ns: quantities(samples.clone().map(device)),
            host_ns: quantities(samples.map(host)),
            clock_mhz: vec![1980.0; SAMPLES],
            peak_bytes: Some(Bytes(1 << (20 + case % 8))),
            state: Some(DeviceState {
                sm_mhz: Some(1980.0),
                memory_mhz: Some(3201.0),
                throttle_bits: Some(0),
                power_w: Some(319.221),
                temperature_c: Some(50.0),
                other_processes: Some(0),
            }),
            input_sets: 3,
            ..Measured::default()
        }
        .kept(),
        first_call_ns: Nanoseconds((2.6e6 * (1.0 + 0.1 * noise(place(300)))).round()),
        effective: effective.into_iter().collect(),
        errors: errors(),
        structure: (invocation == 0).then(|| structure(id, case, slower)),
        activity: (invocation == 0).then(|| Box::new(activity(id, level))),
        errors_after: errors(),
        ..Measurement::default()
    }
}

fn kernel(id: &CaseId) -> String {
    let variant = id.0.split([':', '/']).nth(1).unwrap_or_default();
    format!("{}_kernel_128_64_bf16", variant.replace('-', "_"))
}

fn structure(id: &CaseId, case: usize, slower: bool) -> Structure {
    let launch = |name: String, blocks, registers| Launch {
        name,
        grid: [blocks, 1, 1],
        block: [128, 1, 1],
        registers: Some(registers),
        shared_bytes: Some(65_536),
        local_bytes: Some(0),
        blocks_per_sm: Some(2),
        ..Launch::default()
    };
    let blocks = if slower { 1 } else { 16 + case as u32 % 301 };
    Structure {
        launches: vec![
            launch("fill_kernel".to_owned(), 10, 16),
            launch(kernel(id), blocks, 168),
        ],
        counts: [
            ("allocations", 0),
            ("module_loads", 0),
            ("synchronisations", 0),
        ]
        .map(|(name, count)| (name.to_owned(), count))
        .into(),
        ..Structure::default()
    }
}

fn activity(id: &CaseId, level: f64) -> Activity {
    let ran = |name: String, start_ns, ns| Operation {
        launched_ns: Some(-4_000),
        launch_ns: Some(2_100),
        ..Operation::new(Work::Kernel(Named { name }), start_ns, start_ns + ns)
    };
    Activity {
        operations: vec![
            ran("fill_kernel".to_owned(), 0, 1_500),
            ran(kernel(id), 2_000, level as u64),
        ],
        host_ns: 11_000,
        calls: [("launches".to_owned(), 2)].into(),
        ..Activity::default()
    }
}
