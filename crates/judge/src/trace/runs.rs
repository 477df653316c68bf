//! Judges several runs of a program by the spread between them.

use serde::Serialize;

use super::{Analysis, analyse};
use crate::judgement::{Comparison, VerdictOutcome, Word};
use crate::rule::{BothSides, FEWEST as ENOUGH, GATE_ERROR, Terms, compare};
use regatta_core::machine::{Sides, Summary};
use regatta_core::record::median;
use regatta_core::record::trace::{Repeated, RunTimes, Spent, Trace};
use regatta_worker::units::{Nanoseconds, Ratio, Share, counted};

/// The smallest change of device time that counts if a side has only one run: it ran under a
/// profiler, and the spread between runs is unknown.
pub const THRESHOLD: Share = Share(0.10);

/// The smallest change of device time that counts if each side has [`FEWEST`] runs. However close
/// the runs lie, the two sides were measured at different moments, between which the clock
/// frequency or another program may have changed by as much.
pub const MIN_THRESHOLD: Share = Share(0.02);

/// The fewest runs of each side for the rule of gates.
pub const FEWEST: usize = ENOUGH;

/// The comparison of a time over the runs of both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunsOf {
    /// The median of each side's runs.
    pub median_ns: Sides<Nanoseconds>,
    /// The growth from the shortest run to the longest; absent for one run.
    pub apart: Sides<Option<Share>>,
    /// The head compared with the base. It may be worse if it is slower beyond the threshold and
    /// that may be chance, or if it may be slower by more than the threshold for single runs.
    #[serde(flatten)]
    pub change: Comparison,
}

/// The comparison of the runs of both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Runs {
    /// The number of runs of each side.
    pub counted: Sides<usize>,
    /// The time in which a device was busy.
    pub busy: RunsOf,
    /// The elapsed time.
    pub elapsed: RunsOf,
}

/// The times of one run.
pub fn times_of(analysis: &Analysis) -> RunTimes {
    let spent = |summary: &Summary, elapsed_ns, times: f64| Spent {
        elapsed_ns,
        busy_ns: Nanoseconds::whole(summary.time.busy_ns) / times,
    };
    let whole = &analysis.whole;
    RunTimes {
        operations: whole.operations,
        whole: spent(whole, Nanoseconds::whole(whole.time.span_ns), 1.0),
        repetition: analysis.steady.as_ref().map(|part| Repeated {
            operations: part.steady.period,
            repeats: part.steady.repeats,
            spent: spent(
                &part.summary,
                part.steady.period_time(),
                part.steady.repeats as f64,
            ),
        }),
    }
}

/// The times of all runs that a trace lists: of the earlier ones, then of its own.
pub fn runs_of(trace: &Trace) -> Vec<RunTimes> {
    let before = trace.header.earlier.iter().cloned();
    let own = times_of(&analyse(&trace.recording));
    before.chain([own]).collect()
}

/// The range of a trace's runs as a sentence; `None` for one run.
pub fn apart_sentence(trace: &Trace, own: &Analysis) -> Option<String> {
    let runs = comparable(trace, own);
    let range_of = |time: fn(&Spent) -> Nanoseconds| {
        let (low, high) = ends(&runs.iter().map(time).collect::<Vec<_>>())?;
        Some((high / low).growth())
    };
    let (busy, elapsed) = (
        range_of(|spent| spent.busy_ns)?,
        range_of(|spent| spent.elapsed_ns)?,
    );
    (!trace.header.earlier.is_empty()).then(|| {
        format!(
            "the last of {}; these lie up to {busy} apart in what the device works, {elapsed} in \
             what passes",
            counted(runs.len(), "run"),
        )
    })
}

/// The times of a side's runs, per repetition if its own run has one. A run whose repetition has
/// another number of operations did something else, and is left out.
pub fn comparable(trace: &Trace, own: &Analysis) -> Vec<Spent> {
    let own = times_of(own);
    let all = trace.header.earlier.iter().chain([&own]);
    let spent = all.filter_map(|run| match &own.repetition {
        None => Some(run.whole),
        Some(own) => {
            let alike = |run: &&Repeated| run.operations == own.operations;
            Some(run.repetition.as_ref().filter(alike)?.spent)
        }
    });
    spent.filter(|spent| spent.is_usable()).collect()
}

