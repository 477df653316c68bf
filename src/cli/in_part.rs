//! What becomes of a part of a suite that is measured alone: it is not judged.

use anyhow::anyhow;

use super::measuring::Ready;
use super::reporting::Answers;
use super::sharding::{self, ShardArgs};
use super::{Ended, Stop};
use regatta::record::shards::SHARDS;
use regatta::record::types::BaseId;
use regatta::report::text::shell_command;
use regatta::units::counted;

/// Refuses what a part, which is not judged, has no answer for.
///
/// # Errors
/// Where something of the kind was asked for: exit code 2.
pub fn refuse_answers(
    args: &ShardArgs,
    answers: &Answers,
    others: &[(&str, bool)],
) -> Result<(), Stop> {
    let Some(shard) = &args.shard else {
        return Ok(());
    };
    let asked = [
        ("--json", answers.show.json),
        ("--all", answers.show.all),
        ("--output", answers.outputs.any()),
    ];
    let mut asked = asked.iter().chain(others);
    match asked.find(|(_, asked)| *asked) {
        None => Ok(()),
        Some((what, _)) => Err(Stop::Usage(anyhow!(
            "--shard {shard} and {what}: a part is measured and not judged; give it to \
             `regatta merge`, which answers for all parts"
        ))),
    }
}

/// Measures a part to its end, with the fresh invocations that it owes. It is not judged, and
/// its file stays open: `regatta next` may write there that it owes more, and `regatta merge`
/// ends it.
///
/// # Errors
/// When it cannot be written: exit code 3.
pub fn measured(ready: &mut Ready, base: Option<BaseId>) -> Ended {
    let mut writer = ready.measure(base)?;
    for owed in writer.owed.clone() {
        ready.take(&mut writer, &owed)?;
    }
    say(ready);
    Ok(0)
}

/// Says that a part is measured, and what follows.
pub fn say(ready: &Ready) {
    let header = &ready.header;
    let Some(shard) = &header.shard else {
        return;
    };
    let shards = sharding::whole(&ready.directory, Some(shard)).join(SHARDS);
    let what = match header.plan.len() {
        0 => "no case falls to".to_owned(),
        cases => format!("{} measured of", counted(cases, "case")),
    };
    let merge = ["regatta", "merge", &shards.display().to_string()].map(str::to_owned);
    ready.say(format!(
        "{what} shard {}; nothing is judged before all are there: {}",
        shard.place,
        shell_command(&merge)
    ));
}
