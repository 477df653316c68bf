//! Two sides measured in turn: takes pairs of invocations, batch after batch, and keeps both
//! runs.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Instant;

use super::ExperimentError;
use super::comparison::{self, How, Question, Refused, SIDES, not_comparable, refused};
use super::deciding::{Batches, decide, incomparable, unmeasured};
use super::ready::{Measured, Pairs, Ready};
use super::request::is_unwatched;
use super::stored::Base;
use super::version::Version;
use crate::counters::Machine;
use crate::held::Held;
use crate::interrupt;
use crate::laps::Monotonic;
use crate::schedule::{self, Block};
use crate::session::Session;
use regatta_core::record::RecordError;
use regatta_core::record::header::{Turn, TurnSide};
use regatta_core::record::run_file::{Opening, RunWriter, going_on};
use regatta_core::record::side::Side;
use regatta_core::record::types::{BaseId, Owed, Run};
use regatta_judge::judgement::Judgement;
use regatta_judge::{self as judge, Options};
use regatta_worker::attention::{Case, CaseId};

/// Two sides that are ready to be measured in turn.
pub struct InTurn {
    base: Ready,
    pub(super) head: Ready,
    /// Cases of both sides, each beside the other.
    cases: Vec<(Case, Case)>,
    how: How,
}

/// Both runs of a comparison, being written.
struct Writers {
    base: RunWriter,
    head: RunWriter,
}

/// A comparison that is being measured.
struct Taking<'a> {
    of: &'a mut InTurn,
    writers: Writers,
    /// The base as it was read last.
    base: Option<Side>,
}

impl InTurn {
    /// Makes both versions, and has their workers introduce themselves. Nothing is measured.
    ///
    /// # Errors
    /// Whatever is wrong with a version, the suite or a worker: exit code 2; sides that cannot
    /// be compared: 3. It names the side that cannot be had.
    pub fn of(question: &Question<'_>) -> Result<InTurn, Refused> {
        let (began, clock) = (Instant::now(), Monotonic::begin());
        let args = question.measure;
        let of_base = question.measure_base.unwrap_or(args);
        let mut base = Version::of(question.base, of_base).map_err(refused(TurnSide::Base))?;
        let mut head = Version::of(question.head, args).map_err(refused(TurnSide::Head))?;
        let whole = question.part.map(|part| {
            for suite in [&mut base.suite, &mut head.suite] {
                suite.cases.retain(|case| part.cases.contains(&case.id()));
            }
            part.of
        });
        let stands_in = comparison::variants(&mut base, &mut head)?;
        question.rule(&mut base.suite);
        question.rule(&mut head.suite);
        let cases = comparison::beside(&base, &head);
        let pair = comparison::pair(&base, &head);
        let how = question.how(&head.suite);
        let ready = |version: Version, side: TurnSide| {
            let stands_in = match side {
                TurnSide::Base => stands_in.iter().cloned().collect(),
                TurnSide::Head => Default::default(),
            };
            let turn = Turn {
                pair: pair.clone(),
                side,
                of: version.asked.clone(),
                stands_in,
                cases: whole,
            };
            let name = match side {
                TurnSide::Base => "base",
                TurnSide::Head => "head",
            };
            let asked = version.asked(how.directory.join(name), Some(turn));
            Ready::of(asked, args, clock).map_err(refused(side))
        };
        let base = ready(base, TurnSide::Base)?;
        let mut head = ready(head, TurnSide::Head)?;
        // What making the versions took is within --time-limit.
        head.began = began;
        let in_turn = InTurn {
            base,
            head,
            cases,
            how,
        };
        in_turn.refuse_what_cannot_be_compared()?;
        Ok(in_turn)
    }

    /// A comparison that will be refused need not be measured for.
    pub(super) fn refuse_what_cannot_be_compared(&self) -> Result<(), ExperimentError> {
        let base = unmeasured(&self.base);
        match incomparable(&self.head, &base, &self.how.options, SIDES) {
            None => Ok(()),
            Some(lines) => Err(not_comparable(&lines)),
        }
    }

    /// Measures all invocations, and batch after batch of what is not decided.
    ///
    /// # Errors
    /// When a run cannot be written or read back: exit code 3.
    pub(super) fn measured(mut self) -> Result<Measured, ExperimentError> {
        let (writers, base, _) = self.measure()?;
        self.head.spent_on_base = Some(self.base.spent);
        Ok(Measured {
            ready: self.head,
            writer: writers.head,
            base: Some(base),
            base_writer: Some(writers.base),
            folder: self.how.directory,
            options: self.how.options,
            pairs: None,
        })
    }

