//! Runs a block: its workers are up at the same time, each prepares a case, and they take turns at
//! being timed. One works while the other waits.
//!
//! Other programs come and go within seconds. Measured one after the other, two processes find
//! another machine each; in turns of a few samples they share it.

use std::time::Duration;

use super::declared::compare_sides;
use super::outside_clock::{cpu_of_children, keep_waits_for_children};
use super::{
    Asked, CaseEnd, Observer, Ready, Session, compared, failed, fault_of, limit, no_answer,
    start_of, worker_lost,
};
use crate::interference::MachineCounters;
use crate::laps::Laps;
use crate::schedule::{Block, Lane};
use crate::worker::{Conversation, WorkerError, at_once};
use regatta_core::metric::{ratio_in_turns, turn_ratios};
use regatta_core::record::header::PairSide;
use regatta_core::record::side::median;
use regatta_core::record::types::{Compared, Entry, Fault, Measurement, Outcome, Start};
use regatta_core::suite::rules::Metric;
use regatta_worker::attention::Case;
use regatta_worker::operator::Operands;
use regatta_worker::protocol::{Measure, ReplyBody, RequestBody};
use regatta_worker::units::Nanoseconds;

/// Writes the entry of a case into its run.
type Keep<'a, E> = Box<dyn FnMut(&Entry) -> Result<(), E> + 'a>;

/// One worker of a block, with its session.
pub struct Running<'a, E> {
    session: Session<'a>,
    lane: &'a Lane,
    invocation: u32,
    keep: Keep<'a, E>,
    worker: LaneWorker,
    /// True until the first case of the worker's process.
    just_started: bool,
}

enum LaneWorker {
    /// To be started for the next case.
    Absent,
    /// Started.
    Up(Box<dyn Conversation>),
    /// It could not be started; so ends every case that is left.
    Down(Box<Outcome>),
}

/// A case while it is measured.
struct CaseRun<'a> {
    case: &'a Case,
    /// The worker; `None` where that is not up.
    conversation: Option<Box<dyn Conversation>>,
    start: Option<Start>,
    holds_case: bool,
    stage: Stage,
}

/// The progress of a case.
enum Stage {
    Asked(Box<Asked>),
    Ready(Box<Ready>),
    Timed(Box<Ready>, Box<Measurement>),
    Ended(CaseEnd),
}

impl Stage {
    /// The operands of a case whose results are there.
    fn operands(&self) -> Option<&Operands> {
        match self {
            Stage::Ready(ready) | Stage::Timed(ready, _) => ready.operands.as_deref(),
            Stage::Asked(_) | Stage::Ended(_) => None,
        }
    }
}

/// Runs a block, handing each entry to the `keep` of its lane as soon as it is there. Where only one
/// worker may be up, or only one case fits into memory, its lanes run one after the other.
///
/// # Errors
/// Whatever `keep` fails with; nothing a worker does is an error here.
pub fn run<E>(
    block: &Block,
    mut lanes: Vec<Running<'_, E>>,
    observer: &mut dyn Observer,
) -> Result<(), E> {
    observer.block(block);
    let places = block.lanes.first().map_or(0, |lane| lane.cases.len());
    let mut from = 0;
    while lanes.len() > 1
        && from < places
        && !lanes.iter().any(|lane| lane.session.state.one_at_a_time)
    {
        if !at_place(&mut lanes, from, observer)? {
            break;
        }
        from += 1;
    }
    for lane in &mut lanes {
        for place in from..places {
            at_place(std::slice::from_mut(lane), place, observer)?;
        }
        if from < places {
            end_workers(std::slice::from_mut(lane));
        }
    }
    end_workers(&mut lanes);
    Ok(())
}