/// Judges by the runs of both sides; `None` if one has no time.
///
/// - **With [`FEWEST`] runs of each side or more**, the [rule](crate::rule) of gates decides, as
///   for a single case: slower means shown to lie beyond [`MIN_THRESHOLD`] by these runs.
/// - **With fewer runs**, the spread is unknown, and [`THRESHOLD`] applies. Slower means slower
///   beyond it by the medians, and in every run. If the base's slowest run took as long as the
///   head's fastest, two runs of one program may differ by as much, and nothing is decided.
///
/// For elapsed time, which is noisier, both thresholds are twice as high. `asked` replaces either.
pub fn judge(runs: &Sides<Vec<Spent>>, asked: Option<Share>) -> Option<Runs> {
    let counted = runs.map(Vec::len);
    let fewest = counted.base.min(counted.head);
    let many = fewest >= FEWEST;
    let threshold = asked.unwrap_or(if many { MIN_THRESHOLD } else { THRESHOLD });
    let judged = |time: fn(&Spent) -> Nanoseconds, times: f64| {
        let values = runs.map(|runs| runs.iter().map(time).collect::<Vec<_>>());
        let high = |threshold: Share| Share(threshold.0 * times);
        let change = if many {
            by_rule(&values, high(threshold), high(asked.unwrap_or(THRESHOLD)))?
        } else {
            by_medians(&values, high(threshold))?
        };
        Some(RunsOf {
            median_ns: Sides::both(median(&values.base), median(&values.head))?,
            apart: values.map(|times| {
                let (low, high) = ends(times)?;
                (times.len() > 1).then(|| (high / low).growth())
            }),
            change,
        })
    };
    Some(Runs {
        counted,
        busy: judged(|spent| spent.busy_ns, 1.0)?,
        elapsed: judged(|spent| spent.elapsed_ns, 2.0)?,
    })
}

fn ends(times: &[Nanoseconds]) -> Option<(Nanoseconds, Nanoseconds)> {
    let first = *times.first()?;
    let low = times.iter().copied().fold(first, Nanoseconds::min);
    let high = times.iter().copied().fold(first, Nanoseconds::max);
    Some((low, high))
}

fn by_medians(times: &Sides<Vec<Nanoseconds>>, threshold: Share) -> Option<Comparison> {
    let ratio = median(&times.head)? / median(&times.base)?;
    let (base, head) = (ends(&times.base)?, ends(&times.head)?);
    let limit = Ratio::grown_by(threshold);
    let (slower, faster) = (ratio > limit, ratio < limit.inverse());
    let word = match (slower, faster) {
        (true, _) if base.1 < head.0 => Word::Regressed,
        (_, true) if head.1 < base.0 => Word::Improved,
        (false, false) => Word::Same,
        _ => Word::Inconclusive,
    };
    let counts = (times.base.len(), times.head.len());
    Some(Comparison {
        may_be_worse: slower && word == Word::Inconclusive,
        ..Comparison::new(word, ratio, threshold, counts)
    })
}

fn by_rule(times: &Sides<Vec<Nanoseconds>>, least: Share, let_pass: Share) -> Option<Comparison> {
    let values = times.map(|times| -> Vec<f64> { times.iter().map(|time| time.0.ln()).collect() });
    let sides = BothSides::new(&values.base, &values.head);
    // The other half of the error is for the other time.
    let (mut change, _) = compare(sides, Terms::last(least.0.ln_1p(), GATE_ERROR / 2.0))?;
    let passes = change.is_at_most(Ratio::grown_by(let_pass));
    change.may_be_worse |= change.word == Word::Inconclusive && !passes;
    Some(change)
}

impl RunsOf {
    /// The outcome that the comparison shows.
    pub fn outcome(&self) -> VerdictOutcome {
        match (self.change.word, self.change.may_be_worse) {
            (Word::Regressed, _) => VerdictOutcome::Failed,
            (_, true) => VerdictOutcome::Inconclusive,
            (_, false) => VerdictOutcome::Passed,
        }
    }

    /// The range of a side's runs, of the side where it is wider.
    pub fn furthest(&self) -> Option<Share> {
        let apart = [self.apart.base, self.apart.head].into_iter().flatten();
        apart.max_by(|a, b| a.0.total_cmp(&b.0))
    }