    /// The same for a part of a gate: both sides as they were measured.
    ///
    /// # Errors
    /// When a run cannot be written or read back: exit code 3.
    pub(super) fn sides(mut self) -> Result<Pairs, ExperimentError> {
        let (mut writers, base, _) = self.measure()?;
        let read = Side::read(writers.head.path(), &self.head.label());
        let (_, head) = read.map_err(ExperimentError::not_judged)?;
        writers.head.close().map_err(ExperimentError::not_judged)?;
        writers.base.close().map_err(ExperimentError::not_judged)?;
        let mut spent = self.head.spent;
        spent += self.base.spent;
        Ok(Pairs {
            base: base.side,
            head,
            spent,
        })
    }

    /// The same for a step of something larger: no report is written, and nothing is printed.
    ///
    /// # Errors
    /// When a run cannot be written or read back: exit code 3.
    pub fn judged(mut self) -> Result<Judgement, ExperimentError> {
        let (mut writers, _, judgement) = self.measure()?;
        writers.head.close().map_err(ExperimentError::not_judged)?;
        writers.base.close().map_err(ExperimentError::not_judged)?;
        Ok(judgement)
    }

    fn measure(&mut self) -> Result<(Writers, Base, Judgement), ExperimentError> {
        let writers = self.open()?;
        let id = self.other();
        let limit = self.how.limit;
        let mut taking = Taking {
            of: self,
            writers,
            base: None,
        };
        let first = taking.of.head.suite.settings.invocations;
        taking.pairs(None, 0..first)?;
        let judgement = decide(&mut taking, limit)?;
        let base = match taking.base.take() {
            Some(side) => side,
            None => taking.read()?.0,
        };
        Ok((taking.writers, Base { id, side: base }, judgement))
    }

    /// Opens both runs: both go on where both were stopped, or both begin anew. An invocation
    /// that one side alone came to is measured again in both, since nothing lies beside it.
    fn open(&mut self) -> Result<Writers, ExperimentError> {
        let opening = Opening {
            fresh: self.head.fresh,
            base: Some(self.other()),
            ..Opening::default()
        };
        let there = |ready: &Ready| going_on(&ready.directory, &ready.header, &opening);
        let one_pair = |base: &Run, head: &Run| {
            let pair = |run: &Run| run.header.turn.as_ref().map(|turn| turn.pair.clone());
            pair(base) == pair(head)
        };
        let both = there(&self.base).zip(there(&self.head));
        let opening = match both.filter(|(base, head)| one_pair(base, head)) {
            None => Opening {
                fresh: true,
                ..opening
            },
            Some((base, head)) => Opening {
                only: Some(self.in_both(&base, &head)),
                ..opening
            },
        };
        Ok(Writers {
            head: self.head.open(opening.clone())?,
            base: self.base.open(opening)?,
        })
    }

    /// The entries of both runs whose counterparts are there.
    fn in_both(&self, base: &Run, head: &Run) -> BTreeSet<(u32, CaseId)> {
        let done = |run: &Run| -> BTreeSet<(u32, CaseId)> {
            let entries = run.entries.iter();
            entries.map(|e| (e.invocation, e.case.clone())).collect()
        };
        let (base, head) = (done(base), done(head));
        let numbers: BTreeSet<u32> = base.iter().chain(&head).map(|(at, _)| *at).collect();
        let pairs = self.cases.iter().map(|(b, h)| (b.id(), h.id()));
        let pairs: Vec<(CaseId, CaseId)> = pairs.collect();
        let both = numbers.into_iter().flat_map(|at| {
            let there = pairs.iter().filter(|(b, h)| {
                base.contains(&(at, b.clone())) && head.contains(&(at, h.clone()))
            });
            let names = there.flat_map(|(b, h)| [b.clone(), h.clone()]);
            names.map(|id| (at, id)).collect::<Vec<_>>()
        });
        both.collect()
    }

    /// What each run owes its fresh invocations against: the other.
    fn other(&self) -> BaseId {
        BaseId::in_turn(self.base.label())
    }
}

