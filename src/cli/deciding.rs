//! Fresh invocations of what a gate has not decided, and how long it may take over them.

use std::time::{Duration, Instant};

use super::Stop;
use super::measuring::Ready;
use super::reporting::Base;
use regatta::judge::{self, Options};
use regatta::measure::laps::Laps;
use regatta::record::run_file::{Known, RunWriter};
use regatta::record::side::Side;
use regatta::record::spent::Phase;
use regatta::record::types::Owed;

/// Takes fresh invocations, batch after batch, of what is not decided: those that were owed
/// when the gate was stopped first.
///
/// # Errors
/// When the run cannot be written or read back: exit code 3.
pub fn decide(
    ready: &mut Ready,
    writer: &mut RunWriter,
    base: &Base,
    options: &Options,
    budget: Option<Duration>,
) -> Result<(), Stop> {
    let policy = ready.suite.rules.policy.clone();
    let seed = ready.suite.settings.seed;
    if let Some(owed) = writer.owed.last().cloned() {
        ready.take(writer, &owed)?;
    }
    let mut dearest = Duration::ZERO;
    loop {
        let mut laps = Laps::begin(&ready.clock);
        let label = ready.directory.display().to_string();
        let read = Side::read(writer.path(), &label, &mut Known::default());
        let (_, so_far) = read.map_err(Stop::not_judged)?;
        let judgement = judge::judge(&so_far, Some(&base.side), options);
        let fresh = writer.owed.last().map_or(0, |owed| owed.fresh);
        let batch = judge::next_batch(&judgement, &policy, fresh, seed);
        laps.end(Phase::Judging);
        ready.judging.extend(laps.stretch());
        let Some(batch) = batch else {
            return Ok(());
        };
        let more = batch.fresh - fresh;
        if let Some(budget) = budget
            && ready.began.elapsed() + dearest * more > budget
        {
            ready.say(format!(
                "{} of {} cases are not decided, and --budget leaves no time for {more} fresh \
                 invocations of them",
                batch.undecided.len(),
                ready.header.plan.len(),
            ));
            return Ok(());
        }
        ready.say(format!(
            "{} of {} cases are not decided; taking {more} fresh invocations of them{}",
            batch.undecided.len(),
            ready.header.plan.len(),
            match batch.company.len() {
                0 => String::new(),
                others => format!(", and of {others} others for company"),
            },
        ));
        let owed = Owed {
            base: base.id.clone(),
            cases: [batch.undecided, batch.company].concat(),
            fresh: batch.fresh,
        };
        writer.owe(owed.clone()).map_err(Stop::not_judged)?;
        let since = Instant::now();
        ready.take(writer, &owed)?;
        dearest = dearest.max(since.elapsed() / more.max(1));
    }
}

/// A span of time: a number with `s`, `m` or `h`; seconds without.
///
/// # Errors
/// What to write instead.
pub fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.strip_suffix(['s', 'm', 'h']) {
        Some(number) => (number, text.as_bytes()[text.len() - 1]),
        None => (text, b's'),
    };
    let each = match unit {
        b'h' => 3600.0,
        b'm' => 60.0,
        _ => 1.0,
    };
    let seconds = number.trim().parse::<f64>().map(|number| number * each);
    match seconds {
        Ok(seconds) if (0.0..=1e7).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("use a time such as 90s, 15m or 2h".to_owned()),
    }
}
