//! A results folder of airspeed velocity, for `asv compare` and `asv publish`:
//! <https://asv.readthedocs.io/en/stable/dev.html#file-formats>

use std::path::PathBuf;

use serde_json::{Map, Value, json};

use super::{invocations, timed};
use crate::names::plain_name;
use crate::report::exporter::{RenderError, Report};

/// What its files are of: asv reads no other.
const RESULTS: u32 = 2;
const MACHINE: u32 = 1;
/// The name of the environment that it is told.
const ENVIRONMENT: &str = "regatta";

/// The files of a run, by their paths in a results folder: those of the machine and of the
/// commit. Which benchmarks there are is in [`benchmarks`].
///
/// # Errors
/// Where the run is of no commit, which asv orders results by: the reason.
pub fn results(report: &Report) -> Result<Vec<(PathBuf, String)>, RenderError> {
    let header = &report.head.header;
    let Some(git) = &header.git else {
        return Err(RenderError::Table {
            name: "asv",
            problem: "the run is of no commit, and asv orders results by commits".to_owned(),
        });
    };
    let machine = plain_name(&header.machine.name);
    let fact = |name: &str| {
        let found = header.machine.hard.get(name);
        found
            .or(header.machine.soft.get(name))
            .cloned()
            .unwrap_or_default()
    };
    let about = json!({
        "arch": std::env::consts::ARCH,
        "cpu": fact("cpu"),
        "gpu": fact("gpu"),
        "machine": machine,
        "num_cpu": fact("cpu.cores"),
        "os": "Linux",
        "ram": "",
        "version": MACHINE,
    });
    let results = timed(report).map(|(case, timing)| {
        let samples: Vec<f64> = invocations(timing)
            .iter()
            .map(|time| time.seconds())
            .collect();
        let value = json!([
            [timing.median_ns.seconds()],
            [],
            "1",
            header.started.as_millisecond(),
            null,
            [samples]
        ]);
        (name(report, case), value)
    });
    let mut params = about.as_object().cloned().unwrap_or_default();
    params.remove("version");
    params.insert("python".to_owned(), "".into());
    let commit = json!({
        "commit_hash": git.revision,
        "env_name": ENVIRONMENT,
        "date": header.started.as_millisecond(),
        "params": params,
        "python": "",
        "requirements": {},
        "env_vars": {},
        "result_columns": ["result", "params", "version", "started_at", "duration", "samples"],
        "results": results.collect::<Map<_, _>>(),
        "durations": {},
        "version": RESULTS,
    });
    let short: String = git.revision.chars().take(8).collect();
    let folder = PathBuf::from(&machine);
    Ok(vec![
        (folder.join("machine.json"), text(&about)?),
        (
            folder.join(format!("{short}-{ENVIRONMENT}.json")),
            text(&commit)?,
        ),
    ])
}

/// `benchmarks.json` with the cases of a run, beside those that another run put there.
///
/// # Errors
/// None that its values could bring about.
pub fn benchmarks(report: &Report, there: Option<Value>) -> Result<String, RenderError> {
    let mut all = match there {
        Some(Value::Object(there)) => there,
        _ => Map::new(),
    };
    for (case, _) in timed(report) {
        let name = name(report, case);
        let benchmark = json!({
            "code": case,
            "name": name,
            "param_names": [],
            "params": [],
            "timeout": 0,
            "type": "time",
            "unit": "seconds",
            "version": "1",
        });
        all.insert(name, benchmark);
    }
    all.insert("version".to_owned(), RESULTS.into());
    text(&all.into())
}

fn name(report: &Report, case: &str) -> String {
    format!("{}.{case}", report.judgement.suite)
}

fn text(value: &Value) -> Result<String, RenderError> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}
