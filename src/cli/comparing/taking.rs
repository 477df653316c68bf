//! Takes pairs of invocations, batch after batch, and keeps both runs.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::anyhow;

use super::super::measuring::Ready;
use super::super::progress::Progress;
use super::super::reporting::Base;
use super::super::{Stop, interrupt};
use super::{Before, Comparison};
use regatta::attention::{Case, CaseId};
use regatta::judge;
use regatta::judge::judgement::Judgement;
use regatta::measure::counters::Machine;
use regatta::measure::held::Held;
use regatta::measure::laps::Laps;
use regatta::measure::schedule::{self, Block};
use regatta::measure::session::Session;
use regatta::record::RecordError;
use regatta::record::header::TurnSide;
use regatta::record::run_file::{Known, Opening, RunWriter, going_on};
use regatta::record::side::Side;
use regatta::record::spent::Phase;
use regatta::record::types::{BaseId, Owed, Run};

/// A run that was read back, and what is judged of it.
type Read = (Run, Side);

/// Both runs of a comparison, being written.
pub struct Writers {
    /// The base's.
    pub base: RunWriter,
    /// The head's.
    pub head: RunWriter,
}

impl Comparison {
    /// Measures all invocations, and batch after batch of what is not decided.
    ///
    /// # Errors
    /// When a run cannot be written or read back: exit code 3.
    pub fn measure(&mut self) -> Result<(Writers, Base, Judgement), Stop> {
        let mut writers = self.open()?;
        let policy = self.head.suite.rules.policy.clone();
        let (seed, first) = {
            let settings = &self.head.suite.settings;
            (settings.seed, settings.invocations)
        };
        self.take(&mut writers, None, 0..first)?;
        if let Some(owed) = writers.head.owed.last().cloned() {
            self.take(&mut writers, Some(&owed.cases), first..first + owed.fresh)?;
        }
        let mut dearest = Duration::ZERO;
        loop {
            let mut laps = Laps::begin(&self.head.clock);
            let (base, head) = self.read(&writers)?;
            let judgement = judge::judge(&head.1, Some(&base.1), &self.options);
            let fresh = writers.head.owed.last().map_or(0, |owed| owed.fresh);
            let batch = judge::next_batch(&judgement, &policy, fresh, seed);
            laps.end(Phase::Judging);
            self.head.judging.extend(laps.stretch());
            let more = batch.as_ref().map_or(0, |batch| batch.fresh - fresh);
            let late = self
                .budget
                .is_some_and(|budget| self.began.elapsed() + dearest * more > budget);
            let Some(batch) = batch.filter(|_| !late) else {
                if late {
                    self.head.say(format!(
                        "--budget leaves no time for {more} fresh pairs of what is not decided"
                    ));
                }
                let base = Base {
                    id: self.other(),
                    side: base.1,
                };
                return Ok((writers, base, judgement));
            };
            self.head.say(format!(
                "{} of {} cases are not decided; taking {more} fresh pairs of them{}",
                batch.undecided.len(),
                self.head.header.plan.len(),
                match batch.company.len() {
                    0 => String::new(),
                    others => format!(", and of {others} others for company"),
                },
            ));
            let cases = [batch.undecided, batch.company].concat();
            self.owe(&mut writers, cases.clone(), batch.fresh)?;
            let since = Instant::now();
            self.take(&mut writers, Some(&cases), first..first + batch.fresh)?;
            dearest = dearest.max(since.elapsed() / more.max(1));
        }
    }

    fn measured(&self) -> Result<&Ready, Stop> {
        match &self.base {
            Before::Measured(ready) => Ok(ready),
            Before::Stored(base) => Err(Stop::Usage(anyhow!("run:{} is stored", base.id.name))),
        }
    }

    /// Opens both runs: both go on where both were stopped, or both begin anew. An invocation
    /// that one side alone came to is measured again in both, since nothing lies beside it.
    fn open(&mut self) -> Result<Writers, Stop> {
        let id = self.other();
        let base = self.measured()?;
        let opening = Opening {
            fresh: self.head.fresh,
            base: Some(id),
            ..Opening::default()
        };
        let there = |ready: &Ready| going_on(&ready.directory, &ready.header, &opening);
        let one_pair = |base: &Run, head: &Run| {
            let pair = |run: &Run| run.header.turn.as_ref().map(|turn| turn.pair.clone());
            pair(base) == pair(head)
        };
        let both = there(base).zip(there(&self.head));
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
        let head = self.head.open(opening.clone())?;
        let Before::Measured(base) = &mut self.base else {
            return Err(Stop::Usage(anyhow!("the base is stored")));
        };
        let base = base.open(opening)?;
        Ok(Writers { base, head })
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
        let label = match &self.base {
            Before::Measured(ready) => ready.label(),
            Before::Stored(base) => base.id.name.clone(),
        };
        BaseId {
            name: label,
            sum: "measured in turn".to_owned(),
        }
    }

