//! Whether a run that was stopped may go on.

use std::collections::BTreeSet;

use crate::record::types::{BaseId, Git, Run, RunHeader, short_revision};
use regatta_worker::attention::CaseId;

/// The reason of a run that the command line has begin anew.
pub const NO_RESUME: &str = "--no-resume was given";

/// How a run is begun, or gone on with.
#[derive(Clone, Debug, Default)]
pub struct Opening {
    /// Why a new run begins, whatever is there; `None`: an unfinished one goes on.
    pub anew: Option<&'static str>,
    /// What the run is to be compared with.
    pub base: Option<BaseId>,
    /// The entries that may be kept of a run that goes on; `None`: all. Of two runs that are
    /// measured in turn, an invocation that one of them alone has is measured again in both.
    pub only: Option<BTreeSet<(u32, CaseId)>>,
}

/// Why a run does not go on under `now`, as sentences; empty where it may.
///
/// A run is one code on one machine under one suite: what was measured before the stop and
/// what comes after are judged as one.
pub(super) fn obstacles(run: &Run, now: &RunHeader, opening: &Opening) -> Vec<String> {
    let then = &run.header;
    let mut found = Vec::new();
    found.extend(opening.anew.map(str::to_owned));
    found.extend(differences(then, now));
    if then.plan != now.plan {
        found.push("its cases changed".to_owned());
    }
    if then.shard != now.shard {
        let said = "it was of another shard";
        found.push(said.to_owned());
    }
    match (run.owed.first(), &opening.base) {
        (Some(owed), None) => found.push(format!(
            "more of it was asked for against `{}`: the command that began it goes on with it",
            owed.base.name
        )),
        (Some(owed), Some(base)) if owed.base != *base => found.push(format!(
            "more of it was asked for against `{}` as that was then",
            owed.base.name
        )),
        _ => {}
    }
    found
}

/// Why what was measured under two headers cannot be judged as one run, as sentences; empty
/// where it can. Which cases each of them planned makes no difference here.
pub fn differences(then: &RunHeader, now: &RunHeader) -> Vec<String> {
    let mut found = Vec::new();
    let mut differ = |differs: bool, what: &str| {
        if differs {
            found.push(what.to_owned());
        }
    };
    differ(then.schema != now.schema, "the file's schema changed");
    differ(then.method != now.method, "the way times are taken changed");
    differ(then.tool != now.tool, "the version of regatta changed");
    differ(then.suite != now.suite, "it was of another suite or --set");
    differ(then.rules != now.rules, "what the suite demands changed");
    differ(then.settings != now.settings, "how it measures changed");
    differ(
        then.machine.hard != now.machine.hard,
        "the machine is another one",
    );
    differ(
        then.workers != now.workers,
        "the versions, packages or devices of its workers changed",
    );
    found.extend(turn(then, now));
    found.extend(git(then.git.as_ref(), now.git.as_ref()));
    match (&then.identity, &now.identity) {
        // A part that was stopped may go on where its cluster puts it.
        (Some(then), Some(now_is)) if now.shard.is_some() => {
            found.extend(then.placeless().differences(&now_is.placeless()));
        }
        (Some(then), Some(now)) => found.extend(then.differences(now)),
        (None, Some(_)) => found.push("it does not say which code it is of".to_owned()),
        (_, None) => {}
    }
    found
}

/// What was measured beside what may not change; what the pair is called is the older run's.
fn turn(then: &RunHeader, now: &RunHeader) -> Option<String> {
    let sides = |header: &RunHeader| {
        let turn = header.turn.as_ref()?;
        Some((turn.side, turn.of.clone(), turn.stands_in.clone()))
    };
    (sides(then) != sides(now)).then(|| "it was measured beside something else".to_owned())
}

fn git(then: Option<&Git>, now: Option<&Git>) -> Option<String> {
    let revision = |git: Option<&Git>| match git {
        Some(git) => short_revision(&git.revision),
        None => "no checkout".to_owned(),
    };
    let (was, is) = (revision(then), revision(now));
    if was != is {
        return Some(format!("the revision was {was}, is {is}"));
    }
    let changes = |git: Option<&Git>| git.and_then(|git| git.changes.clone());
    (changes(then) != changes(now))
        .then(|| "the uncommitted changes of the checkout are others".to_owned())
}
