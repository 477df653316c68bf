//! Scripts of Slurm, written and submitted.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, absolute};

use anyhow::{Context, anyhow};
use jiff::Timestamp;

use super::arguments::{SubmitArgs, text_of};
use super::commands::{asked, cancel, jobs};
use super::waiting::wait;
use crate::cli::measuring::folder;
use crate::cli::{Ended, Stop, interrupt, note, print};
use regatta::record::baseline::Store;
use regatta::record::run_file::{put_aside, stamp};
use regatta::record::shards::SHARDS;
use regatta::report::files;
use regatta::report::text::{one_line, shell_command};
use regatta::submit::queue::{self, SINFO_FORMAT};
use regatta::submit::slurm::{Scripts, Slurm};

/// Folders that no other machine sees, as a rule.
const LOCAL: [&str; 5] = ["/tmp", "/var/tmp", "/dev/shm", "/run", "/scratch/local"];

/// Submits a suite, and waits for its verdict.
///
/// # Errors
/// Whatever is wrong with suite, command line or the scheduler: exit code 2; jobs that end
/// without a verdict: 3.
pub fn submit(args: &SubmitArgs) -> Ended {
    let suite = args.suite()?;
    let folder = folder(&args.measure, &suite.name);
    let gpus = args.gpus(&suite);
    let of = &args.of_slurm;
    let gres = match (of.gres.as_deref(), gpus) {
        (Some("none"), _) | (None, 0) => None,
        (Some(gres), _) => Some(gres.to_owned()),
        (None, gpus) => Some(format!("gpu:{gpus}")),
    };
    let shards = match args.shards {
        Some(shards) => shards,
        None => by_gpus(args, gpus)?,
    };
    let plan = args.plan(&suite, shards, text_of(&folder)?, gpus);
    let place = absolute(&folder)
        .with_context(|| format!("{}", folder.display()))
        .map_err(Stop::Usage)?;
    let program = std::env::current_exe().context("cannot tell where this program is");
    let slurm = Slurm {
        program: text_of(&program.map_err(Stop::Usage)?)?,
        gres,
        partition: of.partition.clone(),
        account: of.account.clone(),
        time: of.time.clone(),
        more: of.sbatch.clone(),
    };
    let scripts = Scripts::of(&plan, &slurm, &text_of(&place)?).map_err(Stop::usage)?;
    if of.dry_run {
        print(scripts.by_hand())?;
        return Ok(0);
    }
    if !args.run && !args.measure.structure_only && args.against.is_empty() {
        has_baseline(args, &suite.name)?;
    }
    interrupt::watch_for(format!(
        "; what was submitted goes on, and the same command waits for it again; to end it: {}",
        cancel(&scripts)
    ));
    if jobs(&scripts)?.iter().any(|job| !job.is_over()) {
        joined(&scripts, args)?;
    } else {
        begin(&scripts, args, &folder, &place)?;
    }
    match of.no_wait {
        true => Ok(0),
        false => wait(&scripts, args.measure.quiet),
    }
}

/// One shard for each GPU that the cluster tells of.
fn by_gpus(args: &SubmitArgs, gpus: u64) -> Result<u32, Stop> {
    let unknown = |why: String| Stop::Usage(anyhow!("say in how many shards, --shards N: {why}"));
    if gpus == 0 {
        return Err(unknown("the suite's workers need no GPU".to_owned()));
    }
    let mut words = ["sinfo", "--noheader", "--Node"]
        .map(str::to_owned)
        .to_vec();
    words.push(format!("--format={SINFO_FORMAT}"));
    let partition = args.of_slurm.partition.as_ref();
    words.extend(partition.map(|name| format!("--partition={name}")));
    let told = asked(&words).map_err(|refused| unknown(refused.to_string()))?;
    let tasks = queue::gpus(&told) / gpus;
    match u32::try_from(tasks) {
        Ok(tasks @ 1..=10_000) => Ok(tasks),
        _ => Err(unknown(format!(
            "`{}` tells of {} on nodes that take work",
            shell_command(&words),
            regatta::units::counted(tasks as usize, "GPU"),
        ))),
    }
}

/// A gate without a baseline would be refused by every task.
fn has_baseline(args: &SubmitArgs, suite: &str) -> Result<(), Stop> {
    let name = args.baseline.as_deref().unwrap_or(suite);
    let store = Store::new(&args.measure.baselines);
    match store.files(name).map_err(Stop::usage)?.is_empty() {
        false => Ok(()),
        true => Err(Stop::NotJudged(anyhow!(
            "there is no baseline `{name}` in {}; make one of a run that passed, or measure \
             without one: --run",
            store.root().display()
        ))),
    }
}

