//! Measures a head and what it is compared with until the rule can decide.
//!
//! `run`, `gate`, `compare` and `bisect` are an [`Experiment`]. Nothing here reads a command line
//! or prints: messages go to a [`Listener`], and the reason for a failure is an
//! [`ExperimentError`].

pub mod arm;
mod base_code;
pub mod baseline;
mod gate;
pub mod introductions;
mod pairs;
pub mod rejudge;
pub mod request;
mod setup;
pub mod stored;

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::SetupError;
use crate::laps::{Laps, TimeSpent};
use crate::schedule::{self, Block, CasePair, Lane};
use crate::session::{self, Observer, RunningSides};
use crate::worker::at_once;
use crate::workers::MAX_AHEAD;
use regatta_core::record::run_file::{NO_RESUME, Opening, RunWriter};
use regatta_core::record::{BaseId, OpenCases, PairSide, Run, RunEnd, Side, now};
use regatta_core::suite::Metric;
use regatta_core::suite::document::DocumentError;
use regatta_core::suite::plan::Place;
use regatta_judge::judgement::{Judgement, VerdictOutcome};
use regatta_judge::{self as judge, Options};
use regatta_worker::case::CaseId;
use regatta_worker::units::{Nanoseconds, counted};

pub use arm::Arm;
pub use gate::gate;
pub use request::MeasureOptions;
pub(crate) use setup::Setup;
use stored::StoredBase;

/// A head and its base: a stored run or baseline, another version in pairs, or none, with only the
/// suite's expectations.
pub struct Experiment {
    head: Arm,
    /// The base, if it is measured in pairs with the head.
    paired: Option<Arm>,
    /// The cases of the head, each with the base's case if that is measured in pairs.
    cases: Vec<CasePair>,
    /// The base of the comparison. For pairs, the part that is measured so far.
    base: Option<StoredBase>,
    options: Options,
    /// Nothing is measured that would end later than this after the start.
    limit: Option<Duration>,
    deciding: Vec<Metric>,
    /// The folder of the reports.
    folder: PathBuf,
    /// True if only expectations decide what is measured: open metrics are measured in pairs later,
    /// or not at all.
    expectations_alone: bool,
}

/// The invocations that were measured.
#[derive(Clone, Copy)]
struct Progressed {
    invocations: usize,
    /// True if the time limit ended the measurement.
    limited: bool,
}

/// The run files of an experiment while they are written.
pub struct RunFiles {
    head: RunWriter,
    /// The base's file, if it is measured in pairs.
    base: Option<RunWriter>,
}

/// The head's results so far, read back from the file, and a judgement after which more may be
/// measured.
struct Evidence {
    run: Run,
    head: Side,
    judgement: Judgement,
}

/// A finished and judged run.
pub struct MeasuredRun {
    /// The judgement.
    pub judgement: Judgement,
    /// The side that was judged.
    pub arm: Arm,
    /// The run, without its entries.
    pub run: Run,
    /// The results of the run.
    pub head: Side,
    /// The base of the comparison.
    pub base: Option<StoredBase>,
    /// The folder of the reports.
    pub folder: PathBuf,
    /// The time spent on a base that was measured in pairs.
    pub spent_on_base: Option<TimeSpent>,
    /// The run files, which are ended once the reports are written.
    pub files: RunFiles,
}

impl MeasuredRun {
    /// The file of the head's run.
    pub fn file(&self) -> PathBuf {
        self.files.head.path().to_owned()
    }
}

impl RunFiles {
    /// Ends the files of both runs. Until then, the same command judges them again without
    /// measuring.
    ///
    /// # Errors
    /// A file cannot be written: exit code 3.
    pub fn finish(&mut self, end: RunEnd) -> Result<(), ExperimentError> {
        let base = self.base.as_mut().map_or(Ok(()), RunWriter::close);
        let ended = base.and_then(|()| self.head.finish(end));
        ended.map_err(ExperimentError::not_judged)
    }

    /// Ends the files of runs without a report.
    pub(crate) fn close(&mut self) -> Result<(), ExperimentError> {
        self.finish(RunEnd {
            finished: now(),
            judged: None,
        })
    }
}

