//! `regatta build`: compiles every kernel for every architecture, without a GPU, and lists the
//! resources of each entry point; or runs the build of a suite. Both report the time of building.

mod suite;
mod table;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use rayon::prelude::*;
use serde_json::{Value, json};

use table::{FileOutcome, images, rows};

use super::{Ended, Stop, note, print, print_json};
use regatta_core::record::Built;
use regatta_cuda::kernels::arch::{self, Arch};
use regatta_cuda::kernels::compile::{BuildError, Compiler, image};
use regatta_cuda::kernels::ledger::{BuiltFiles, Ledger, LedgerComparison};
use regatta_cuda::kernels::source::{FILES, KernelSource, refuses};
use regatta_report::document::{Block, Document};
use regatta_worker::units::counted;

/// Compile the kernels or a suite's code, and show what that takes
///
/// Kernels: the resource usage of each entry point, with no GPU. A suite (its name or path): how
/// long its `[build]` takes, checked against its limits on builds.
///
/// Exits 0 when everything is built, 1 when something is not, or takes more than `--baseline` or
/// the suite allows, 2 without a compiler, 3 when the baseline is of another compiler.
#[derive(Args, Debug)]
pub struct BuildArgs {
    /// A suite, or kernel files [default: all of regatta's]
    ///
    /// A file is a name such as `flash_mma`, or the path of a .cu file with its headers beside it.
    #[arg(value_name = "FILE")]
    files: Vec<String>,

    /// Architectures: sm_80,sm_90a
    ///
    /// By default those of the baseline, or of the GPUs here, or else sm_80,sm_90a,sm_100.
    #[arg(long, value_name = "ARCH", value_delimiter = ',')]
    arch: Vec<Arch>,

    /// nvrtc or nvcc [default: that of the baseline, or nvrtc]
    #[arg(long, value_parser = compilers(), hide_possible_values = true)]
    compiler: Option<Compiler>,

    /// Compile even what the cache has
    #[arg(long)]
    no_cache: bool,

    /// Write the resource usage to this file, replacing it
    #[arg(long, value_name = "FILE", conflicts_with = "baseline")]
    save: Option<PathBuf>,

    /// Fail when an entry point takes more than in this file
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,

    /// Machine-readable output
    #[arg(long)]
    pub json: bool,

    /// No progress
    #[arg(long, short)]
    quiet: bool,
}

impl BuildArgs {
    /// The first argument that only applies to kernels.
    fn of_kernels(&self) -> Option<&str> {
        let given = [
            (self.files.len() > 1, "another file"),
            (!self.arch.is_empty(), "--arch"),
            (self.compiler.is_some(), "--compiler"),
            (self.no_cache, "--no-cache"),
            (self.save.is_some(), "--save"),
            (self.baseline.is_some(), "--baseline"),
        ];
        let mut given = given.into_iter();
        given.find_map(|(is_given, word)| is_given.then_some(word))
    }
}

fn compilers() -> impl TypedValueParser<Value = Compiler> {
    PossibleValuesParser::new(Compiler::ALL.map(Compiler::name))
        .try_map(|name| name.parse::<Compiler>())
}

/// Runs the command.
///
/// # Errors
/// See [`super::Stop`].
pub fn run(args: &BuildArgs) -> Ended {
    if let Some(name) = args.files.iter().find(|name| suite::is_one(name)) {
        return match args.of_kernels() {
            None => suite::run(name, args.json),
            Some(other) => Err(Stop::Usage(format!(
                "{name} is a suite, and {other} concerns kernels; build one at a time"
            ))),
        };
    }
    let base = args.baseline.as_deref().map(Ledger::read).transpose();
    let base = base.map_err(Stop::usage)?;
    let sources = sources(&args.files)?;
    let archs = archs(args, base.as_ref());
    let compiler = args.compiler.unwrap_or_else(|| compiler_of(base.as_ref()));
    let jobs = jobs(args, &sources, &archs)?;
    let began = Instant::now();
    let outcomes = built(&jobs, compiler, args)?;
    let wall_ns = began.elapsed().into();
    let compiles = images(&outcomes).any(|image| !image.cached);
    let took = compiles.then_some(Built { wall_ns });

    let rows = outcomes.iter().flat_map(rows);
    let name = images(&outcomes).next().map(|image| image.compiler.clone());
    let ledger = Ledger::new(&name.unwrap_or_else(|| compiler.to_string()), rows);
    let failed = outcomes.iter().any(|outcome| outcome.image.is_err());
    let comparison = base.map(|base| base.compare(&ledger, &compiled(&outcomes)));
    let shown = (took.as_ref(), comparison.as_ref());
    show(args, &outcomes, &ledger, shown)?;
    if failed {
        return Ok(1);
    }
    if let Some(path) = &args.save {
        ledger.write(path).map_err(Stop::usage)?;
        let number = ledger.rows.len();
        note(format!("{} holds {number} entry points", path.display()));
    }
    match comparison {
        Some(Err(why)) => Err(Stop::NotJudged(why)),
        Some(Ok(comparison)) => Ok(u8::from(comparison.is_worse())),
        None => Ok(0),
    }
}

fn sources(files: &[String]) -> Result<Vec<KernelSource>, Stop> {
    if files.is_empty() {
        let all = FILES.iter().map(|file| KernelSource::embedded(file.name));
        return Ok(all.flatten().collect());
    }
    files.iter().map(|file| source(file)).collect()
}

