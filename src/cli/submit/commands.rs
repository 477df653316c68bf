//! The commands of Slurm, run.

use std::io::ErrorKind;
use std::process::{Command, Stdio};

use anyhow::anyhow;

use crate::cli::Stop;
use regatta::report::text::{one_line, shell_command};
use regatta::submit::queue::{self, Listed, SQUEUE_FORMAT};
use regatta::submit::slurm::Scripts;

/// What ends all jobs of these scripts.
pub fn cancel(scripts: &Scripts) -> String {
    format!("scancel --me --name={}", scripts.name)
}

/// All jobs of these scripts that Slurm knows, those that ended a while ago included.
///
/// # Errors
/// When Slurm cannot be asked: exit code 3, or 2 where there is none.
pub fn jobs(scripts: &Scripts) -> Result<Vec<Listed>, Stop> {
    let mut words = ["squeue", "--me", "--noheader", "--array", "--states=all"]
        .map(str::to_owned)
        .to_vec();
    words.push(format!("--name={}", scripts.name));
    words.push(format!("--format={SQUEUE_FORMAT}"));
    match asked(&words) {
        Ok(told) => Ok(queue::listed(&told)),
        Err(refused @ Refused::NotThere(_)) => Err(Stop::Usage(anyhow!("{refused}"))),
        Err(refused) => Err(Stop::NotJudged(anyhow!("{refused}"))),
    }
}

/// Why a command of Slurm gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// There is no such program.
    #[error(
        "there is no `{0}` here; run this where jobs are submitted from (a login node), or print \
         the scripts: --dry-run --shards N"
    )]
    NotThere(String),
    /// It did not start, or ended with another code than 0.
    #[error("`{0}` failed: {1}")]
    Failed(String, String),
}

/// What a command of Slurm printed.
///
/// # Errors
/// When it is not there, or fails.
pub fn asked(words: &[String]) -> Result<String, Refused> {
    let mut command = Command::new(&words[0]);
    let output = command.args(&words[1..]).stdin(Stdio::null()).output();
    let failed = |said: String| Refused::Failed(shell_command(words), said);
    match output {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(Refused::NotThere(words[0].clone()))
        }
        Err(error) => Err(failed(error.to_string())),
        Ok(output) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Ok(output) => {
            let said = one_line(&String::from_utf8_lossy(&output.stderr));
            let said = said.trim();
            Err(failed(match said.is_empty() {
                true => output.status.to_string(),
                false => said.to_owned(),
            }))
        }
    }
}