    /// `4.9 % slower, within +4.1 % and +5.7 %`, and how far runs lie apart.
    pub fn sentence(&self) -> String {
        let mut sentence = self.change.ratio.in_words();
        if let Some((low, high)) = self.change.low.zip(self.change.high) {
            sentence += &format!(", within {low} and {high}");
        }
        if let Some(apart) = self.furthest() {
            sentence += &format!("; runs of one side lie up to {apart} apart");
        }
        sentence
    }
}

impl Runs {
    /// True if at least one side has more than one run.
    pub fn are_several(&self) -> bool {
        self.counted.base.max(self.counted.head) > 1
    }

    /// True if both sides have as many runs as the rule needs.
    pub fn are_enough(&self) -> bool {
        self.counted.base.min(self.counted.head) >= FEWEST
    }

    /// `4 and 5 runs`.
    pub fn sentence(&self) -> String {
        let Sides { base, head } = self.counted;
        format!("{base} and {}", counted(head, "run"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use VerdictOutcome::{Failed, Inconclusive, Passed};

    fn spent(busy: &[f64]) -> Vec<Spent> {
        let spent = |ns: &f64| Spent {
            elapsed_ns: Nanoseconds(ns * 1.05),
            busy_ns: Nanoseconds(*ns),
        };
        busy.iter().map(spent).collect()
    }

    fn judged(base: &[f64], head: &[f64]) -> Runs {
        judge(&Sides::new(spent(base), spent(head)), None).unwrap()
    }

    /// `count` values around `centre`, whose range is `apart` as a share of it.
    fn around(centre: f64, apart: f64, count: usize) -> Vec<f64> {
        let last = (count - 1) as f64;
        let at = |number| centre * (1.0 + apart * (number as f64 / last - 0.5));
        (0..count).map(at).collect()
    }

    #[test]
    fn one_run_a_side_is_held_to_ten_per_cent_few_take_back_and_five_show_five() {
        let (few, far) = (around(1e6, 0.002, 4), around(1.2e6, 0.002, 4));
        let (quiet, loud) = (around(1e6, 0.004, 5), around(1e6, 0.08, 5));
        let rows: &[(&[f64], &[f64], VerdictOutcome)] = &[
            (&[1e6], &[1.09e6], Passed),
            (&[1e6], &[1.11e6], Failed),
            // A few runs can only take back what one would have called.
            (&few, &around(1.05e6, 0.002, 4), Passed),
            (&few, &far, Failed),
            // A run of the base that took as long as those of the head.
            (&[1e6, 1e6, 1.25e6], &far, Inconclusive),
            (&[1e6, 1.25e6], &[1.2e6], Passed),
            (&quiet, &around(1.05e6, 0.004, 5), Failed),
            // A change that is shown, and lies within the threshold.
            (&quiet, &around(1.01e6, 0.004, 5), Passed),
            (&quiet, &around(0.9e6, 0.004, 5), Passed),
            (&quiet, &quiet, Passed),
            // Slower, and as far as runs lie apart; and such runs could hide anything.
            (&loud, &around(1.05e6, 0.08, 5), Inconclusive),
            (&around(1e6, 0.6, 5), &around(1e6, 0.6, 5), Inconclusive),
            (&loud, &around(1.6e6, 0.08, 5), Failed),
        ];
        for (base, head, expected) in rows {
            let outcome = judged(base, head).busy.outcome();
            assert_eq!(outcome, *expected, "{base:?} {head:?}");
        }
        let judged = judged(&[1e6], &[1.15e6]);
        assert_eq!(judged.elapsed.outcome(), Passed, "twice that");
        assert!(!judged.are_several());
        assert_eq!(judged.busy.sentence(), "15.0 % slower");
    }

    #[test]
    fn a_floor_that_is_asked_for_is_kept() {
        let [base, head] = [1e6, 1.05e6].map(|centre| spent(&around(centre, 0.002, 5)));
        let sides = Sides::new(base, head);
        let outcome = |asked| judge(&sides, Some(Share(asked))).unwrap().busy.outcome();
        assert_eq!((outcome(0.1), outcome(0.03)), (Passed, Failed));
        assert!(judge(&Sides::new(Vec::new(), spent(&[1.0])), None).is_none());
    }
}