impl Experiment {
    /// A suite without a base: its expectations decide how much is measured.
    ///
    /// # Errors
    /// The suite, the command line or a worker is not usable: exit code 2.
    pub fn alone(request: &MeasureOptions) -> Result<Experiment, ExperimentError> {
        Ok(Experiment {
            expectations_alone: true,
            ..Experiment::new(Arm::prepare(request, None)?, request, Options::ALONE)
        })
    }

    /// A head without a base. Its reports go into the run's folder.
    fn new(head: Arm, request: &MeasureOptions, options: Options) -> Experiment {
        let cases = head.suite.cases.iter();
        Experiment {
            paired: None,
            cases: cases.map(|case| (None, case.clone())).collect(),
            base: None,
            options,
            limit: request.limit,
            deciding: request.deciding.clone(),
            folder: head.directory.clone(),
            head,
            expectations_alone: false,
        }
    }

    /// Measures a shard of a suite and ends its run, which is judged later with the other shards.
    ///
    /// # Errors
    /// As [`alone`](Experiment::alone). The run cannot be written: exit code 3.
    pub fn shard(request: &MeasureOptions, place: Place) -> Result<Arm, ExperimentError> {
        let head = Arm::prepare(request, Some(place))?;
        let mut shard = Experiment::new(head, request, Options::ALONE);
        let mut files = shard.open()?;
        let all = 0..shard.head.suite.settings.invocations;
        shard.measure(&mut files, None, all)?;
        files.close()?;
        Ok(shard.head)
    }

    /// Measures until everything is decided or the time limit is reached, and judges the result.
    ///
    /// # Errors
    /// A run cannot be written or read back: exit code 3.
    pub fn run(mut self) -> Result<MeasuredRun, ExperimentError> {
        let mut files = self.open()?;
        let evidence = self.decide(&mut files)?;
        Ok(self.conclude(files, evidence))
    }

    /// Measures until everything is decided or the time limit is reached. Starts with the cases
    /// that were open when the run was stopped, and continues one look after the other.
    fn decide(&mut self, files: &mut RunFiles) -> Result<Evidence, ExperimentError> {
        let first = self.head.suite.settings.invocations;
        let [starts, cases] = self.starts_and_cases();
        let Progressed {
            invocations: measured,
            limited,
        } = self.measure(files, None, 0..first)?;
        let [starts_now, cases_now] = self.starts_and_cases();
        let (starts, cases) = (starts_now - starts, cases_now - cases);
        if !limited {
            self.measure_open(files)?;
        }
        let mut last = None;
        loop {
            let mut laps = Laps::begin();
            let evidence = self.judge(files)?;
            self.head.spent.judging += laps.end();
            if limited {
                return Ok(evidence);
            }
            let taken = first + files.head.open.last().map_or(0, |open| open.fresh);
            let Some(next) = judge::next(&evidence.judgement, taken, &self.deciding) else {
                return Ok(evidence);
            };
            let more = next.invocations - taken;
            let what = match self.paired {
                Some(_) => counted(more as usize, "more pair"),
                None => counted(more as usize, "more invocation"),
            };
            let planned = self.head.header.plan.len();
            let open = format!("{} of {planned} open", next.cases.len());
            // The estimated time of another invocation: that of the last one; at first the starts
            // of workers, and the open cases' share of the time of all cases.
            let each = last.unwrap_or_else(|| match measured {
                0 => self.head.began.elapsed() / first.max(1),
                _ => {
                    let open = cases.seconds() * self.head.session.part_of(&next.cases);
                    Duration::from_secs_f64((starts.seconds() + open) / measured as f64)
                }
            });
            let ends = self.head.began.elapsed() + each * more;
            if self.limit.is_some_and(|limit| ends > limit) {
                self.head
                    .say(format!("{open}; --time-limit leaves no time for {what}"));
                return Ok(evidence);
            }
            self.head.say(format!("{open}; measuring {what} of each"));
            self.write_open(files, next.cases, next.invocations - first)?;
            let since = Instant::now();
            self.measure_open(files)?;
            last = Some(since.elapsed() / more.max(1));
        }
    }

    /// The time that both sides spent on starting workers, and on cases.
    fn starts_and_cases(&self) -> [Nanoseconds; 2] {
        let mut spent = self.head.spent;
        if let Some(base) = &self.paired {
            spent += base.spent;
        }
        [spent.workers, spent.cases + spent.clocks]
    }

