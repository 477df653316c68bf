//! `regatta baseline import`: what another tool measured becomes a baseline.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Args;
use jiff::Timestamp;
use serde_json::json;

use super::super::measuring::{argv, with_log};
use super::super::{Ended, Stop, note, print};
use regatta::attention::CaseId;
use regatta::measure::launcher::Launcher;
use regatta::measure::machine::{fingerprint, worker_record};
use regatta::measure::preflight::variant_of;
use regatta::measure::workers::Processes;
use regatta::record::baseline::Store;
use regatta::record::criterion::{self, Benchmark};
use regatta::record::side::{CaseRecord, Side, Status};
use regatta::record::types::{Imported, RunHeader, SuiteRecord};
use regatta::record::{METHOD_VERSION, RecordError, SCHEMA_VERSION};
use regatta::suite::{self, Cache, Suite};
use regatta::worker::protocol::Hello;

/// Invocations below which the judge calls at most an unmistakable factor.
const FEW: usize = 4;

/// Facts in a run's header of which criterion's files say nothing.
const ASSUMED: [&str; 6] = ["machine", "workers", "clock", "method", "cache", "settings"];

/// Make a baseline of what `cargo bench` measured
///
/// Takes benchmarks whose ids are case ids, such as those of `cargo bench --bench
/// suite`: group `cpu/flash`, function `s1024,d64`. The others are listed.
///
/// Criterion runs in one process, so each of its baselines is one invocation,
/// whatever its samples. Against one, nothing can be called; measure several times
/// under several names, and name them all:
///
///   for n in a b c d e; do cargo bench --bench suite -- --save-baseline $n; done
///   regatta baseline import quick --criterion target/criterion --suite quick \
///     --baseline a --baseline b --baseline c --baseline d --baseline e --machine-here
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct ImportArgs {
    /// The baseline's name; `gate SUITE` looks for the suite's name by default
    name: String,

    /// Criterion's folder, usually target/criterion
    #[arg(long, value_name = "DIR")]
    criterion: PathBuf,

    /// The name under which criterion saved it (may be given several times)
    #[arg(long = "baseline", value_name = "NAME", default_value = "new")]
    saved_as: Vec<String>,

    /// The suite that was benchmarked: its rules, cache and workers are taken, and other
    /// cases left out. Without one: a hot cache, and the workers that regatta knows
    #[arg(long, value_name = "SUITE")]
    suite: Option<String>,

    /// Vouch that it was measured on this machine with the workers of today: criterion's
    /// files do not say
    #[arg(long)]
    machine_here: bool,

    /// Replace the baseline that is there
    #[arg(long)]
    replace: bool,
}

/// What was found, and what of it is no use.
#[derive(Default)]
struct Found {
    /// Values of each invocation, over all baselines named.
    cases: BTreeMap<CaseId, CaseRecord>,
    /// Benchmarks left out, and why.
    skipped: Vec<(String, String)>,
    /// When the first of them was written.
    written: Option<Timestamp>,
}