    /// Writes down what both sides owe, `cases` by the head's names.
    fn owe(&self, writers: &mut Writers, cases: Vec<CaseId>, fresh: u32) -> Result<(), Stop> {
        let wanted: BTreeSet<&CaseId> = cases.iter().collect();
        let pairs = self.cases.iter().map(|(base, head)| (base.id(), head.id()));
        let of_base = pairs.filter(|(_, head)| wanted.contains(head));
        let of_base = of_base.map(|(base, _)| base).collect();
        let owed = |cases| Owed {
            base: self.other(),
            cases,
            fresh,
        };
        writers.base.owe(owed(of_base)).map_err(Stop::not_judged)?;
        writers.head.owe(owed(cases)).map_err(Stop::not_judged)
    }

    /// Takes the pairs of invocations in `range`, less what is there: of all cases, or of those
    /// of the head that are named.
    fn take(
        &mut self,
        writers: &mut Writers,
        named: Option<&[CaseId]>,
        range: std::ops::Range<u32>,
    ) -> Result<(), Stop> {
        let wanted =
            |(_, head): &&(Case, Case)| named.is_none_or(|named| named.contains(&head.id()));
        let cases: Vec<(Case, Case)> = self.cases.iter().filter(wanted).cloned().collect();
        let sides = schedule::Sides {
            cases: &cases,
            base_done: &writers.base.done,
            head_done: &writers.head.done,
        };
        let head = &mut self.head;
        let seed = head.suite.settings.seed;
        let turns = schedule::in_turn(&sides, range.clone(), seed);
        let blocks: Vec<Block> = turns.iter().map(|(_, block)| block.clone()).collect();
        let mut progress = Progress::new(&blocks, range, head.quiet);
        let Before::Measured(base) = &mut self.base else {
            return Err(Stop::Usage(anyhow!("the base is stored")));
        };
        let watched = head.suite.settings.wants_quiet();
        let mut launchers = (
            Held::new(&mut base.processes, &base.hellos),
            Held::new(&mut head.processes, &head.hellos),
        );
        let mut sessions = (
            Session::new(&base.suite, &mut launchers.0, &base.clock, &mut base.known),
            Session::new(&head.suite, &mut launchers.1, &head.clock, &mut head.known),
        );
        if watched {
            sessions.0 = sessions.0.watched_by(Box::new(Machine::here()));
            sessions.1 = sessions.1.watched_by(Box::new(Machine::here()));
        }
        for (side, block) in &turns {
            let (session, writer) = match side {
                TurnSide::Base => (&mut sessions.0, &mut writers.base),
                TurnSide::Head => (&mut sessions.1, &mut writers.head),
            };
            let ran = session.run(std::slice::from_ref(block), &mut progress, &mut |entry| {
                interrupt::hold_if_stopping();
                writer.append(entry)
            });
            ran.map_err(|error: RecordError| {
                Stop::NotJudged(anyhow::Error::new(error).context(
                    "the comparison stops here; what was measured is kept, and the same command \
                     goes on",
                ))
            })?;
        }
        if let Some(said) = progress.of_the_machine() {
            head.say(said);
        }
        Ok(())
    }

    /// Reads both runs back, the base under the names of the head's cases.
    fn read(&self, writers: &Writers) -> Result<(Read, Read), Stop> {
        let mut known = Known::default();
        let read = |writer: &RunWriter, ready: &Ready, known: &mut Known| {
            Side::read(writer.path(), &ready.label(), known).map_err(Stop::not_judged)
        };
        let head = read(&writers.head, &self.head, &mut known)?;
        let (run, base) = read(&writers.base, self.measured()?, &mut known)?;
        let base = base.as_base_of(&head.1.header);
        Ok(((run, base), head))
    }
}
