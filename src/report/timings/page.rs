//! Where the time went, as one self-contained page.

use serde::Serialize;

use super::{CaseTime, InvocationTime, Timings, doing};
use crate::record::spent::{Phase, Spent, Stretch};
use crate::record::types::How;
use crate::report::RenderError;
use crate::report::plot::{Ink, Stage, Track, gantt};
use crate::report::template::{COLOURED, rendered};
use crate::report::text::one_line;
use crate::units::{Elapsed, NONE, Nanoseconds, counted};

/// Cases that are listed.
const LISTED: usize = 500;

/// Phases of a case that have a column, with its heading.
const COLUMNS: [(&str, &[Phase]); 5] = [
    ("preparing", &[Phase::Preparing]),
    ("checking", &[Phase::Checking, Phase::CheckingAfter]),
    ("measuring", &[Phase::Measuring, Phase::Waiting]),
    ("census", &[Phase::Census]),
    ("releasing", &[Phase::Releasing]),
];

#[derive(Serialize)]
struct PageView {
    style: [&'static str; 2],
    suite: String,
    took: String,
    timed: String,
    facts: Vec<String>,
    phases: Vec<PhaseView>,
    figure: Option<String>,
    columns: Vec<&'static str>,
    cases: Vec<CaseView>,
    left_out: Option<String>,
}

#[derive(Serialize)]
struct PhaseView {
    class: &'static str,
    name: &'static str,
    what: &'static str,
    took: String,
    share: String,
    width: String,
}

#[derive(Serialize)]
struct CaseView {
    case: String,
    invocations: usize,
    took: String,
    bar: Vec<PieceView>,
    cells: Vec<String>,
    timed: String,
    first_calls: String,
}

/// A piece of a bar, in per cent of the longest.
#[derive(Serialize)]
struct PieceView {
    class: &'static str,
    width: String,
}

impl Timings {
    /// The page.
    ///
    /// # Errors
    /// When the template does not fit its data.
    pub fn page(&self) -> Result<String, RenderError> {
        let longest = self
            .cases
            .first()
            .map_or(Nanoseconds::ZERO, |of| of.took_ns);
        let listed = self.cases.iter().take(LISTED);
        let others = self.cases.get(LISTED..).unwrap_or_default();
        let left_out = (!others.is_empty()).then(|| {
            let took = others.iter().map(|case| case.took_ns).sum();
            format!(
                "{} more, which took {}",
                counted(others.len(), "case"),
                Elapsed(took)
            )
        });
        let view = PageView {
            style: COLOURED,
            suite: one_line(&self.suite),
            took: Elapsed(self.took_ns).to_string(),
            timed: match self.timed_ns > Nanoseconds::ZERO {
                true => format!(
                    "{} of it timed something: {}",
                    Elapsed(self.timed_ns),
                    self.timed_share
                ),
                false => "nothing was timed".to_owned(),
            },
            facts: self.facts(),
            phases: self.phases(),
            figure: gantt(&self.tracks(), self.took_ns),
            columns: COLUMNS.map(|(name, _)| name).into(),
            cases: listed.map(|case| row(case, longest)).collect(),
            left_out,
        };
        rendered(include_str!("page.html"), view)
    }

    fn facts(&self) -> Vec<String> {
        let mut facts = Vec::new();
        if self.parts.len() > 1 {
            facts.push(format!(
                "In {} parts: it was stopped and went on. The time between is not counted, nor \
                 what was in hand when it was stopped.",
                self.parts.len()
            ));
        }
        if self.confirming_ns > Nanoseconds::ZERO {
            let fresh = self.invocations.iter().filter(|of| of.fresh).count();
            facts.push(format!(
                "{} went into {} that confirm a suspicion.",
                Elapsed(self.confirming_ns),
                counted(fresh, "fresh start")
            ));
        }
        if self.untold > 0 {
            facts.push(format!(
                "{} of {} entries do not say what they took.",
                self.untold,
                self.untold
                    + self
                        .cases
                        .iter()
                        .map(|case| case.invocations)
                        .sum::<usize>()
            ));
        }
        facts
    }

    fn phases(&self) -> Vec<PhaseView> {
        let longest = self
            .phases
            .first()
            .map_or(Nanoseconds::ZERO, |of| of.took_ns);
        let phases = self.phases.iter().map(|of| PhaseView {
            class: kind(of.phase).class(),
            name: doing(of.phase),
            what: what(of.phase),
            took: Elapsed(of.took_ns).to_string(),
            share: of.share.to_string(),
            width: width(of.took_ns, longest),
        });
        let between = PhaseView {
            class: Ink::Grid.class(),
            name: "between them",
            what: "writing down what was found, for the most part",
            took: Elapsed(self.between_ns).to_string(),
            share: self.between_ns.share_of(self.took_ns).to_string(),
            width: width(self.between_ns, longest),
        };
        phases.chain([between]).collect()
    }