/// Runs the command.
///
/// # Errors
/// Whatever is wrong with the files or the command line: exit code 2.
pub(super) fn run(store: &Store, args: &ImportArgs, json: bool) -> Ended {
    if !args.machine_here {
        return Err(Stop::Usage(anyhow!(
            "criterion's files do not say on which machine they were measured; if it was this \
             one, with the workers it has now, say so with --machine-here"
        )));
    }
    let suite = load(args)?;
    let mut found = read(args)?;
    if args.suite.is_some() {
        let planned: BTreeSet<CaseId> = suite.cases.iter().map(|case| case.id()).collect();
        found.leave_out(|case| {
            let reason = || format!("it is no case of suite {}", suite.name);
            (!planned.contains(case)).then(reason)
        });
    }
    let hellos = match found.cases.is_empty() {
        true => BTreeMap::new(),
        false => introduced(&found, &suite)?,
    };
    found.leave_out(|case| {
        let case = case.case().ok()?;
        let hello = hellos.get(&case.variant.worker_name())?;
        let unknown = variant_of(&case, hello).err();
        unknown.map(|error| error.to_string())
    });
    for (benchmark, reason) in &found.skipped {
        note(format!("skipped {benchmark}: {reason}"));
    }
    if found.cases.is_empty() {
        return Err(Stop::Usage(anyhow!(
            "none of the {} benchmarks under {} can be used; `cargo bench --bench suite` makes \
             some that can",
            found.skipped.len(),
            args.criterion.display()
        )));
    }
    let side = Side {
        label: args.name.clone(),
        header: header(args, &suite, &found, &hellos),
        cases: found.cases,
        damage: Vec::new(),
    };
    let path = store
        .save(&args.name, &side, Timestamp::now(), args.replace)
        .map_err(|error| match error {
            RecordError::Exists(_) | RecordError::Name(_) => Stop::usage(error),
            _ => Stop::not_judged(error),
        })?;
    let fewest = side.cases.values().map(|case| case.device_ns.len()).min();
    if fewest.is_some_and(|fewest| fewest < FEW) {
        note(format!(
            "invocations a case: {}; with fewer than {FEW} a comparison can hardly call \
             anything: measure again under other names (--save-baseline) and name them all \
             (--baseline)",
            fewest.unwrap_or(0)
        ));
    }
    let (cases, skipped) = (side.cases.len(), found.skipped);
    if json {
        let listed = |(benchmark, reason)| json!({"benchmark": benchmark, "reason": reason});
        let skipped: Vec<_> = skipped.into_iter().map(listed).collect();
        let answer = json!({"saved": path, "cases": cases, "skipped": skipped});
        print(format!("{answer}\n"))?;
    } else {
        print(format!(
            "{}\n  {cases} cases of {} ({}), {} skipped\n",
            path.display(),
            args.criterion.display(),
            args.saved_as.join(", "),
            skipped.len()
        ))?;
    }
    Ok(0)
}

/// The suite that was benchmarked, or one with no cases that stands for none.
fn load(args: &ImportArgs) -> Result<Suite, Stop> {
    let mut suite = match &args.suite {
        Some(suite) => suite::load(suite).map_err(Stop::usage)?,
        None => {
            let mut none = Suite {
                name: "criterion".to_owned(),
                description: "imported, of no suite".to_owned(),
                ..Suite::default()
            };
            // Nothing flushes a cache between the calls of a benchmark.
            none.settings.cache = Cache::Hot;
            none
        }
    };
    suite::configure(&mut suite, Path::new("regatta.toml")).map_err(Stop::usage)?;
    Ok(suite)
}

/// Reads every baseline named. A case counts that is in all of them.
fn read(args: &ImportArgs) -> Result<Found, Stop> {
    let mut found = Found::default();
    let mut all = Vec::new();
    for (nth, name) in args.saved_as.iter().enumerate() {
        if args.saved_as[..nth].contains(name) {
            return Err(Stop::Usage(anyhow!("--baseline {name} is given twice")));
        }
        let cases = found.cases_of(args, name)?;
        if let Some(twin) = all.iter().position(|other| same_times(other, &cases)) {
            return Err(Stop::Usage(anyhow!(
                "{} and {name} hold the same measurement (criterion copies the latest from \
                 `new`): it is one invocation; name it once",
                args.saved_as[twin]
            )));
        }
        all.push(cases);
    }
    let ids: BTreeSet<CaseId> = all.iter().flat_map(BTreeMap::keys).cloned().collect();
    for id in ids {
        let lacking = all.iter().position(|cases| !cases.contains_key(&id));
        if let Some(lacking) = lacking {
            let reason = format!("it is not in {}", args.saved_as[lacking]);
            found.skipped.push((id.to_string(), reason));
            continue;
        }
        for cases in &mut all {
            if let Some(benchmark) = cases.remove(&id) {
                found.add(id.clone(), benchmark);
            }
        }
    }
    Ok(found)
}

/// True when two baselines share cases, and every time of these.
fn same_times(a: &BTreeMap<CaseId, Benchmark>, b: &BTreeMap<CaseId, Benchmark>) -> bool {
    let shared = a.iter().filter_map(|(case, a)| Some((a, b.get(case)?)));
    let mut shared = shared.peekable();
    shared.peek().is_some() && shared.all(|(a, b)| a.invocations == b.invocations)
}

fn absent(args: &ImportArgs, name: &str) -> Result<Stop, Stop> {
    let there = criterion::baselines(&args.criterion).map_err(Stop::usage)?;
    let there: Vec<String> = there.into_iter().collect();
    let hint = match there.is_empty() {
        true => "nor under any other; is it criterion's folder?".to_owned(),
        false => format!("there are: {}", there.join(", ")),
    };
    let folder = args.criterion.display();
    Ok(Stop::Usage(anyhow!(
        "{folder} holds no benchmark under the name {name}; {hint}"
    )))
}

