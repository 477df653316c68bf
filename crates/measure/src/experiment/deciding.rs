//! Fresh invocations of what is not decided, and how long they may take; and what cannot be
//! decided by any.

use std::time::{Duration, Instant};

use super::ExperimentError;
use super::ready::Ready;
use super::stored::Base;
use crate::laps::Laps;
use regatta_core::record::run_file::RunWriter;
use regatta_core::record::side::Side;
use regatta_core::record::types::Owed;
use regatta_judge::judgement::Judgement;
use regatta_judge::{self as judge, Options};
use regatta_worker::attention::CaseId;

/// Whoever takes fresh invocations of what a judgement leaves undecided.
pub trait Batches {
    /// What is taken, in words.
    const FRESH: &'static str;

    /// The side that is judged: its policy is asked, and it tells.
    fn head(&mut self) -> &mut Ready;

    /// The batch that was owed last, whether it was taken or not.
    fn owed(&self) -> Option<&Owed>;

    /// Judges what was measured so far.
    ///
    /// # Errors
    /// When it cannot be read back: exit code 3.
    fn judge(&mut self) -> Result<Judgement, ExperimentError>;

    /// Writes down that `cases` are to have `fresh` fresh invocations each, before any is taken.
    ///
    /// # Errors
    /// When that cannot be written: exit code 3.
    fn owe(&mut self, cases: Vec<CaseId>, fresh: u32) -> Result<(), ExperimentError>;

    /// Takes what is owed, less what was taken.
    ///
    /// # Errors
    /// When it cannot be written: exit code 3.
    fn take(&mut self) -> Result<(), ExperimentError>;
}

/// Takes batch after batch of what is not decided, what was owed when it was stopped first, and
/// gives the last judgement.
///
/// # Errors
/// When a run cannot be written or read back: exit code 3.
pub fn decide<B: Batches>(
    batches: &mut B,
    budget: Option<Duration>,
) -> Result<Judgement, ExperimentError> {
    if batches.owed().is_some() {
        batches.take()?;
    }
    let mut dearest = Duration::ZERO;
    let clock = batches.head().clock;
    loop {
        let mut laps = Laps::begin(&clock);
        let judgement = batches.judge()?;
        let fresh = batches.owed().map_or(0, |owed| owed.fresh);
        let head = batches.head();
        let settings = &head.suite.settings;
        let batch = judge::next_batch(&judgement, &head.suite.rules.policy, fresh, settings.seed);
        head.spent.judging += laps.end();
        let Some(batch) = batch else {
            return Ok(judgement);
        };
        let more = batch.fresh - fresh;
        let open = format!(
            "{} of {} cases are not decided",
            batch.undecided.len(),
            head.header.plan.len()
        );
        if budget.is_some_and(|budget| head.began.elapsed() + dearest * more > budget) {
            head.say(format!(
                "{open}, and --budget leaves no time for {more} {} of them",
                B::FRESH
            ));
            return Ok(judgement);
        }
        let company = match batch.company.len() {
            0 => String::new(),
            others => format!(", and of {others} others for company"),
        };
        head.say(format!(
            "{open}; taking {more} {} of them{company}",
            B::FRESH
        ));
        batches.owe([batch.undecided, batch.company].concat(), batch.fresh)?;
        let since = Instant::now();
        batches.take()?;
        dearest = dearest.max(since.elapsed() / more.max(1));
    }
}

/// A run that is held against one that is stored.
pub struct AgainstStored<'a> {
    /// What is measured.
    pub ready: &'a mut Ready,
    /// Its run.
    pub writer: &'a mut RunWriter,
    /// What it is held against.
    pub base: &'a Base,
    /// How it is judged.
    pub options: &'a Options,
}

impl Batches for AgainstStored<'_> {
    const FRESH: &'static str = "fresh invocations";

    fn head(&mut self) -> &mut Ready {
        self.ready
    }

    fn owed(&self) -> Option<&Owed> {
        self.writer.owed.last()
    }

    fn judge(&mut self) -> Result<Judgement, ExperimentError> {
        let label = self.ready.label();
        let read = Side::read(self.writer.path(), &label);
        let (_, so_far) = read.map_err(ExperimentError::not_judged)?;
        Ok(judge::judge(&so_far, Some(&self.base.side), self.options))
    }

    fn owe(&mut self, cases: Vec<CaseId>, fresh: u32) -> Result<(), ExperimentError> {
        let base = self.base.id.clone();
        let owed = Owed { base, cases, fresh };
        self.writer.owe(owed).map_err(ExperimentError::not_judged)
    }

    fn take(&mut self) -> Result<(), ExperimentError> {
        match self.writer.owed.last().cloned() {
            Some(owed) => self.ready.take(self.writer, &owed),
            None => Ok(()),
        }
    }
}

/// In what two sides differ so that they cannot be compared, a line each, before anything is
/// measured; `None` where they can be. `places` says where each is: `there`, `here`.
pub fn incomparable(
    head: &Ready,
    base: &Side,
    options: &Options,
    places: [&str; 2],
) -> Option<String> {
    let differs = judge::judge(&unmeasured(head), Some(base), options).incomparable;
    let [there, here] = places;
    let lines = differs
        .iter()
        .map(|of| format!("  {}: {} {there}, {} {here}", of.field, of.base, of.head));
    let lines: Vec<String> = lines.collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// A side of which nothing is measured yet.
pub fn unmeasured(ready: &Ready) -> Side {
    Side {
        label: ready.label(),
        header: ready.header.clone(),
        cases: Default::default(),
        damage: Vec::new(),
    }
}