    /// Opens or resumes the run files. Nothing is overwritten before this.
    fn open(&mut self) -> Result<RunFiles, ExperimentError> {
        let opening = Opening {
            restart: self.head.fresh.then_some(NO_RESUME),
            base: Some(self.base_id()),
            ..Opening::default()
        };
        let Some(base) = &self.paired else {
            let head = self.head.open(&opening)?;
            return Ok(RunFiles { head, base: None });
        };
        let opening = self.opening_of_both(base, opening);
        let head = self.head.open(&opening)?;
        let base = Some(base.open(&opening)?);
        Ok(RunFiles { head, base })
    }

    /// The id of the base in the head's run.
    fn base_id(&self) -> BaseId {
        match (&self.paired, &self.base) {
            (Some(base), _) => BaseId::in_turn(base.label()),
            (None, Some(base)) => base.id.clone(),
            (None, None) => BaseId::none(),
        }
    }

    /// Measures the missing invocations in `range`, of all cases or of those in `only`. After the
    /// first one, an invocation begins only if it would end within the time limit should it take as
    /// long as the longest so far.
    fn measure(
        &mut self,
        files: &mut RunFiles,
        only: Option<&[CaseId]>,
        range: Range<u32>,
    ) -> Result<Progressed, ExperimentError> {
        let mut cases = self.cases.clone();
        cases.retain(|(_, head)| only.is_none_or(|only| only.contains(&head.id())));
        let empty = BTreeSet::new();
        let base_done = files.base.as_ref().map_or(&empty, |file| &file.done);
        let done = [base_done, &files.head.done];
        let seed = self.head.suite.settings.seed;
        let blocks = schedule::blocks(&cases, done, range.clone(), seed);
        let mut progress = (self.head.listener).progress(&blocks, range.clone(), self.head.quiet);
        let invocations = blocks.chunk_by(|one, other| one.invocation == other.invocation);
        let invocations: Vec<&[Block]> = invocations.collect();
        let (planned, mut begun, mut limited) = (invocations.len(), 0, false);
        let (mut left, mut longest) = (&blocks[..], None::<Duration>);
        while begun < planned {
            let in_time = self.in_time(longest);
            limited = in_time == 0;
            if limited {
                break;
            }
            let room = self.abreast(&invocations[begun..]);
            let blocks_of = |count| {
                let some = &invocations[begun..begun + count];
                some.iter().map(|blocks| blocks.len()).sum()
            };
            self.start_ahead(&left[..blocks_of(room)]);
            let abreast = room.clamp(1, in_time);
            let (blocks, rest) = left.split_at(blocks_of(abreast));
            let since = Instant::now();
            // The blocks of a single invocation have different workers.
            let number = if abreast > 1 { blocks.len() } else { 1 };
            for blocks in blocks.chunks(number) {
                self.measure_blocks(blocks, files, progress.as_mut())?;
            }
            longest = longest.max(Some(since.elapsed() / abreast as u32));
            (left, begun) = (rest, begun + abreast);
        }
        if let Some(summary) = progress.summary() {
            self.head.say(summary);
        }
        if limited {
            let there = range.len() - (planned - begun);
            let what = match self.paired {
                Some(_) => "pair",
                None => "invocation",
            };
            self.head.say(format!(
                "--time-limit ends this after {there} of {}",
                counted(range.len(), what)
            ));
            // Records that the number of invocations is reduced to those that exist.
            if only.is_none() {
                let there = there as u32;
                let base = files.base.as_mut().map_or(Ok(()), |file| file.limit(there));
                let both = base.and_then(|()| files.head.limit(there));
                both.map_err(ExperimentError::not_judged)?;
            }
        }
        Ok(Progressed {
            invocations: begun,
            limited,
        })
    }

    /// The number of invocations that end before the time limit if each takes `each`. Unbounded
    /// without a limit. One if `each` is unknown, so that the first always runs.
    fn in_time(&self, each: Option<Duration>) -> usize {
        let left = |limit: Duration| limit.saturating_sub(self.head.began.elapsed());
        match (self.limit.map(left), each) {
            (None, _) => usize::MAX,
            (Some(_), None) => 1,
            (Some(left), Some(each)) => (left.as_secs_f64() / each.as_secs_f64()) as usize,
        }
    }

