//! Whether parts are of one sweep, or what an earlier one left is among them.

use jiff::Timestamp;

use super::Part;
use super::problem::Lack;
use crate::suite::shard::Place;

/// The merge that ended parts, of which others were not ended: they are of a sweep behind it or
/// before it, or it was stopped while it ended them.
pub(super) struct LastMerge {
    /// When it ended the last of them.
    when: Timestamp,
    /// When the first of them was begun.
    since: Timestamp,
    /// The part that was begun last of those that it did not end.
    newest: (Timestamp, Place),
    /// True where it is known that it was stopped, and is to be done again.
    again: bool,
}

impl LastMerge {
    /// Of parts of one kind of machine; `None` where none or all of them are ended.
    pub(super) fn of(parts: &[Part], again: bool) -> Option<LastMerge> {
        let started = |part: &Part| part.run.header.started;
        let ended = || parts.iter().filter(|part| part.run.end.is_some());
        let ends = parts.iter().filter_map(|part| part.run.end.as_ref());
        let open = parts.iter().filter(|part| part.run.end.is_none());
        Some(LastMerge {
            when: ends.map(|end| end.finished).max()?,
            since: ended().map(started).min()?,
            newest: open.map(|part| (started(part), part.place())).max()?,
            again,
        })
    }

    /// Why a part is not of the sweep that the others are of.
    pub(super) fn parted(&self, part: &Part) -> Option<(Lack, String)> {
        let (newest, place) = self.newest;
        let ended = part.run.end.is_some();
        if ended && newest > self.when {
            // It is of the earlier sweep, and the same command begins it anew.
            let said = format!(
                "is of the sweep that was merged {}, and shard {place} was begun after that",
                day(self.when)
            );
            return Some((Lack::Unfinished, said));
        }
        if ended {
            return None;
        }
        if part.run.header.started < self.since {
            let said = format!(
                "is of {}, before the sweep that was merged {}, and no part of that",
                day(part.run.header.started),
                day(self.when)
            );
            return Some((Lack::Foreign, said));
        }
        // Clocks of two machines may be apart: which of both it is, they do not tell.
        let unclear = part.run.header.started <= self.when && !self.again;
        unclear.then(|| {
            let said = format!(
                "was not ended by the merge of {}, as others were: where that merge was stopped, \
                 `regatta merge --again` takes all of them; where the others are of an earlier \
                 sweep, measure those anew",
                day(self.when)
            );
            (Lack::Unclear, said)
        })
    }
}

/// When a merge was, or a part begun: `2026-11-23 16:04 UTC`.
pub fn day(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M UTC").to_string()
}