/// Measures the cases of all lanes at one place. Gives false, with nothing measured, where they
/// cannot be prepared at the same time.
fn at_place<E>(
    lanes: &mut [Running<'_, E>],
    place: usize,
    observer: &mut dyn Observer,
) -> Result<bool, E> {
    start_workers(lanes, place);
    let mut runs: Vec<_> = lanes
        .iter_mut()
        .map(|lane| lane.begin(place, observer))
        .collect();
    prepare_all(lanes, &mut runs);
    compare_calls(lanes, &mut runs);
    let there: Vec<&CaseRun<'_>> = runs.iter().flatten().collect();
    if there.len() > 1 && there.iter().any(|run| run.lacks_room()) {
        for (lane, run) in lanes.iter_mut().zip(runs) {
            lane.abandon(run);
        }
        return Ok(false);
    }
    let pairs = lanes.iter_mut().zip(runs);
    let mut pairs: Vec<_> = pairs.filter_map(|(lane, run)| Some((lane, run?))).collect();
    take_turns(&mut pairs);
    for (lane, run) in pairs {
        let entry = lane.end(run);
        (lane.keep)(&entry)?;
        observer.done(&entry);
    }
    Ok(true)
}

/// Starts the workers of lanes with a case at this place that are not up, all at the same time.
fn start_workers<E>(lanes: &mut [Running<'_, E>], place: usize) {
    let mut absent: Vec<&mut Running<'_, E>> = lanes
        .iter_mut()
        .filter(|lane| matches!(lane.worker, LaneWorker::Absent))
        .filter(|lane| lane.lane.cases[place].is_some())
        .collect();
    let mut laps = Laps::begin();
    let starts = absent.iter_mut().map(|lane| {
        let (launcher, worker) = (&mut *lane.session.launcher, &lane.lane.worker);
        move || launcher.start(worker)
    });
    let started = at_once(starts.collect());
    let taken = laps.end() / absent.len().max(1) as f64;
    for (lane, started) in absent.into_iter().zip(started) {
        lane.session.spent.workers += taken;
        lane.just_started = true;
        lane.worker = match started {
            Ok(conversation) => LaneWorker::Up(conversation),
            // Whatever it died of: no case was put to it.
            Err(error) => LaneWorker::Down(Box::new(worker_lost(&error, Fault::Refused))),
        };
    }
}

/// Has all workers prepare their cases at the same time, and checks what they computed.
fn prepare_all<'a, E>(lanes: &mut [Running<'_, E>], runs: &mut [Option<CaseRun<'a>>]) {
    let mut asked: Vec<(&mut Running<'_, E>, &mut CaseRun<'a>, Asked)> = Vec::new();
    for (lane, run) in lanes.iter_mut().zip(runs.iter_mut()) {
        let Some(run) = run else { continue };
        match std::mem::replace(&mut run.stage, Stage::Ended(out_of_turn().into())) {
            Stage::Asked(request) => asked.push((lane, run, *request)),
            stage => run.stage = stage,
        }
    }
    let mut laps = Laps::begin();
    let count = asked.len().max(1) as f64;
    let began: Vec<_> = asked
        .iter_mut()
        .map(|(lane, ..)| lane.session.state.load.look())
        .collect();
    let requests = asked.iter_mut().filter_map(|(lane, run, asked)| {
        let limit = limit(&lane.session.suite.settings);
        let body = RequestBody::Prepare(asked.prepare.clone());
        let worker = run.conversation.as_deref_mut()?;
        Some(move || worker.ask(body, limit))
    });
    let replies = at_once(requests.collect());
    let taken = laps.end() / count;
    for (((lane, run, asked), reply), began) in asked.into_iter().zip(replies).zip(began) {
        lane.take_prepared(run, asked, reply, began.as_ref());
        lane.session.spend(run.case, taken + laps.end());
    }
    if let [one, other] = lanes
        && let [Some(run), Some(other_run)] = runs
    {
        compare_results([(one, run), (other, other_run)], false);
    }
}

/// Compares the head's results with the base's, of an operator without a reference.
fn compare_results<E>(pair: [(&mut Running<'_, E>, &mut CaseRun<'_>); 2], after_timing: bool) {
    let [one, other] = pair;
    let (base, head) = match one.0.lane.side {
        PairSide::Base => (one, other),
        PairSide::Head => (other, one),
    };
    let Some((operator, _)) = head.0.session.declared(head.1.case) else {
        return;
    };
    let has_reference = operator.reference.is_some();
    let name = operator.name.clone();
    let (Some(_), Some(operands)) = (base.1.stage.operands(), head.1.stage.operands().cloned())
    else {
        return;
    };
    if has_reference {
        return;
    }
    let folders = [&mut base.0.session, &mut head.0.session].map(|session| session.folder());
    let [Ok(base), Ok(of_head)] = folders else {
        return;
    };
    let sides = (base.as_path(), of_head.as_path());
    match compare_sides(&name, &operands, sides, after_timing) {
        Err(rejected) => head.1.stage = Stage::Ended(Outcome::from(rejected).into()),
        Ok(errors) => match &mut head.1.stage {
            Stage::Ready(ready) => ready.errors = errors,
            Stage::Timed(_, measurement) => measurement.errors_after = errors,
            _ => {}
        },
    }
}

/// Compares what a call of a script returned on both sides, where both have it ready: the base is
/// the head's only reference.
fn compare_calls<E>(lanes: &[Running<'_, E>], runs: &mut [Option<CaseRun<'_>>]) {
    let ready = |side: PairSide| {
        let mut places = (0..lanes.len()).filter(|&place| lanes[place].lane.side == side);
        places.find(|&place| {
            let run = runs[place].as_ref();
            run.is_some_and(|run| {
                run.case.problem.is_call() && matches!(run.stage, Stage::Ready(_))
            })
        })
    };
    let (Some(base), Some(head)) = (ready(PairSide::Base), ready(PairSide::Head)) else {
        return;
    };
    let outputs = |place: usize| match runs[place].as_ref().map(|run| &run.stage) {
        Some(Stage::Ready(ready)) => ready.prepared.outputs.clone(),
        _ => Vec::new(),
    };
    let listed = |place: usize| {
        let run = runs[place].as_ref()?;
        let listed = lanes[place].session.suite.listed.get(&run.case.id())?;
        Some(&listed.outputs[..])
    };
    let before = [listed(base), listed(head)];
    let compared = compared::compare([&outputs(base), &outputs(head)], before);
    for (place, is_head) in [(base, false), (head, true)] {
        let Some(run) = &mut runs[place] else {
            continue;
        };
        let Stage::Ready(ready) = &mut run.stage else {
            continue;
        };
        match &compared {
            Ok((how, errors)) => {
                ready.compared = Some(how.clone());
                if is_head {
                    ready.errors.clone_from(errors);
                }
            }
            Err(reason) if is_head => {
                run.stage = Stage::Ended(failed(Fault::WrongResult, reason.clone()).into());
            }
            Err(_) => ready.compared = Some(Compared::Base),
        }
    }
}

/// The samples of a case that were asked for, and what came.
struct Turns {
    measure: Measure,
    began: Option<MachineCounters>,
    /// CPU time of the worker's child processes before.
    children: Duration,
    reply: Result<ReplyBody, WorkerError>,
    /// Times of the turns so far.
    device_ns: Vec<f64>,
}

/// True where the samples of two sides that take turns are enough: so many, and by the spread of their
/// turns the error of the pair's ratio is small beside the threshold.
fn are_enough(turns: &[Option<Turns>], (enough, threshold): (u32, f64)) -> bool {
    let [Some(base), Some(head)] = turns else {
        return false;
    };
    let turn = base.measure.pause_every;
    let logs = turn_ratios(&base.device_ns, &head.device_ns, turn);
    let Some(middle) = median(&logs) else {
        return false;
    };
    let apart: Vec<f64> = logs.iter().map(|log| (log - middle).abs()).collect();
    // The error of a median from the median distance to it, in a normal distribution.
    let error = 1.2533 * 1.4826 * median(&apart).unwrap_or(f64::MAX) / (logs.len() as f64).sqrt();
    let next = base.device_ns.len() as u32 + turn;
    next >= enough && error <= threshold / SMALL_ERROR
}

/// Samples of each side that show the error of a pair, where the suite asks for more.
const ENOUGH: u32 = 20;

/// An error is small beside a threshold that is so many times as large.
const SMALL_ERROR: f64 = 3.0;

/// Has each worker that is ready take its samples: all at once, or in turns where there are two.
/// Two sides swap places from one round to the next.
fn take_turns<E>(pairs: &mut [(&mut Running<'_, E>, CaseRun<'_>)]) {
    let is_ready = |(_, run): &&mut (_, CaseRun<'_>)| matches!(run.stage, Stage::Ready(_));
    let mut ready: Vec<_> = pairs.iter_mut().filter(is_ready).collect();
    let in_turns = ready.len() > 1;
    let mut turns: Vec<Option<Turns>> = ready.iter().map(|_| None).collect();
    let settings = ready.first().map(|(lane, _)| {
        let suite = lane.session.suite;
        let threshold = suite.rules.policy.threshold_of(Metric::Device);
        let settings = &suite.settings;
        let enough = settings.samples.min(ENOUGH).max(settings.min_samples);
        (enough, threshold.0)
    });
    let (mut round, mut last) = (0, false);
    loop {
        let mut order: Vec<usize> = (0..ready.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        let mut paused = false;
        for at in order {
            let (lane, run) = &mut *ready[at];
            paused |= lane.turn(run, &mut turns[at], in_turns, (round, last));
        }
        if !paused {
            break;
        }
        last = settings.is_some_and(|settings| are_enough(&turns, settings));
        round += 1;
    }
    let turn = turns
        .iter()
        .flatten()
        .map(|turns| turns.measure.pause_every)
        .max();
    for ((lane, run), turns) in ready.iter_mut().zip(turns) {
        if let Some(turns) = turns {
            lane.take_times(run, turns);
        }
    }
    if in_turns && let Some(turn) = turn {
        compare_turns(&mut ready, turn);
        if let [one, other] = &mut ready[..] {
            let (lane, run) = &mut **one;
            let (other_lane, other_run) = &mut **other;
            compare_results([(lane, run), (other_lane, other_run)], true);
        }
    }
}

/// Keeps with the head by how much its samples lie above the base's.
fn compare_turns<E>(pair: &mut [&mut (&mut Running<'_, E>, CaseRun<'_>)], turn: u32) {
    let [one, other] = pair else {
        return;
    };
    let (base, head) = match one.0.lane.side {
        PairSide::Base => (&one.1, &mut other.1),
        PairSide::Head => (&other.1, &mut one.1),
    };
    if let (Stage::Timed(_, base), Stage::Timed(_, head)) = (&base.stage, &mut head.stage) {
        let ratio = |metric| {
            let ratio = ratio_in_turns(metric, &base.samples, &head.samples, turn)?;
            Some((metric, ratio))
        };
        head.ratios = Metric::ALL.into_iter().filter_map(ratio).collect();
    }
}

impl<'a, E> Running<'a, E> {
    /// A lane of a block, whose worker is not started yet.
    pub fn new(
        session: Session<'a>,
        lane: &'a Lane,
        invocation: u32,
        keep: Keep<'a, E>,
    ) -> Running<'a, E> {
        Running {
            session,
            lane,
            invocation,
            keep,
            worker: LaneWorker::Absent,
            just_started: false,
        }
    }

    /// The case at a place, with the worker that is to prepare it. One that did not come up is not
    /// tried again: with a device gone, each start would take its time and fail alike.
    fn begin(&mut self, place: usize, observer: &mut dyn Observer) -> Option<CaseRun<'a>> {
        let case = self.lane.cases[place].as_ref()?;
        observer.case(case);
        let (conversation, stage) = match std::mem::replace(&mut self.worker, LaneWorker::Absent) {
            LaneWorker::Up(conversation) => {
                let request = self
                    .session
                    .prepare_request(&*conversation, case, self.invocation);
                let stage = match request {
                    Ok(asked) => Stage::Asked(Box::new(asked)),
                    Err(end) => Stage::Ended(end),
                };
                (Some(conversation), stage)
            }
            LaneWorker::Down(outcome) => {
                self.worker = LaneWorker::Down(outcome.clone());
                (None, Stage::Ended(CaseEnd::Outcome(outcome)))
            }
            LaneWorker::Absent => (None, Stage::Ended(out_of_turn().into())),
        };
        let conversation_start = conversation.as_ref().and_then(|worker| worker.start());
        let first = std::mem::take(&mut self.just_started);
        Some(CaseRun {
            case,
            start: start_of(conversation_start, first),
            conversation,
            holds_case: false,
            stage,
        })
    }

    /// Checks the results of a first call.
    fn take_prepared(
        &mut self,
        run: &mut CaseRun<'_>,
        asked: Asked,
        reply: Result<ReplyBody, WorkerError>,
        began: Option<&MachineCounters>,
    ) {
        let Some(worker) = &run.conversation else {
            return;
        };
        run.holds_case = matches!(reply, Ok(ReplyBody::Prepared(_)));
        let hello = worker.hello();
        let ready = reply
            .map_err(CaseEnd::from)
            .and_then(|reply| self.session.prepared(hello, run.case, asked, reply, began));
        run.stage = match ready {
            Ok(ready) => Stage::Ready(Box::new(ready)),
            Err(end) => Stage::Ended(end),
        };
    }

    /// Ends the worker of a case that is measured later, beside no other process.
    fn abandon(&mut self, run: Option<CaseRun<'_>>) {
        drop(run);
        // Workers that wait for their pair take memory that the case lacks.
        self.session.launcher.end_ahead();
        if matches!(self.worker, LaneWorker::Down(_)) {
            // It did not start while another process was up, and may alone.
            self.session.state.one_at_a_time = true;
        }
        self.worker = LaneWorker::Absent;
    }

    /// Asks for the samples of a turn. Gives true where more turns follow.
    fn turn(
        &mut self,
        run: &mut CaseRun<'_>,
        turns: &mut Option<Turns>,
        in_turns: bool,
        (round, last): (u32, bool),
    ) -> bool {
        let settings = &self.session.suite.settings;
        let Some(worker) = run.conversation.as_deref_mut() else {
            return false;
        };
        let measure = match turns {
            Some(turns) if is_paused(&turns.reply) => turns.measure.clone(),
            None if !settings.structure_only => {
                let (case, number) = (run.case, self.invocation);
                self.session.measure_request(worker, case, number, in_turns)
            }
            _ => return false,
        };
        let limit = limit(settings) + Duration::from_millis(measure.budget_ms);
        let mut laps = Laps::begin();
        if let Some(turns) = turns {
            turns.reply = worker.ask(RequestBody::Resume { last }, limit);
        } else {
            let began = self.session.state.load.look();
            let children = worker.process().map_or(Duration::ZERO, cpu_of_children);
            let reply = worker.ask(RequestBody::Measure(measure.clone()), limit);
            *turns = Some(Turns {
                measure,
                began,
                children,
                reply,
                device_ns: Vec::new(),
            });
        }
        self.session.spend(run.case, laps.end());
        if let Some(turns) = turns
            && let Ok(ReplyBody::Paused { device_ns }) = &turns.reply
        {
            turns.device_ns.extend(device_ns.iter().map(|time| time.0));
        }
        // A worker that pauses more often than the request says has no end.
        turns.as_ref().is_some_and(|Turns { measure, reply, .. }| {
            let most = measure.samples.max(measure.min_samples);
            is_paused(reply) && in_turns && round <= most / measure.pause_every.max(1)
        })
    }

    /// Takes in the last reply to a request for samples.
    fn take_times(&mut self, run: &mut CaseRun<'_>, turns: Turns) {
        let (Stage::Ready(ready), Some(worker)) = (&run.stage, &mut run.conversation) else {
            return;
        };
        let (mut laps, mut clock) = (Laps::begin(), Nanoseconds(0.0));
        let device = worker.hello().device.clone();
        let children = worker.process().map_or(Duration::ZERO, cpu_of_children);
        let measurement = turns.reply.map_err(CaseEnd::from).and_then(|reply| {
            let answered = (&turns.measure, reply);
            let began = turns.began.as_ref();
            let mut measurement =
                self.session
                    .checked(&device, (run.case, ready), answered, began)?;
            let children = children.saturating_sub(turns.children);
            keep_waits_for_children(&mut measurement, children);
            let of_case = (run.case, &ready.variant);
            let session = &mut self.session;
            let mut lap = Laps::begin();
            let bound = session.bound(worker.as_mut(), self.invocation, of_case, &measurement);
            clock = lap.end();
            bound.map(|()| measurement)
        });
        self.session.spend(run.case, laps.end());
        self.session.spent.cases -= clock;
        self.session.spent.clocks += clock;
        let stage = std::mem::replace(&mut run.stage, Stage::Ended(out_of_turn().into()));
        run.stage = match (measurement, stage) {
            (Ok(measurement), Stage::Ready(ready)) => Stage::Timed(ready, Box::new(measurement)),
            (Err(end), _) => Stage::Ended(end),
            (Ok(_), stage) => stage,
        };
    }

    /// Counts the structure of a call, has the worker release its case, and returns the entry.
    fn end(&mut self, run: CaseRun<'_>) -> Entry {
        let CaseRun {
            case,
            mut conversation,
            start,
            holds_case,
            stage,
        } = run;
        let mut laps = Laps::begin();
        let measured = match (stage, conversation.as_deref_mut()) {
            (Stage::Ended(end), _) => Err(end),
            (_, None) | (Stage::Asked(_), _) => Err(out_of_turn().into()),
            (Stage::Ready(ready), Some(worker)) => {
                // Nothing is timed.
                let times = Measurement::default();
                self.session
                    .completed(worker, self.invocation, *ready, times)
            }
            (Stage::Timed(ready, times), Some(worker)) => {
                self.session
                    .completed(worker, self.invocation, *ready, *times)
            }
        };
        if let Some(mut conversation) = conversation.take() {
            let lost = matches!(measured, Err(CaseEnd::Lost(_)));
            let lives = !lost && (!holds_case || self.session.release(conversation.as_mut()));
            self.session.spend(case, laps.end());
            if lives {
                self.worker = LaneWorker::Up(conversation);
            } else {
                drop(conversation);
                self.session.spent.workers += laps.end();
            }
        }
        Entry {
            case: case.id(),
            invocation: self.invocation,
            outcome: match measured {
                Ok(measurement) => Outcome::Measured(measurement),
                Err(CaseEnd::Outcome(outcome)) => *outcome,
                Err(CaseEnd::Lost(error)) => worker_lost(&error, fault_of(&error)),
            },
            start,
        }
    }
}

/// Ends the workers that are up, all at the same time.
fn end_workers<E>(lanes: &mut [Running<'_, E>]) {
    let mut laps = Laps::begin();
    let count = lanes.len().max(1) as f64;
    let workers = lanes.iter_mut().map(|lane| {
        let worker = std::mem::replace(&mut lane.worker, LaneWorker::Absent);
        move || drop(worker)
    });
    at_once(workers.collect());
    let taken = laps.end() / count;
    lanes
        .iter_mut()
        .for_each(|lane| lane.session.spent.workers += taken);
}

impl CaseRun<'_> {
    /// True where it may be for want of room that the case was not prepared: memory, or a device
    /// that takes one process.
    fn lacks_room(&self) -> bool {
        let Stage::Ended(CaseEnd::Outcome(outcome)) = &self.stage else {
            return false;
        };
        let unavailable = matches!(
            **outcome,
            Outcome::Failed {
                fault: Fault::Unavailable,
                ..
            }
        );
        unavailable || self.conversation.is_none()
    }
}

fn is_paused(reply: &Result<ReplyBody, WorkerError>) -> bool {
    matches!(reply, Ok(ReplyBody::Paused { .. }))
}

/// The outcome of a case whose worker paused without end.
fn out_of_turn() -> Outcome {
    let device_ns = Vec::new();
    no_answer(ReplyBody::Paused { device_ns })
}