impl Found {
    /// The cases of one baseline; what is no case is skipped.
    fn cases_of(
        &mut self,
        args: &ImportArgs,
        name: &str,
    ) -> Result<BTreeMap<CaseId, Benchmark>, Stop> {
        let benchmarks = criterion::read(&args.criterion, name).map_err(Stop::usage)?;
        if benchmarks.is_empty() {
            return Err(absent(args, name)?);
        }
        let mut cases: BTreeMap<CaseId, Benchmark> = BTreeMap::new();
        for benchmark in benchmarks {
            let folder = benchmark.folder.display().to_string();
            match benchmark.identity.case() {
                Err(reason) => self.skipped.push((folder, reason)),
                Ok(case) => {
                    if let Some(other) = cases.insert(case.clone(), benchmark) {
                        return Err(Stop::Usage(anyhow!(
                            "{} and {folder} are both {case}; remove the one that is out of date",
                            other.folder.display(),
                        )));
                    }
                }
            }
        }
        Ok(cases)
    }

    fn add(&mut self, case: CaseId, benchmark: Benchmark) {
        let empty = || CaseRecord::empty(Status::Measured);
        let record = self.cases.entry(case).or_insert_with(empty);
        record.device_ns.extend(benchmark.invocations);
        record.samples += benchmark.samples;
        let written = benchmark.written.and_then(|time| time.try_into().ok());
        self.written = [self.written, written].into_iter().flatten().min();
    }

    /// Leaves out the cases for which there is a reason.
    fn leave_out(&mut self, mut reason: impl FnMut(&CaseId) -> Option<String>) {
        let skipped = &mut self.skipped;
        self.cases.retain(|case, _| {
            let why = reason(case);
            let keep = why.is_none();
            skipped.extend(why.map(|why| (case.to_string(), why)));
            keep
        });
    }
}

/// Has the workers of the cases introduce themselves: they know the machine.
fn introduced(found: &Found, suite: &Suite) -> Result<BTreeMap<String, Hello>, Stop> {
    let cases = found.cases.keys().filter_map(|case| case.case().ok());
    let names: BTreeSet<String> = cases.map(|case| case.variant.worker_name()).collect();
    let logs = tempfile::tempdir().map_err(Stop::usage)?;
    let folder = logs.path().to_owned();
    let mut processes = Processes::find(names.iter(), suite, None, folder).map_err(Stop::usage)?;
    let mut hellos = BTreeMap::new();
    for name in names {
        let worker = processes.start(&name).map_err(|error| {
            let log = error.log().to_owned();
            Stop::Usage(with_log(error, &log))
        })?;
        hellos.insert(name, worker.hello().clone());
    }
    Ok(hellos)
}

fn header(
    args: &ImportArgs,
    suite: &Suite,
    found: &Found,
    hellos: &BTreeMap<String, Hello>,
) -> RunHeader {
    let invocations = found.cases.values().map(|case| case.device_ns.len()).max();
    let mut settings = suite.settings.clone();
    settings.invocations = invocations.unwrap_or(0) as u32;
    RunHeader {
        identity: None,
        schema: SCHEMA_VERSION,
        method: METHOD_VERSION,
        tool: env!("CARGO_PKG_VERSION").to_owned(),
        argv: argv(),
        started: found.written.unwrap_or_else(Timestamp::now),
        // What was checked out then is not what is checked out now.
        git: None,
        suite: SuiteRecord {
            counts: Vec::new(),
            name: suite.name.clone(),
            description: suite.description.clone(),
            arguments: args.suite.iter().cloned().collect(),
            filter: Vec::new(),
            overrides: suite.overrides.clone(),
        },
        rules: suite.rules.clone(),
        settings,
        machine: fingerprint(hellos),
        workers: hellos
            .iter()
            .map(|(name, hello)| worker_record(name, hello))
            .collect(),
        plan: found.cases.keys().cloned().collect(),
        turn: None,
        shard: None,
        hosts: Vec::new(),
        built: BTreeMap::new(),
        peaks: BTreeMap::new(),
        imported: Some(Imported {
            format: "criterion".to_owned(),
            from: args.criterion.display().to_string(),
            baselines: args.saved_as.clone(),
            assumed: ASSUMED.map(str::to_owned).to_vec(),
        }),
    }
}