    /// The number of invocations whose workers can all be up at the same time. Zero unless they run
    /// on a GPU with enough memory.
    fn abreast(&mut self, invocations: &[&[Block]]) -> usize {
        let mut lanes = 0;
        let mut fits = |blocks: &&&[Block]| {
            let mut of_blocks = blocks.iter().flat_map(|block| &block.lanes);
            lanes += of_blocks.clone().count();
            let have_room = of_blocks.all(|lane| self.may_be_beside(lane));
            have_room && lanes <= MAX_AHEAD
        };
        invocations.iter().take_while(&mut fits).count()
    }

    /// True if a lane's worker may prepare cases beside other processes of the same worker.
    fn may_be_beside(&mut self, lane: &Lane) -> bool {
        let arm = self.arm(lane.side);
        arm.started().has_room(&lane.worker) && !arm.session.prepares_apart(&lane.worker)
    }

    /// The arm of a side.
    fn arm(&mut self, side: PairSide) -> &mut Arm {
        match (side, &mut self.paired) {
            (PairSide::Base, Some(base)) => base,
            _ => &mut self.head,
        }
    }

    /// Starts workers of blocks on a GPU before they are needed, on both sides at the same time.
    fn start_ahead(&mut self, blocks: &[Block]) {
        let lanes = || blocks.iter().flat_map(|block| &block.lanes);
        let counts = |side| {
            let mut counts = BTreeMap::<String, usize>::new();
            for lane in lanes().filter(|lane| lane.side == side) {
                *counts.entry(lane.worker.clone()).or_default() += 1;
            }
            counts
        };
        let mut laps = Laps::begin();
        let head = Some((self.head.started(), PairSide::Head));
        let base = self
            .paired
            .as_mut()
            .map(|base| (base.started(), PairSide::Base));
        let starts = [base, head].into_iter().flatten().map(|(processes, side)| {
            let counts = counts(side);
            move || processes.start_ahead(&counts)
        });
        at_once(starts.collect());
        let sides = if self.paired.is_some() { 2.0 } else { 1.0 };
        let taken = laps.end() / sides;
        self.head.spent.workers += taken;
        if let Some(base) = &mut self.paired {
            base.spent.workers += taken;
        }
    }

    /// Measures blocks whose workers are up at the same time, and writes their entries.
    fn measure_blocks(
        &mut self,
        blocks: &[Block],
        files: &mut RunFiles,
        progress: &mut dyn Observer,
    ) -> Result<(), ExperimentError> {
        let what = match self.paired {
            Some(_) => "comparison",
            None => "run",
        };
        let base = self.paired.as_mut().zip(files.base.as_mut());
        let mut sides = RunningSides {
            head: self.head.running(&mut files.head),
            base: base.map(|(base, file)| base.running(file)),
        };
        let run = session::run(blocks, &mut sides, progress);
        drop(sides);
        run.map_err(|error| ExperimentError::interrupted(what, error))?;
        for side in [PairSide::Base, PairSide::Head] {
            let mut lanes = blocks.iter().flat_map(|block| &block.lanes);
            if lanes.any(|lane| lane.side == side) {
                self.arm(side).check_loaded(true)?;
            }
        }
        Ok(())
    }

    /// Records, before any is measured, that these cases need `fresh` invocations more than all
    /// cases have. A stop then does not change what is judged.
    fn write_open(
        &self,
        files: &mut RunFiles,
        cases: Vec<CaseId>,
        fresh: u32,
    ) -> Result<(), ExperimentError> {
        let open = |cases| OpenCases {
            base: self.base_id(),
            cases,
            fresh,
        };
        if let Some(file) = &mut files.base {
            let beside = self.cases.iter();
            let beside = beside.filter(|(_, head)| cases.contains(&head.id()));
            let beside = beside.filter_map(|(base, _)| Some(base.as_ref()?.id()));
            let beside: Vec<CaseId> = beside.collect();
            if !beside.is_empty() {
                file.write_open(open(beside))
                    .map_err(ExperimentError::not_judged)?;
            }
        }
        files
            .head
            .write_open(open(cases))
            .map_err(ExperimentError::not_judged)
    }

    /// Measures the invocations that are recorded as open and still missing.
    fn measure_open(&mut self, files: &mut RunFiles) -> Result<(), ExperimentError> {
        let Some(open) = files.head.open.last().cloned() else {
            return Ok(());
        };
        let first = self.head.suite.settings.invocations;
        self.measure(files, Some(&open.cases), first..first + open.fresh)?;
        Ok(())
    }

