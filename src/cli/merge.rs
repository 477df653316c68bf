//! `regatta merge`: judge all parts of a suite together.

use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::anyhow;
use clap::Args;

use super::history::{Keep, kept};
use super::measuring::reports;
use super::parts::{Judged, Whole, gather};
use super::reporting::{self, Answers, Told};
use super::{Ended, Stop, note};
use regatta::judge::judgement::VerdictOutcome;
use regatta::measure::git::{Checkout, Git as _};
use regatta::measure::laps::{Laps, Monotonic};
use regatta::record::RecordError;
use regatta::record::baseline::Store;
use regatta::record::run_file::RunWriter;
use regatta::record::shards::{Part, day, draft, owed_of};
use regatta::record::spent::Phase;
use regatta::record::types::{Run, short_revision};
use regatta::report::files::{self, check_writable};
use regatta::report::machines::{self, OfMachine};
use regatta::report::text::shell_command;
use regatta::units::counted;

/// Judge all shards of a suite together, and write the run and reports of the whole
///
/// RUN names shards (`--shard I/N` of run, gate and compare), or a folder that holds
/// them: reports/quick/shards. Each says what all of them must hold: one that is lost, empty,
/// twice there, of another revision, suite or kind of machine is named, with the command that
/// measures it, and nothing is judged (exit code 3); nor are shards that were merged before, of
/// which none was measured since. All shards on each of several kinds of machine make a verdict
/// each. Otherwise it ends as the command ends whose shards they are.
#[derive(Args, Debug)]
pub struct MergeArgs {
    /// Shards, or folders of them
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,

    /// Where the run and its reports go [default: the folder that holds the shards' folder]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Judge shards that were merged before, were left by a merge that was stopped, or are of
    /// another revision than this checkout
    #[arg(long)]
    again: bool,

    /// The folder of baselines
    #[arg(long, value_name = "DIR", default_value = "baselines")]
    baselines: PathBuf,

    /// Call an inconclusive result not judged (exit code 3)
    #[arg(long)]
    strict: bool,

    /// No notes on standard error but of what went wrong
    #[arg(long, short)]
    quiet: bool,

    #[command(flatten)]
    keep: Keep,

    #[command(flatten)]
    answers: Answers,
}

/// Runs the command.
///
/// # Errors
/// See [`super::Stop`].
pub fn run(args: &MergeArgs) -> Ended {
    reporting::told(merge(args), &args.answers)
}

fn merge(args: &MergeArgs) -> Ended {
    args.answers.check()?;
    let clock = Monotonic::begin();
    let wholes = gather(&args.runs, args.again).map_err(super::parts::Gap::told)?;
    let several = wholes.len() > 1;
    if several && (args.answers.outputs.any() || args.answers.show.json) {
        return Err(Stop::Usage(anyhow!(
            "the shards are of {} kinds of machine, each with reports of its own; leave out --json \
             and report files, or merge those of one kind",
            wholes.len()
        )));
    }
    if !args.again {
        wholes.iter().try_for_each(refuse_stale)?;
    }
    let suite = &wholes[0].head[0].run.header.suite.name;
    let whole = args.out.clone().or_else(|| wholes[0].folder());
    let whole = whole.unwrap_or_else(|| reports(suite));
    let page = whole.join("index.html");
    if several {
        check_writable(&page).map_err(Stop::usage)?;
    }
    let mut said = Vec::new();
    let mut worst = 0;
    for (place, of_kind) in wholes.iter().enumerate() {
        let name = &of_kind.machine;
        let before = wholes[..place]
            .iter()
            .filter(|other| other.machine == *name);
        let folder = match (several, before.count()) {
            (false, _) => whole.clone(),
            (true, 0) => whole.join(name),
            // Machines of one name that differ in what it does not tell.
            (true, before) => whole.join(format!("{name}-{}", before + 1)),
        };
        let code = conclude(args, of_kind, &folder, &clock, &mut said)?;
        worst = graver(worst, code);
    }
    if several {
        let text = machines::page(suite, outcome(worst), &said).map_err(Stop::not_judged)?;
        files::write(&page, &text).map_err(Stop::not_judged)?;
        if !args.quiet {
            note(format!("report of all: {}", page.display()));
        }
    }
    // Freeing what was read of many cases takes a second, and the process ends here.
    std::mem::forget(wholes);
    Ok(worst)
}

/// Refuses shards of which none was measured since the last merge: whatever was to measure them
/// came to nothing, and they would be taken for what it measured. So it is with those of another
/// revision than that of the checkout this was started in.
fn refuse_stale(whole: &Whole) -> Result<(), Stop> {
    let shards = counted(whole.head.len(), "shard");
    if let Some(merged) = whole.merged() {
        return Err(Stop::NotJudged(anyhow!(
            "the {shards} on {} were merged {}, and none was measured since; measure them anew, or \
             judge the same again: --again",
            whole.machine,
            day(merged),
        )));
    }
    let git = Checkout::at(".");
    let header = &whole.head[0].run.header;
    let (Some(of), None) = (&header.git, &whole.base) else {
        return Ok(());
    };
    let of = of.revision.as_str();
    // Of another repository nothing is known.
    let knows = git.ask(&["cat-file", "-e", of]).is_ok();
    match git.ask(&["rev-parse", "HEAD"]) {
        Ok(here) if knows && here != of => Err(Stop::NotJudged(anyhow!(
            "the {shards} are of revision {}, and this checkout is at {}; measure them anew, or \
             judge them as they are: --again",
            short_revision(of),
            short_revision(&here),
        ))),
        _ => Ok(()),
    }
}

