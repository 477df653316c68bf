//! `regatta completions`: shell completions on standard output.

use clap::{Args, Command};
use clap_complete::Shell;

use super::{Ended, print};

/// Print completions for a shell
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// Which shell
    shell: Shell,
}

/// Runs the command.
///
/// # Errors
/// See [`super::Stop`].
pub fn run(args: &CompletionsArgs, mut command: Command) -> Ended {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, "regatta", &mut text);
    print(String::from_utf8_lossy(&text))?;
    Ok(0)
}
