//! Sessions of a baseline: what becomes of the one that is there.

use anyhow::anyhow;
use jiff::Timestamp;

use crate::cli::Stop;
use crate::cli::sides::whole_baseline;
use regatta_core::record::baseline::{self, Store};
use regatta_core::record::side::Side;
use regatta_judge::{self as judge, Options};

/// What becomes of the baseline that is there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Saving {
    /// There must be none.
    New,
    /// It is lost.
    Replacing,
    /// Its sessions are kept.
    Added,
}

/// The run as the newest session of the baseline of its machine, and when the others were
/// measured.
///
/// # Errors
/// Where it cannot be one: exit code 2 or 3.
pub fn with_sessions(
    store: &Store,
    name: &str,
    side: &Side,
) -> Result<(Side, Vec<Timestamp>), Stop> {
    let machine = &side.header.machine.name;
    let Some(path) = store.of_machine(name, machine).map_err(Stop::usage)? else {
        return Ok((side.clone(), Vec::new()));
    };
    let stored = baseline::header(&path).map_err(Stop::usage)?;
    let old = whole_baseline(&path)?;
    let options = Options {
        same_suite: true,
        ..Options::default()
    };
    let differs = judge::judge(side, Some(&old), &options).incomparable;
    if let Some(first) = differs.first() {
        return Err(Stop::NotJudged(anyhow!(
            "{} is no session of baseline {name}: {} is {} there and {} here; --replace begins \
             it anew",
            side.label,
            first.field,
            first.base,
            first.head,
        )));
    }
    if old.header.started == side.header.started {
        return Err(Stop::Usage(anyhow!(
            "{} is in baseline {name} already: measure again for another session",
            side.label
        )));
    }
    let mut earlier = stored.earlier;
    earlier.push(stored.header.started);
    let surplus = earlier.len().saturating_sub(baseline::SESSIONS - 1);
    Ok((baseline::joined(side, &old), earlier.split_off(surplus)))
}
