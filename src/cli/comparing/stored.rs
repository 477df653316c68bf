//! One version, held against a run that is stored.

use std::time::Instant;

use super::super::deciding::{AgainstStored, decide, incomparable};
use super::super::measuring::Ready;
use super::super::reporting::{self, Answers, Base};
use super::super::versions::Version;
use super::super::{Ended, Stop, sides};
use super::pairs;
use super::question::{How, Question, SIDES, not_comparable};
use regatta_core::record::baseline::Store;
use regatta_core::record::types::BaseId;
use regatta_measure::laps::Monotonic;

/// A version that is ready to be measured, and the run that it is held against.
pub struct Stored {
    base: Base,
    pub(super) head: Ready,
    how: How,
}

impl Stored {
    pub(super) fn of(question: &Question<'_>, path: &str) -> Result<Stored, Stop> {
        let (began, clock) = (Instant::now(), Monotonic::begin());
        let args = question.measure;
        let base = stored(path, &Store::new(&args.baselines))?;
        let mut head = Version::of(question.head, args)?;
        if let Some(variant) = &head.variant {
            return Err(Stop::Usage(pairs::alone(variant)));
        }
        question.rule(&mut head.suite);
        let how = question.how(&head.suite);
        let asked = head.asked(how.directory.join("head"), None);
        let mut head = Ready::of(asked, args, clock)?;
        head.began = began;
        match incomparable(&head, &base.side, &how.options, SIDES) {
            None => Ok(Stored { base, head, how }),
            Some(lines) => Err(not_comparable(&lines)),
        }
    }

    pub(super) fn conclude(mut self, answers: &Answers) -> Ended {
        let mut writer = self.head.measure(Some(self.base.id.clone()))?;
        let mut batches = AgainstStored {
            ready: &mut self.head,
            writer: &mut writer,
            base: &self.base,
            options: &self.how.options,
        };
        decide(&mut batches, self.how.budget)?;
        let How {
            directory, options, ..
        } = &self.how;
        reporting::conclude(
            &self.head,
            directory,
            writer,
            Some(&self.base),
            options,
            answers,
        )
    }
}

/// A run or a baseline that is stored.
fn stored(path: &str, store: &Store) -> Result<Base, Stop> {
    let found = sides::find(path, store, None)?;
    Ok(Base {
        id: BaseId {
            name: path.to_owned(),
            sum: found.sum(),
        },
        side: found.side,
    })
}