fn source(file: &str) -> Result<KernelSource, Stop> {
    if let Some(source) = KernelSource::embedded(file) {
        return Ok(source);
    }
    if file.ends_with(".cu") {
        return regatta_cuda::source(Path::new(file)).map_err(Stop::Usage);
    }
    let names = FILES.map(|file| file.name);
    Err(Stop::Usage(format!(
        "unknown kernel file `{file}`; give one of {}, or the path of a .cu file",
        names.join(", ")
    )))
}

fn archs(args: &BuildArgs, base: Option<&Ledger>) -> Vec<Arch> {
    let mut archs = args.arch.clone();
    if archs.is_empty() {
        let rows = base.into_iter().flat_map(|base| base.rows.keys());
        archs = rows.map(|id| id.arch).collect();
    }
    if archs.is_empty() {
        archs = arch::present();
    }
    if archs.is_empty() {
        archs = vec![Arch::SM_80, Arch::SM_90A, Arch::SM_100];
    }
    archs.sort();
    archs.dedup();
    archs
}

fn compiler_of(base: Option<&Ledger>) -> Compiler {
    let name = base.and_then(|base| base.compiler.split(' ').next());
    name.and_then(|name| name.parse().ok()).unwrap_or_default()
}

type Job<'a> = (&'a KernelSource, Arch);

/// The jobs that can be compiled. An empty list is an error.
fn jobs<'a>(
    args: &BuildArgs,
    sources: &'a [KernelSource],
    archs: &[Arch],
) -> Result<Vec<Job<'a>>, Stop> {
    let (mut jobs, mut refused) = (Vec::new(), Vec::new());
    for source in sources {
        let mut whys: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for &arch in archs {
            match refuses(&source.name, arch) {
                None => jobs.push((source, arch)),
                Some(why) => whys.entry(why).or_default().push(arch.to_string()),
            }
        }
        let missing = |(why, archs): (String, Vec<String>)| {
            format!("{} for {}: {why}", source.name, archs.join(", "))
        };
        refused.extend(whys.into_iter().map(missing));
    }
    if jobs.is_empty() {
        refuse!("nothing to build: {}", refused.join("; "));
    }
    if !refused.is_empty() && !args.quiet && !args.json {
        note(format!("not built: {}", refused.join("; ")));
    }
    Ok(jobs)
}

/// Compiles on every core. A missing compiler, an unknown architecture or a folder that cannot be
/// written is not a kernel's fault, and ends the command.
fn built(jobs: &[Job], compiler: Compiler, args: &BuildArgs) -> Result<Vec<FileOutcome>, Stop> {
    if !args.quiet && !args.json {
        note(format!("building {}", counted(jobs.len(), "cubin")));
    }
    let build = |(source, arch): &Job| FileOutcome {
        file: source.name.clone(),
        arch: *arch,
        image: image(source, *arch, compiler, args.no_cache),
    };
    let outcomes: Vec<FileOutcome> = jobs.par_iter().map(build).collect();
    let (mut kept, mut stop) = (Vec::new(), None);
    for outcome in outcomes {
        match outcome.image {
            Ok(_) | Err(BuildError::Rejected { .. }) => kept.push(outcome),
            Err(error) => stop = stop.or(Some(error)),
        }
    }
    stop.map_or(Ok(kept), |error| Err(Stop::usage(error)))
}

fn compiled(outcomes: &[FileOutcome]) -> BuiltFiles {
    let done = outcomes.iter().filter(|outcome| outcome.image.is_ok());
    done.map(|outcome| (outcome.file.clone(), outcome.arch))
        .collect()
}

fn show(
    args: &BuildArgs,
    outcomes: &[FileOutcome],
    ledger: &Ledger,
    (took, comparison): (Option<&Built>, Option<&Result<LedgerComparison, String>>),
) -> Result<(), Stop> {
    if args.json {
        let mut text = answer(outcomes, ledger, comparison);
        if let Some(took) = took {
            text["built"] = json!(took);
        }
        print_json(&text)?;
        return Ok(());
    }
    // The verdict comes first, as for a run.
    let mut document = match comparison {
        Some(Ok(comparison)) => table::comparison(comparison),
        _ => Document::default(),
    };
    let builds = table::builds(outcomes, &ledger.compiler);
    let took = took.map(|took| Block::Note(format!("compiled in {took}")));
    document.body.extend(builds.into_iter().chain(took));
    print(document.text(true)).map(drop)
}

fn answer(
    outcomes: &[FileOutcome],
    ledger: &Ledger,
    comparison: Option<&Result<LedgerComparison, String>>,
) -> Value {
    let builds = outcomes.iter().map(|outcome| {
        let (file, arch) = (&outcome.file, outcome.arch);
        match &outcome.image {
            Ok(image) => json!({
                "file": file,
                "arch": arch,
                "seconds": image.seconds,
                "cached": image.cached,
                "cubin_bytes": image.cubin.len(),
                "warnings": image.warnings,
                "entries": rows(outcome),
            }),
            Err(error) => json!({ "file": file, "arch": arch, "error": error.to_string() }),
        }
    });
    let builds: Vec<Value> = builds.collect();
    let mut answer = json!({ "compiler": ledger.compiler, "builds": builds });
    match comparison {
        Some(Ok(comparison)) => answer["comparison"] = json!(comparison),
        Some(Err(why)) => answer["not_comparable"] = json!(why),
        None => {}
    }
    answer
}
