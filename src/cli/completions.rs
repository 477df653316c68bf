//! `regatta completions`: what a shell completes, and the manual.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::{Args, Command};
use clap_complete::Shell;

use super::{Ended, Stop, print};

/// Print what a shell completes, or write the manual's pages
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    regatta completions bash > ~/.local/share/bash-completion/completions/regatta\n  \
    regatta completions --man ~/.local/share/man/man1")]
pub struct CompletionsArgs {
    /// The shell
    #[arg(required_unless_present = "man")]
    shell: Option<Shell>,

    /// Write a page of the manual for each command into a folder
    #[arg(long, value_name = "DIR", conflicts_with = "shell")]
    man: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// When standard output or the folder takes no more: exit code 3.
pub fn run(args: &CompletionsArgs, mut command: Command) -> Ended {
    if let Some(folder) = &args.man {
        return manual(folder, command);
    }
    if let Some(shell) = args.shell {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut command, "regatta", &mut text);
        print(String::from_utf8_lossy(&text))?;
    }
    Ok(0)
}

fn manual(folder: &Path, command: Command) -> Ended {
    let failed = |error| Stop::NotJudged(anyhow!("{}: {error}", folder.display()));
    fs::create_dir_all(folder).map_err(failed)?;
    clap_mangen::generate_to(command, folder).map_err(failed)?;
    print(format!("{}\n", folder.display()))?;
    Ok(0)
}
