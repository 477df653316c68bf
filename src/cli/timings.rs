//! Where the time of a run went: its page, and what is printed of it.

use std::path::Path;

use anyhow::anyhow;

use super::outputs::{is_stdout, put};
use super::saying::indented;
use super::sides::Stored;
use super::{Ended, Stop, print};
use regatta::report::files::check_writable;
use regatta::report::text::shell_command;
use regatta::report::timings::Timings;

/// Finds out before any work whether the page can be written.
///
/// # Errors
/// When it cannot, or would be mixed with the figures: exit code 2.
pub fn check(page: &Path, json: bool) -> Result<(), Stop> {
    match is_stdout(page) {
        true if json => Err(Stop::Usage(anyhow!(
            "--timings - --json: both would go to standard output; name a file for the page"
        ))),
        true => Ok(()),
        false => check_writable(page).map_err(Stop::usage),
    }
}

/// Writes the page of a run, and prints the figures or two lines.
///
/// # Errors
/// A run that does not say where its time went: exit code 2; a write that fails: 3.
pub fn write(page: &Path, head: &Stored, json: bool) -> Ended {
    let timings = found(head)?;
    put(page, timings.page().map_err(Stop::not_judged)?)?;
    match (json, is_stdout(page)) {
        (true, _) => {
            let figures = serde_json::to_string(&timings).map_err(Stop::not_judged)?;
            print(figures + "\n")?;
        }
        (false, true) => {}
        (false, false) => print(indented(&timings.said(), 0, 2))?,
    }
    Ok(0)
}

fn found(head: &Stored) -> Result<Timings, Stop> {
    let path = head.path.display();
    if head.is_baseline {
        return Err(Stop::Usage(anyhow!(
            "{path} is a baseline, which does not keep where the time went; name the run it was \
             made of"
        )));
    }
    if head.files.len() > 1 {
        return Err(Stop::Usage(anyhow!(
            "{path} is a run in {} shards, each with an axis of time of its own; name one of them",
            head.files.len()
        )));
    }
    let timings = Timings::of(&head.run, head.entries()).map_err(Stop::usage)?;
    timings.ok_or_else(|| {
        let suite = &head.run.header.suite;
        let words = ["regatta".to_owned(), "run".to_owned()];
        let chosen = match suite.arguments.is_empty() {
            true => std::slice::from_ref(&suite.name),
            false => &suite.arguments[..],
        };
        Stop::Usage(anyhow!(
            "{path} does not say where its time went: an older regatta measured it. Measure it \
             again with this one: {}",
            shell_command(&[&words[..], chosen].concat())
        ))
    })
}
