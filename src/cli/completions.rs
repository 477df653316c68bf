//! `regatta completions`: prints a shell's completion script.

use clap::{Args, Command};
use clap_complete::Shell;

use super::{Ended, print};

/// Print shell completions
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  \
    regatta completions bash > ~/.local/share/bash-completion/completions/regatta")]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Runs the command.
///
/// # Errors
/// When standard output takes no more: exit code 3.
pub fn run(args: &CompletionsArgs, mut command: Command) -> Ended {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, "regatta", &mut text);
    print(String::from_utf8_lossy(&text))
}