    /// A row of what belongs to no worker, and one for each start of a worker.
    fn tracks(&self) -> Vec<Track> {
        let parts = self.parts.iter().map(|part| &part.spent);
        let whole = parts.chain(&self.after).flat_map(stages).collect();
        let whole = Track {
            name: "the run".to_owned(),
            stages: whole,
        };
        let invocations = self.invocations.iter().map(|of| Track {
            name: name(of),
            stages: of.stretches.iter().flat_map(stages).collect(),
        });
        std::iter::once(whole).chain(invocations).collect()
    }
}

fn name(of: &InvocationTime) -> String {
    let mut name = format!("{} {}", of.invocation, of.worker);
    // Started is what is expected.
    if of.start == Some(How::Forked) {
        name += ", forked";
    }
    if of.fresh {
        name += ", fresh";
    }
    name
}

/// The phases of a stretch, laid end to end.
fn stages(of: &Stretch) -> Vec<Stage> {
    let mut from = of.from_ns;
    let phases = of.phases.iter().map(|(phase, took)| {
        let stage = Stage {
            kind: number(phase),
            from,
            took,
        };
        from += took;
        stage
    });
    phases.collect()
}

fn row(case: &CaseTime, longest: Nanoseconds) -> CaseView {
    let pieces = case.phases.iter().map(|(phase, took)| PieceView {
        class: kind(phase).class(),
        width: width(took, longest),
    });
    let cells = COLUMNS.map(|(_, phases)| told(&case.phases, phases));
    let time = |time: Nanoseconds| match time > Nanoseconds::ZERO {
        true => Elapsed(time).to_string(),
        false => NONE.to_owned(),
    };
    CaseView {
        case: one_line(&case.case.0),
        invocations: case.invocations,
        took: time(case.took_ns),
        bar: pieces.collect(),
        cells: cells.into(),
        timed: time(case.timed_ns),
        first_calls: time(case.first_calls_ns),
    }
}

/// What phases took together; what is not known of any is no time.
fn told(spent: &Spent, phases: &[Phase]) -> String {
    let known: Vec<Nanoseconds> = phases.iter().filter_map(|phase| spent.of(*phase)).collect();
    match known.is_empty() {
        true => NONE.to_owned(),
        false => Elapsed(known.into_iter().sum()).to_string(),
    }
}

fn width(part: Nanoseconds, whole: Nanoseconds) -> String {
    let share = part.share_of(whole).0;
    let percent = if share.is_finite() {
        100.0 * share.clamp(0.0, 1.0)
    } else {
        0.0
    };
    format!("{percent:.1}")
}

fn kind(phase: Phase) -> Ink {
    Ink::Kind(number(phase))
}

/// The colour of a phase. Those that are alike and stand in different rows share one.
fn number(phase: Phase) -> u8 {
    match phase {
        Phase::Preparing => 0,
        Phase::Starting | Phase::Preflight => 1,
        Phase::Measuring => 2,
        Phase::Census => 3,
        Phase::Checking | Phase::CheckingAfter | Phase::Judging => 4,
        Phase::Ending => 5,
        Phase::Releasing => 6,
        Phase::SettingUp | Phase::Reporting | Phase::Waiting => u8::MAX,
    }
}

/// What is done in a phase.
fn what(phase: Phase) -> &'static str {
    match phase {
        Phase::SettingUp => {
            "reading the suite, finding workers, telling which code and machine this is"
        }
        Phase::Preflight => {
            "each worker introduces itself; all end but the one that serves the first invocation"
        }
        Phase::Starting => {
            "from starting a process until it has introduced itself: loading its library"
        }
        Phase::Preparing => "inputs, first call, the worker's own check in float64",
        Phase::Checking => "the harness's own check of the first call",
        Phase::Measuring => {
            "warm-up, samples, what lies between them, the worker's check of the last call"
        }
        Phase::CheckingAfter => "the harness's own check of the last call",
        Phase::Waiting => "until nobody else has the cores, before samples are taken again",
        Phase::Census => "what one call launches, in the first invocation",
        Phase::Releasing => "the worker lets go of a case",
        Phase::Ending => "until a worker's process and what it started are gone",
        Phase::Judging => "reading the run back and comparing",
        Phase::Reporting => "the page and the tables",
    }
}
