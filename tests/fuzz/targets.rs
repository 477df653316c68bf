//! Every reader of something from outside, from bytes: what the fuzzers and the test beside
//! them drive.
//!
//! A target reads, and where that succeeds does what regatta would do next: judges, and
//! renders every report. It panics where a promise is broken; a refusal is a fine end.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use regatta_core::record::history::History;
use regatta_core::record::trace::{Trace, file, kineto, raw};
use regatta_core::record::{Run, Side, baseline};
use regatta_core::suite::Metric;
use regatta_core::suite::{self, Settings};
use regatta_cuda::kernels::cache;
use regatta_cuda::{Limits, Offer, PlanRequest};
use regatta_judge::{self as judge, Options, history, trace as traces};
use regatta_measure::machine::{fingerprint, worker_record};
use regatta_measure::{tracing, verify};
use regatta_report::history::Shown;
use regatta_report::{self as report, Format, Report};
use regatta_worker::attention::Attention;
use regatta_worker::case::{Case, Params};
use regatta_worker::operator::{Operators, Problem};
use regatta_worker::protocol::{Cache, Device, Measure, Reply, ReplyBody};
use regatta_worker::units::Bytes;

/// A reader by its name: bytes, and a folder to lay them in.
pub type Target = (&'static str, fn(&Path, &[u8]));

/// All of them.
pub const TARGETS: [Target; 12] = [
    ("suite", suite_file),
    ("requirements", requirements),
    ("case_id", case_id),
    ("run", run),
    ("baseline", baseline_file),
    ("reply", reply),
    ("trace", trace_file),
    ("raw_recording", raw_recording),
    ("kineto", kineto_trace),
    ("ledger", ledger),
    ("contract", contract),
    ("history", history_file),
];

/// The target of this name, in a folder that this process keeps for it.
pub fn target(name: &str, data: &[u8]) {
    thread_local! {
        static FOLDER: tempfile::TempDir = tempfile::tempdir().expect("a temporary folder");
    }
    let target = TARGETS.iter().find(|(target, _)| *target == name);
    let (_, read) = target.expect("a target of TARGETS");
    FOLDER.with(|folder| read(folder.path(), data));
}

fn laid(folder: &Path, name: &str, data: &[u8]) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, data).expect("a file in the temporary folder");
    path
}

/// The same with the checksum of every line put right: otherwise nothing that was changed
/// would come past it.
fn sealed(data: &[u8]) -> Vec<u8> {
    const MARK: &str = ",\"sum\":\"";
    let text = String::from_utf8_lossy(data);
    let lines = text.lines().map(|line| {
        let body = match line.rsplit_once(MARK) {
            Some((body, _)) => body,
            None => line.strip_suffix('}').unwrap_or(line),
        };
        let sum = crc32fast::hash(format!("{body}}}").as_bytes());
        format!("{body}{MARK}{sum:08x}\"}}\n")
    });
    lines.collect::<String>().into_bytes()
}

fn reads_back(case: &Case) {
    let id = case.to_string();
    assert_eq!(id.parse::<Case>().as_ref(), Ok(case), "{id}");
}

/// A message is one line that a terminal shows as it is.
fn is_plain(message: &str) {
    let odd = message.chars().find(|c| c.is_control());
    assert_eq!(odd, None, "{message:?}");
}

fn suite_file(folder: &Path, data: &[u8]) {
    let path = laid(folder, "suite.toml", data);
    match suite::load(&path.to_string_lossy()) {
        Ok(suite) => {
            let mut ids: Vec<String> = suite.cases.iter().map(ToString::to_string).collect();
            ids.dedup();
            assert_eq!(ids.len(), suite.cases.len());
            suite.cases.iter().take(1000).for_each(reads_back);
        }
        Err(error) => is_plain(&error.to_string()),
    }
    if let Err(error) = suite::configure(&mut suite::Suite::default(), &path) {
        is_plain(&error.to_string());
    }
}

fn requirements(folder: &Path, data: &[u8]) {
    let path = laid(folder, "requirements.txt", data);
    let text = format!(
        "[environments.made]\nrequirements = {:?}\n",
        path.to_string_lossy()
    );
    let config = laid(folder, "regatta.toml", text.as_bytes());
    if let Err(error) = suite::configure(&mut suite::Suite::default(), &config) {
        is_plain(&error.to_string());
    }
}

fn case_id(_: &Path, data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(case) = text.parse::<Case>() {
        reads_back(&case);
        let (problem, none) = (&case.problem, Operators::new());
        if problem.native().is_some() {
            assert!(problem.flops(&none) >= Some(0.0) && problem.bytes(&none) > Some(0.0));
            assert!(problem.memory_bytes(&none, true) >= problem.memory_bytes(&none, false));
        }
    }
}

/// Judges a side alone and against itself, and renders every report of it.
fn judged(side: &Side, run: &Run, files: &[PathBuf]) {
    for base in [None, Some(side)] {
        let judgement = judge::judge(side, base, &Options::ALONE);
        let report = Report {
            judgement: &judgement,
            head: run,
            side,
            files,
            base,
            base_files: &[],
        };
        for format in Format::all() {
            let Ok(documents) = report::render(format, &report) else {
                continue;
            };
            for document in documents {
                let legal = |c: char| !c.is_control() || "\n\r\t".contains(c);
                assert!(
                    format != Format::Junit || document.text.chars().all(legal),
                    "XML 1.0 forbids it"
                );
            }
        }
        report::judgement::terminal(&judgement, true).text(false);
    }
}