/// What an exit code of a verdict stands for.
fn outcome(code: u8) -> VerdictOutcome {
    let all = [VerdictOutcome::Passed, VerdictOutcome::Failed];
    let found = all.into_iter().find(|outcome| outcome.exit_code() == code);
    found.unwrap_or(VerdictOutcome::NotJudged)
}

/// The graver of two exit codes: 1 wins over 3.
fn graver(one: u8, other: u8) -> u8 {
    let failed = VerdictOutcome::Failed.exit_code();
    match one == failed || other == failed {
        true => failed,
        false => one.max(other),
    }
}

/// Judges all parts on one kind of machine, writes run and reports, and ends the parts' runs
/// where nothing more would decide anything.
fn conclude(
    args: &MergeArgs,
    whole: &Whole,
    folder: &Path,
    clock: &Monotonic,
    said: &mut Vec<OfMachine>,
) -> Ended {
    check_writable(&folder.join("index.html")).map_err(Stop::usage)?;
    refuse_the_folder_of_a_part(whole, folder)?;
    let mut laps = Laps::begin(clock);
    let store = Store::new(&args.baselines);
    let label = folder.display().to_string();
    let headers = whole.headers();
    let runs = match whole.base {
        Some(_) => folder.join("head"),
        None => folder.to_owned(),
    };
    // Of many cases both take seconds; what is drafted is not there until it is kept.
    let (judged, drafted) = thread::scope(|scope| {
        let drafting = scope.spawn(|| {
            let base = whole.base.as_ref().zip(headers.1.as_ref());
            let base = base.map(|(parts, header)| draft(&folder.join("base"), header, parts));
            Ok::<_, RecordError>((base.transpose()?, draft(&runs, &headers.0, &whole.head)?))
        });
        let judged = whole.judged(&headers, &store, args.strict, &label);
        let drafted = drafting.join();
        (judged, drafted.unwrap_or_else(|panic| resume_unwind(panic)))
    });
    let judged = judged?;
    let (base_run, head_run) = drafted.map_err(Stop::not_judged)?;
    laps.end(Phase::Judging);
    let batch = whole.next_batch(&judged);
    let Judged {
        side,
        base,
        judgement,
    } = judged;
    said.push(OfMachine::of(&whole.machine, whole.head.len(), &judgement));
    if let Some(run) = base_run {
        let closed = run.keep().and_then(|mut writer| writer.close());
        closed.map_err(Stop::not_judged)?;
    }
    let writer = head_run.keep().map_err(Stop::not_judged)?;
    let run = Run {
        owed: owed_of(&whole.head),
        ..Run::begun(side.header.clone())
    };
    let told = Told {
        judgement: &judgement,
        run,
        side: &side,
        base: base.as_ref(),
        before: &[],
        measured: None,
        quiet: args.quiet,
    };
    let (ended, closed) = told.tell(folder, writer, laps, &args.answers);
    match batch {
        // What could not be told is judged again.
        None if closed => end(whole),
        Some(batch) if !args.quiet => {
            let words = ["regatta".to_owned(), "next".to_owned()];
            let runs = args.runs.iter().map(|run| run.display().to_string());
            let words: Vec<String> = words.into_iter().chain(runs).collect();
            note(format!(
                "{} of {} cases are not decided; {} says which shards measure more of them",
                batch.undecided.len(),
                whole.cases(),
                shell_command(&words)
            ));
        }
        _ => {}
    }
    if !args.quiet {
        note(format!(
            "{} of {} in {} on {}",
            counted(whole.head.len(), "shard"),
            counted(whole.cases(), "case"),
            whole.head[0].run.header.suite.name,
            whole.machine
        ));
    }
    kept(ended, &args.keep, &runs, args.quiet)
}

/// The run of the whole would take the place of a part's.
fn refuse_the_folder_of_a_part(whole: &Whole, folder: &Path) -> Result<(), Stop> {
    let place = files::place(folder);
    let base = whole.base.iter().flatten();
    let mut parts = whole.head.iter().chain(base);
    match parts.find(|part| {
        part.path
            .ancestors()
            .skip(1)
            .take(2 + usize::from(whole.base.is_some()))
            .any(|of| files::place(of) == place)
    }) {
        None => Ok(()),
        Some(part) => Err(Stop::Usage(anyhow!(
            "{} is where shard {} lies; name another folder for the whole: --out DIR",
            folder.display(),
            part.place()
        ))),
    }
}

/// Ends the runs of the parts, so that the same commands begin anew; one that cannot be written
/// is a copy, or somebody else's.
fn end(whole: &Whole) {
    let base = whole.base.iter().flatten();
    let open = |part: &&Part| part.run.end.is_none();
    for part in whole.head.iter().chain(base).filter(open) {
        let ended = RunWriter::adding(&part.path).and_then(|mut writer| writer.close());
        if let Err(error) = ended {
            note(format!(
                "shard {} was merged, and its run could not be ended: {error}",
                part.place()
            ));
        }
    }
}