/// Takes up the wait for jobs that are there, if they are those of this command.
fn joined(scripts: &Scripts, args: &SubmitArgs) -> Result<(), Stop> {
    let same = scripts
        .files()
        .iter()
        .all(|(path, text)| fs::read_to_string(path).is_ok_and(|there| there == *text));
    if !same || args.measure.fresh {
        return Err(Stop::Usage(anyhow!(
            "{} was submitted otherwise, and its jobs are not at their end; wait for them, name \
             another folder (--out), or end them: {}",
            scripts.folder,
            cancel(scripts)
        )));
    }
    if !args.measure.quiet {
        note("it was submitted before, and goes on");
    }
    Ok(())
}

/// Writes the scripts and submits them.
fn begin(scripts: &Scripts, args: &SubmitArgs, folder: &Path, place: &Path) -> Result<(), Stop> {
    let say = |text: String| {
        if !args.measure.quiet {
            note(text);
        }
    };
    if let Some(local) = LOCAL.iter().find(|local| place.starts_with(local)) {
        say(format!(
            "{} is on this machine alone, if {local} is here what it is elsewhere; the nodes \
             have to see this folder: --out DIR",
            place.display()
        ));
    }
    set_aside(scripts, args, folder)?;
    for (path, text) in scripts.files() {
        files::write(Path::new(&path), text).map_err(Stop::usage)?;
    }
    let submitted = |words: Vec<String>| {
        let told = asked(&words).map_err(|refused| {
            let said = refused.to_string();
            // Of a worker that is not regatta's nobody knows on what it computes.
            let hint = match said.contains("generic resource") {
                true => "; --gpus says how many of them a task needs, and 0 that it needs none",
                false => "",
            };
            Stop::Usage(anyhow!("{said}{hint}"))
        })?;
        // With several clusters: `12;cluster`.
        let job = told.trim().split(';').next().unwrap_or_default().to_owned();
        match job.parse::<u64>() {
            Ok(_) => Ok(job),
            Err(_) => Err(Stop::Usage(anyhow!(
                "`{}` answered {:?}, which is no job",
                shell_command(&words),
                one_line(&told)
            ))),
        }
    };
    let array = submitted(scripts.submit_tasks())?;
    let behind = submitted(scripts.submit_behind(&array)).inspect_err(|_| {
        let _ = asked(&["scancel".to_owned(), array.clone()]);
    })?;
    say(format!(
        "submitted: array {array}, and job {behind} behind it; scripts and logs are in {}",
        scripts.folder
    ));
    if args.of_slurm.no_wait {
        print(format!(
            "array {array} measures, job {behind} judges; the exit code will be in {}\n",
            scripts.exit_code
        ))?;
        say(format!(
            "the same command without --no-wait waits for it; to end it: {}",
            cancel(scripts)
        ));
    }
    Ok(())
}

/// Leaves nothing that could be taken for this submission's: what an earlier one came to, and its
/// shards where it came to its end or is to be begun anew.
fn set_aside(scripts: &Scripts, args: &SubmitArgs, folder: &Path) -> Result<(), Stop> {
    let cannot = |path: &Path| {
        let context = format!("cannot put away {}", path.display());
        move |error| Stop::Usage(anyhow::Error::new(error).context(context))
    };
    let exit_code = Path::new(&scripts.exit_code);
    // One that could not be decided goes on.
    let decided = matches!(
        fs::read_to_string(exit_code).as_deref().map(str::trim),
        Ok("0" | "1")
    );
    let shards = folder.join(SHARDS);
    if (decided || args.measure.fresh) && shards.exists() {
        let name = format!("{SHARDS}-{}", stamp(Timestamp::now()));
        put_aside(&shards, &name).map_err(|error| {
            let context = format!("cannot put away {}", shards.display());
            Stop::Usage(anyhow::Error::new(error).context(context))
        })?;
    }
    let codes = fs::read_dir(&scripts.folder)
        .into_iter()
        .flatten()
        .flatten();
    let codes = codes.map(|entry| entry.path());
    let codes = codes.filter(|path| path.extension().is_some_and(|ending| ending == "code"));
    for path in codes.chain([exit_code.to_owned()]) {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(cannot(&path)(error)),
            _ => {}
        }
    }
    Ok(())
}