impl Taking<'_> {
    /// Takes the pairs of invocations in `range`, less what is there: of all cases, or of those
    /// of the head that are named.
    fn pairs(
        &mut self,
        named: Option<&[CaseId]>,
        range: Range<u32>,
    ) -> Result<(), ExperimentError> {
        let InTurn {
            base, head, cases, ..
        } = &mut *self.of;
        let writers = &mut self.writers;
        let wanted =
            |(_, head): &&(Case, Case)| named.is_none_or(|named| named.contains(&head.id()));
        let cases: Vec<(Case, Case)> = cases.iter().filter(wanted).cloned().collect();
        let sides = schedule::Sides {
            cases: &cases,
            base_done: &writers.base.done,
            head_done: &writers.head.done,
        };
        let seed = head.suite.settings.seed;
        let turns = schedule::in_turn(&sides, range.clone(), seed);
        let blocks: Vec<Block> = turns.iter().map(|(_, block)| block.clone()).collect();
        let mut progress = head.listener.progress(&blocks, range, head.quiet);
        let mut launchers = (
            Held::new(&mut base.processes, &base.hellos),
            Held::new(&mut head.processes, &head.hellos),
        );
        let mut sessions = (
            Session::new(
                &base.suite,
                &mut launchers.0,
                &base.clock,
                &mut base.detailed,
            ),
            Session::new(
                &head.suite,
                &mut launchers.1,
                &head.clock,
                &mut head.detailed,
            ),
        );
        if !is_unwatched() {
            sessions.0 = sessions.0.watched_by(Box::new(Machine::here()));
            sessions.1 = sessions.1.watched_by(Box::new(Machine::here()));
        }
        for (side, block) in &turns {
            let (session, writer) = match side {
                TurnSide::Base => (&mut sessions.0, &mut writers.base),
                TurnSide::Head => (&mut sessions.1, &mut writers.head),
            };
            let ran = session.run(
                std::slice::from_ref(block),
                progress.as_mut(),
                &mut |entry| {
                    interrupt::hold_if_stopping();
                    writer.append(entry)
                },
            );
            ran.map_err(|error: RecordError| {
                ExperimentError::not_judged_as(
                    "the comparison stops here; what was measured is kept, and the same command \
                     goes on",
                    error,
                )
            })?;
        }
        base.spent += sessions.0.spent;
        head.spent += sessions.1.spent;
        if let Some(said) = progress.summary() {
            head.say(said);
        }
        Ok(())
    }

    /// Reads both runs back, the base under the names of the head's cases.
    fn read(&self) -> Result<(Side, Side), ExperimentError> {
        let read = |writer: &RunWriter, ready: &Ready| {
            Side::read(writer.path(), &ready.label()).map_err(ExperimentError::not_judged)
        };
        let (_, head) = read(&self.writers.head, &self.of.head)?;
        let (_, base) = read(&self.writers.base, &self.of.base)?;
        Ok((base.as_base_of(&head.header), head))
    }
}

impl Batches for Taking<'_> {
    const WHAT: &'static str = "pair";

    fn head(&mut self) -> &mut Ready {
        &mut self.of.head
    }

    fn owed(&self) -> Option<&Owed> {
        self.writers.head.owed.last()
    }

    fn judge(&mut self) -> Result<Judgement, ExperimentError> {
        let (base, head) = self.read()?;
        let options = Options {
            last: false,
            ..self.of.how.options
        };
        let judgement = judge::judge(&head, Some(&base), &options);
        self.base = Some(base);
        Ok(judgement)
    }

    /// Both sides owe, `cases` by the head's names.
    fn owe(&mut self, cases: Vec<CaseId>, fresh: u32) -> Result<(), ExperimentError> {
        let wanted: BTreeSet<&CaseId> = cases.iter().collect();
        let pairs = self
            .of
            .cases
            .iter()
            .map(|(base, head)| (base.id(), head.id()));
        let of_base = pairs.filter(|(_, head)| wanted.contains(head));
        let of_base = of_base.map(|(base, _)| base).collect();
        let owed = |cases| Owed {
            base: self.of.other(),
            cases,
            fresh,
        };
        let writers = &mut self.writers;
        let (of_base, of_head) = (owed(of_base), owed(cases));
        writers
            .base
            .owe(of_base)
            .map_err(ExperimentError::not_judged)?;
        writers
            .head
            .owe(of_head)
            .map_err(ExperimentError::not_judged)
    }

    fn take(&mut self) -> Result<(), ExperimentError> {
        let Some(owed) = self.owed().cloned() else {
            return Ok(());
        };
        let first = self.of.head.suite.settings.invocations;
        self.pairs(Some(&owed.cases), first..first + owed.fresh)
    }
}
