//! Waiting for jobs of Slurm, and for what they come to.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::anyhow;

use super::commands::{asked, cancel, jobs};
use crate::cli::{Ended, Stop, note, print};
use regatta::submit::queue::{Listed, newest_array, progress};
use regatta::submit::slurm::{ANSWER, SAID, Scripts};

/// How long after a question the next one is asked: first and at the most. The controller serves
/// all users of a cluster.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(10)];

/// A controller that is restarted does not answer for so long.
const SILENCE: Duration = Duration::from_secs(600);

/// A file system that machines share shows a file of another one late.
const LAG: Duration = Duration::from_secs(65);

/// Waits until all jobs of the scripts have ended, and tells what they came to.
///
/// # Errors
/// When they end without a verdict, or Slurm does not answer: exit code 3.
pub fn wait(scripts: &Scripts, quiet: bool) -> Ended {
    let mut pause = PAUSES[0];
    let mut said = String::new();
    let mut silent: Option<Instant> = None;
    let mut ended: Option<Instant> = None;
    loop {
        if let Some(code) = exit_code(scripts) {
            return tell(scripts, code);
        }
        let jobs = match jobs(scripts) {
            Ok(jobs) => {
                silent = None;
                jobs
            }
            Err(stop) => {
                let since = *silent.get_or_insert_with(Instant::now);
                if since.elapsed() > SILENCE {
                    return Err(stop);
                }
                if let (Stop::NotJudged(error), true) = (&stop, since.elapsed() < pause) {
                    note(format!("{error:#}; asking again"));
                }
                sleep(pause);
                pause = longer(pause);
                continue;
            }
        };
        if jobs.iter().all(Listed::is_over) {
            let since = *ended.get_or_insert_with(Instant::now);
            let comes = last(&jobs).is_some_and(Listed::ended_by_itself);
            if (!comes && exit_code(scripts).is_none()) || since.elapsed() > LAG {
                return Err(without_verdict(scripts, &jobs));
            }
        } else {
            ended = None;
            let now = progress(&jobs);
            if now != said && !quiet {
                note(&now);
                said = now;
                // What moves is looked at more often.
                pause = PAUSES[0];
            }
        }
        sleep(pause);
        pause = longer(pause);
    }
}

fn longer(pause: Duration) -> Duration {
    pause.mul_f64(1.25).min(PAUSES[1])
}

/// The job that was submitted last.
fn last(jobs: &[Listed]) -> Option<&Listed> {
    jobs.iter().max_by_key(|job| job.job)
}

/// The exit code of the whole, once it is there.
fn exit_code(scripts: &Scripts) -> Option<u8> {
    let text = fs::read_to_string(&scripts.exit_code).ok()?;
    text.trim().parse().ok()
}

/// Prints what `merge` printed, and gives its exit code.
fn tell(scripts: &Scripts, code: u8) -> Ended {
    let read = |name| fs::read_to_string(Path::new(&scripts.folder).join(name));
    if let Ok(said) = read(SAID)
        && !said.trim().is_empty()
    {
        note(said.trim_end());
    }
    if let Ok(answer) = read(ANSWER) {
        print(answer)?;
    }
    match code {
        0..=3 => Ok(code),
        code => Err(Stop::NotJudged(anyhow!(
            "`regatta merge` ended with {code}: {}/behind.log",
            scripts.folder
        ))),
    }
}

/// What is known of jobs that ended before there was a verdict.
fn without_verdict(scripts: &Scripts, jobs: &[Listed]) -> Stop {
    let tasks = newest_array(jobs);
    let by_themselves = tasks.iter().filter(|task| task.ended_by_itself()).count();
    let known = match last(jobs) {
        None => "Slurm knows no job of it any more".to_owned(),
        Some(job) => format!(
            "job {} is {}{}; {by_themselves} of {} of the last array ended by themselves",
            job.job,
            job.state,
            details(job.job),
            regatta::units::counted(tasks.len(), "task"),
        ),
    };
    Stop::NotJudged(anyhow!(
        "the jobs ended without a verdict: {known}. Logs are in {}; the same command goes on with \
         what is left (what may still be there ends by: {})",
        scripts.folder,
        cancel(scripts)
    ))
}

/// What `scontrol` adds to a job's state: ` (Reason=..., ExitCode=...)`.
fn details(job: u64) -> String {
    let words = ["scontrol", "show", "job", &job.to_string()].map(str::to_owned);
    let told = asked(&words).unwrap_or_default();
    let wanted = ["Reason=", "ExitCode=", "RunTime=", "NodeList="];
    let mut fields: Vec<&str> = Vec::new();
    for prefix in wanted {
        let mut all = told.split_whitespace();
        let found = all.find(|field| field.starts_with(prefix));
        fields
            .extend(found.filter(|field| !field.ends_with("=None") && !field.ends_with("(null)")));
    }
    match fields.is_empty() {
        true => String::new(),
        false => format!(" ({})", fields.join(", ")),
    }
}
