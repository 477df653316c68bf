//! More invocations of what is open, and how long they may take; and what cannot be decided by
//! any.

use std::time::{Duration, Instant};

use super::ExperimentError;
use super::ready::{Measured, Ready};
use super::stored::Base;
use crate::laps::Laps;
use regatta_core::record::run_file::RunWriter;
use regatta_core::record::side::Side;
use regatta_core::record::types::{BaseId, Owed};
use regatta_judge::judgement::Judgement;
use regatta_judge::{self as judge, Options};
use regatta_worker::attention::CaseId;
use regatta_worker::units::counted;

/// Whoever measures again what a judgement leaves open.
pub trait Batches {
    /// What is measured, one of it.
    const WHAT: &'static str;

    /// The side that is judged.
    fn head(&mut self) -> &mut Ready;

    /// What was asked for last, whether it was measured or not.
    fn owed(&self) -> Option<&Owed>;

    /// Judges what was measured so far, as more may follow.
    ///
    /// # Errors
    /// When it cannot be read back: exit code 3.
    fn judge(&mut self) -> Result<Judgement, ExperimentError>;

    /// Writes down that `cases` are to have `fresh` invocations more than every case has, before
    /// any is measured.
    ///
    /// # Errors
    /// When that cannot be written: exit code 3.
    fn owe(&mut self, cases: Vec<CaseId>, fresh: u32) -> Result<(), ExperimentError>;

    /// Measures what is owed, less what is there.
    ///
    /// # Errors
    /// When it cannot be written: exit code 3.
    fn take(&mut self) -> Result<(), ExperimentError>;
}

/// Measures what is open, look after look, what was owed when it was stopped first; no look ends
/// later than `limit` after the start.
///
/// # Errors
/// When a run cannot be written or read back: exit code 3.
pub fn decide<B: Batches>(
    batches: &mut B,
    limit: Option<Duration>,
) -> Result<Judgement, ExperimentError> {
    if batches.owed().is_some() {
        batches.take()?;
    }
    // What one more takes at most: as long as one of the first, of all cases.
    let first = batches.head().suite.settings.invocations;
    let mut each = batches.head().began.elapsed() / first.max(1);
    let clock = batches.head().clock;
    loop {
        let mut laps = Laps::begin(&clock);
        let judgement = batches.judge()?;
        let fresh = batches.owed().map_or(0, |owed| owed.fresh);
        let head = batches.head();
        let next = judge::next(&judgement, first + fresh);
        head.spent.judging += laps.end();
        let Some(next) = next else {
            return Ok(judgement);
        };
        let more = next.invocations - first - fresh;
        let what = counted(more as usize, &format!("more {}", B::WHAT));
        let open = format!("{} of {} open", next.cases.len(), head.header.plan.len());
        if limit.is_some_and(|limit| head.began.elapsed() + each * more > limit) {
            head.say(format!("{open}; --time-limit leaves no time for {what}"));
            return Ok(judgement);
        }
        head.say(format!("{open}; measuring {what} of each"));
        batches.owe(next.cases, next.invocations - first)?;
        let since = Instant::now();
        batches.take()?;
        each = since.elapsed() / more.max(1);
    }
}

/// A run by itself, or against one that is stored.
pub struct Alone<'a> {
    /// What is measured.
    pub ready: &'a mut Ready,
    /// Its run.
    pub writer: &'a mut RunWriter,
    /// What it is compared with.
    pub base: Option<&'a Base>,
    /// How it is judged.
    pub options: Options,
    /// True where rows that are open are measured in pairs later, and expectations alone now.
    pub expectations_alone: bool,
}

impl Batches for Alone<'_> {
    const WHAT: &'static str = "invocation";

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
        let base = self.base.map(|base| &base.side);
        let options = Options {
            last: false,
            ..self.options
        };
        let mut judgement = judge::judge(&so_far, base, &options);
        if self.expectations_alone {
            let metrics = judgement.rows.iter_mut().flat_map(|row| &mut row.metrics);
            metrics.for_each(|metric| metric.open = false);
        }
        Ok(judgement)
    }

    fn owe(&mut self, cases: Vec<CaseId>, fresh: u32) -> Result<(), ExperimentError> {
        let base = self.base.map_or_else(BaseId::none, |base| base.id.clone());
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

/// Measures a suite, and more of it until its expectations are decided.
///
/// # Errors
/// When the run cannot be written or read back: exit code 3.
pub fn alone(mut ready: Ready) -> Result<Measured, ExperimentError> {
    let mut writer = ready.measure(Some(BaseId::none()))?;
    if !ready.suite.settings.structure_only {
        decide(
            &mut Alone {
                ready: &mut ready,
                writer: &mut writer,
                base: None,
                options: Options::ALONE,
                expectations_alone: true,
            },
            None,
        )?;
    }
    Ok(Measured {
        folder: ready.directory.clone(),
        ready,
        writer,
        base: None,
        pairs: None,
        base_writer: None,
        options: Options::ALONE,
    })
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