fn run(folder: &Path, data: &[u8]) {
    let path = laid(folder, "run.jsonl", &sealed(data));
    let Ok((run, side)) = Side::read(&path, "head") else {
        return;
    };
    judged(&side, &run, &[path]);
}

fn baseline_file(folder: &Path, data: &[u8]) {
    let path = laid(folder, "baseline.jsonl", &sealed(data));
    let Ok(side) = baseline::read(&path) else {
        return;
    };
    let run = Run::begun(side.header.clone());
    judged(&side, &run, &[]);
}

fn reply(_: &Path, data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Ok(reply) = serde_json::from_str::<Reply>(&text) else {
        return;
    };
    match reply.body {
        ReplyBody::Hello(hello) => {
            worker_record("w", &hello, &Settings::default());
            fingerprint(&BTreeMap::from([("w".to_owned(), hello)]));
        }
        ReplyBody::Measured(measured) => {
            let device = Device {
                kind: "cuda".to_owned(),
                name: "NVIDIA H200".to_owned(),
                memory_bytes: Bytes(1 << 37),
                facts: BTreeMap::new(),
            };
            let asked = Measure {
                warmup: 1,
                samples: 1 << 20,
                min_samples: 1,
                budget_ms: 1,
                cache: Cache::Cold,
                ..Measure::default()
            };
            let cost = verify::Cost::new(&Problem::example(), &Operators::new());
            let _ = verify::samples(&cost, &device, &asked, &measured);
        }
        ReplyBody::Census(census) => {
            if let Some(activity) = &census.activity {
                activity.summary();
            }
        }
        _ => {}
    }
}

fn trace_file(folder: &Path, data: &[u8]) {
    let path = laid(folder, "a.trace", &sealed(data));
    if let Ok(trace) = file::read(&path) {
        reports(&trace);
    }
}

/// Analyses a trace and holds it against itself, with every report of both.
fn reports(trace: &Trace) {
    let analysis = traces::analyse(&trace.recording);
    report::trace::table(trace, &analysis);
    let _ = report::trace::page(trace, &analysis);
    let comparison = traces::compare(("a", trace), ("b", trace), None);
    report::trace::difference(&comparison, false);
    let _ = report::trace::compared(&comparison, trace, trace);
}

fn kineto_trace(_: &Path, data: &[u8]) {
    let _ = kineto::is(data);
    if let Ok(recording) = kineto::read(data, "a", 100) {
        let at = Timestamp::UNIX_EPOCH;
        reports(&tracing::of_kineto(recording, "a".to_owned(), at));
    }
}

fn raw_recording(folder: &Path, data: &[u8]) {
    let folder = folder.join("raw");
    fs::create_dir_all(&folder).expect("a folder in the temporary folder");
    // Two processes: what stands behind an empty line is the second's.
    let at = data.windows(2).position(|pair| pair == b"\n\n");
    let (first, second) = data.split_at(at.map_or(data.len(), |at| at + 1));
    laid(&folder, "1-1.jsonl", first);
    laid(&folder, "2-1.jsonl", second);
    if let Ok(recording) = raw::read(&folder, 100) {
        traces::analyse(&recording);
    }
}

/// A user's CUDA file: where it is read, the launches of each variant for a few problems.
fn contract(folder: &Path, data: &[u8]) {
    let path = laid(folder, "attention.toml", data);
    let code = laid(folder, "attention.cu", b"");
    let Ok(own) = Offer::read("mine", &code, &path) else {
        return;
    };
    for text in [
        "s128,d64",
        "b2,h8,kv2,s9,sk5,d8,dv4,causal-br,bhsd,f16,both",
    ] {
        let problem: Attention = text.parse().expect("a problem");
        let limits = Limits {
            capability: (9, 0),
            sms: 132,
            l2_bytes: 60 << 20,
            shared_bytes: 232_448,
        };
        let asked = PlanRequest {
            problem: &problem,
            params: &Params::default(),
            limits,
        };
        for variant in own.variants() {
            let _ = own.plan(&variant.name, &asked);
        }
    }
}

fn ledger(folder: &Path, data: &[u8]) {
    let path = laid(folder, "ledger.jsonl", &sealed(data));
    if let Ok(ledger) = regatta_cuda::kernels::ledger::Ledger::read(&path) {
        let built = ledger
            .rows
            .keys()
            .map(|id| (id.file.clone(), id.arch))
            .collect();
        let _ = ledger.compare(&ledger, &built);
    }
    // The same bytes as a compiled kernel of the cache, its checksum put right.
    let key = cache::CacheKey::new("kernel", []);
    let mut image = data.to_vec();
    image.extend(crc32fast::hash(data).to_le_bytes());
    let _ = fs::write(key.path(folder), image);
    cache::load(folder, &key);
}

fn history_file(folder: &Path, data: &[u8]) {
    let root = folder.join("history");
    fs::create_dir_all(root.join("s")).expect("a folder in the temporary folder");
    let path = laid(&root.join("s"), "m.jsonl", &sealed(data));
    if let Ok(history) = History::read(&path)
        && let Some(newest) = history.runs.last()
    {
        for metric in [Metric::Device, Metric::Host] {
            let options = history::Options {
                metric,
                ..history::Options::default()
            };
            let shown = Shown {
                history: &history,
                series: &history::series(&history, metric),
                trends: &history::trends(&history, &options),
                options: &options,
                since: newest.about.at,
                patterns: &[],
                links: &[],
            };
            let text = report::history::text(&shown, false, true);
            text.lines().for_each(is_plain);
            report::history::json(&shown).expect("values are JSON");
            report::history::page(&shown).expect("the template fits");
        }
    }
}