    /// Reads the results back, and judges them as results to which more may be added.
    fn judge(&mut self, files: &RunFiles) -> Result<Evidence, ExperimentError> {
        let (run, head) = self.head.read(&files.head)?;
        if let (Some(base), Some(file)) = (&self.paired, &files.base) {
            // Under the names of the head's cases.
            let side = base.read(file)?.1.as_base_of(&head.header);
            let id = self.base_id();
            self.base = Some(StoredBase { id, side });
        }
        let options = Options {
            last: false,
            ..self.options
        };
        let mut judgement = judge::judge(&head, self.base_side(), &options);
        if self.expectations_alone {
            let metrics = judgement.rows.iter_mut().flat_map(|row| &mut row.metrics);
            metrics.for_each(|metric| metric.change.open = false);
        }
        Ok(Evidence {
            run,
            head,
            judgement,
        })
    }

    fn base_side(&self) -> Option<&Side> {
        self.base.as_ref().map(|base| &base.side)
    }

    /// Judges the final results.
    fn conclude(mut self, files: RunFiles, evidence: Evidence) -> MeasuredRun {
        let mut laps = Laps::begin();
        let judgement = judge::judge(&evidence.head, self.base_side(), &self.options);
        self.head.spent.judging += laps.end();
        MeasuredRun {
            judgement,
            arm: self.head,
            run: evidence.run,
            head: evidence.head,
            base: self.base,
            folder: self.folder,
            spent_on_base: self.paired.map(|base| base.spent),
            files,
        }
    }

    /// The reason for which two sides cannot be compared, checked before anything is measured.
    /// `places` are the words for the base and the head in the message: `there`, `here`.
    fn incomparable(&self, base: &Side, places: [&str; 2]) -> Option<String> {
        let judgement = judge::judge(&self.head.unmeasured(), Some(base), &self.options);
        let [there, here] = places;
        let lines = judgement.incomparable.iter();
        let lines = lines.map(|line| {
            format!(
                "  {}: {} {there}, {} {here}",
                line.field, line.base, line.head
            )
        });
        let lines: Vec<String> = lines.collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }
}

/// The reason for which an experiment ends without a result. Its message has the whole chain of
/// causes.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// The request, or a file that it names, is wrong; nothing was measured.
    #[error("{0}")]
    Usage(String),
    /// No verdict is possible.
    #[error("{0}")]
    NotJudged(String),
    /// One side of a comparison is not usable.
    #[error("{place}{error}")]
    Unusable {
        /// The side.
        side: PairSide,
        /// A prefix that names the side, if the error does not.
        place: String,
        /// The cause.
        error: Box<ExperimentError>,
    },
}

impl ExperimentError {
    /// The exit code, as documented in `docs/ARCHITECTURE.md`.
    pub fn exit_code(&self) -> u8 {
        match self {
            ExperimentError::Usage(_) => 2,
            ExperimentError::NotJudged(_) => VerdictOutcome::Inconclusive.exit_code(),
            ExperimentError::Unusable { error, .. } => error.exit_code(),
        }
    }

    /// A usage or configuration error.
    pub fn usage(error: impl Error) -> ExperimentError {
        ExperimentError::Usage(chain(&error))
    }

    /// An error that prevents a verdict.
    pub fn not_judged(error: impl Error) -> ExperimentError {
        ExperimentError::NotJudged(chain(&error))
    }

    /// An error while a run or comparison writes its file.
    fn interrupted(what: &str, error: impl Error) -> ExperimentError {
        ExperimentError::NotJudged(format!(
            "the {what} stops here; its measurements are kept, and the same command resumes it: {}",
            chain(&error)
        ))
    }
}

impl From<SetupError> for ExperimentError {
    fn from(error: SetupError) -> ExperimentError {
        ExperimentError::Usage(error.0)
    }
}

impl From<DocumentError> for ExperimentError {
    fn from(error: DocumentError) -> ExperimentError {
        ExperimentError::usage(error)
    }
}

/// An error with its causes, separated by colons.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

/// Shows the progress of an experiment.
pub trait Listener {
    /// Shows a message about the work.
    fn note(&self, text: &str);

    /// Starts to show the progress of blocks, whose invocations are in `range`.
    fn progress(&self, blocks: &[Block], range: Range<u32>, quiet: bool) -> Box<dyn Observer>;
}
