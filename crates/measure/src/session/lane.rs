//! One worker of a block (a lane), and the case that it is working on.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use super::census::count;
use super::outside_clock::keep_waits_for_children;
use super::task_times::cpu_of_children;
use super::{
    Asked, CaseEnd, Observer, Ready, Session, completed, fault_of, limit, no_answer, start_of,
    worker_lost,
};
use crate::interference::{MachineCounters, on_processor};
use crate::laps::Laps;
use crate::schedule::Lane;
use crate::worker::{Conversation, WorkerError};
use regatta_core::record::{Entry, Fault, Measurement, Outcome, PairSide, Start};
use regatta_core::suite::Settings;
use regatta_worker::case::Case;
use regatta_worker::operator::Operands;
use regatta_worker::protocol::{Measure, ReplyBody, RequestBody};
use regatta_worker::units::Nanoseconds;

/// Writes the entry of a case into its run.
type Keep<'a, E> = Box<dyn FnMut(&Entry) -> Result<(), E> + 'a>;

/// One side of the blocks that run: head or base.
pub struct RunningSide<'a, E> {
    /// The session that runs its workers.
    pub session: Session<'a>,
    /// Writes its entries.
    pub keep: Keep<'a, E>,
}

/// Both sides of the blocks that run.
pub struct RunningSides<'a, E> {
    /// The side that is judged.
    pub head: RunningSide<'a, E>,
    /// The base, if it is measured in pairs with the head.
    pub base: Option<RunningSide<'a, E>>,
}

impl<'a, E> RunningSides<'a, E> {
    /// The side of a lane.
    pub(super) fn get(&mut self, side: PairSide) -> &mut RunningSide<'a, E> {
        match (side, &mut self.base) {
            (PairSide::Base, Some(base)) => base,
            _ => &mut self.head,
        }
    }

    /// The head, and the base if there is one.
    pub(super) fn both(&mut self) -> impl Iterator<Item = &mut RunningSide<'a, E>> {
        [Some(&mut self.head), self.base.as_mut()]
            .into_iter()
            .flatten()
    }

    /// True once two workers could not be up at the same time.
    pub(super) fn one_at_a_time(&mut self) -> bool {
        self.both().any(|side| side.session.state.one_at_a_time)
    }
}

/// A lane that runs, with its worker.
pub(super) struct RunningLane<'a> {
    pub(super) lane: &'a Lane,
    /// The number of its block among the blocks that run at the same time.
    pub(super) block: usize,
    pub(super) invocation: u32,
    worker: LaneWorker,
    /// True until the first case of the worker's process has begun.
    just_started: bool,
}

pub(super) enum LaneWorker {
    /// Not running. It is started for the next case.
    Absent,
    /// Started.
    Up(Box<dyn Conversation>),
    /// It could not be started. Every remaining case gets this outcome.
    Down(Box<Outcome>),
}

impl<'a> RunningLane<'a> {
    /// A lane whose worker is not started yet.
    pub(super) fn new(lane: &'a Lane, block: usize, invocation: u32) -> RunningLane<'a> {
        RunningLane {
            lane,
            block,
            invocation,
            worker: LaneWorker::Absent,
            just_started: false,
        }
    }

    /// True if a worker has to be started for the case at `place`.
    pub(super) fn is_absent(&self, place: usize) -> bool {
        let has_case = self.lane.cases.get(place).is_some_and(Option::is_some);
        has_case && matches!(self.worker, LaneWorker::Absent)
    }

    /// True if the worker could not be started.
    pub(super) fn is_down(&self) -> bool {
        matches!(self.worker, LaneWorker::Down(_))
    }

    /// Takes the worker out of the lane.
    pub(super) fn take_worker(&mut self) -> LaneWorker {
        std::mem::replace(&mut self.worker, LaneWorker::Absent)
    }

    /// Stores the result of starting the worker.
    pub(super) fn take_started(&mut self, started: Result<Box<dyn Conversation>, WorkerError>) {
        self.just_started = true;
        self.worker = match started {
            Ok(conversation) => LaneWorker::Up(conversation),
            // The fault is a refusal whatever the cause, as no case was sent to the worker.
            Err(error) => LaneWorker::Down(Box::new(worker_lost(&error, Fault::Refused))),
        };
    }

    /// Begins the case at `place` with the lane's worker. A worker that failed to start is not
    /// started again: if a device is gone, each start would take its time and fail the same way.
    pub(super) fn begin(
        &mut self,
        place: usize,
        session: &mut Session<'_>,
        observer: &mut dyn Observer,
    ) -> Option<LaneCase<'_, 'a>> {
        let case = self.lane.cases.get(place)?.as_ref()?;
        observer.case(case);
        let (conversation, stage) = match self.take_worker() {
            LaneWorker::Up(conversation) => {
                let place = (self.block, self.invocation);
                let request = session.prepare_request(&*conversation, case, place);
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
        let device = conversation.as_ref().map(|worker| &worker.hello().device);
        let began = device.and_then(|device| session.state.load.look_for(device));
        let conversation_start = conversation.as_ref().and_then(|worker| worker.start());
        let first = std::mem::take(&mut self.just_started);
        Some(LaneCase {
            start: start_of(conversation_start, first),
            lane: self,
            case,
            conversation,
            began,
            holds_case: false,
            stage,
            turns: None,
            turn: 0,
            loaded: BTreeSet::new(),
        })
    }
}

/// A case while it is measured.
pub(super) struct LaneCase<'l, 'a> {
    pub(super) lane: &'l mut RunningLane<'a>,
    pub(super) case: &'a Case,
    /// The worker; `None` if it could not be started.
    conversation: Option<Box<dyn Conversation>>,
    start: Option<Start>,
    /// Counters of the machine when the case was requested.
    began: Option<MachineCounters>,
    holds_case: bool,
    pub(super) stage: Stage,
    pub(super) turns: Option<Turns>,
    /// The number of samples in each turn, known once they are taken.
    pub(super) turn: u32,
    /// Files that the worker had loaded when it released the case.
    loaded: BTreeSet<PathBuf>,
}

/// The progress of a case.
pub(super) enum Stage {
    /// The request to prepare the case is ready to send.
    Asked(Box<Asked>),
    /// The worker has replied, and the reply is not checked yet.
    Replied(Box<(Asked, Result<ReplyBody, WorkerError>)>),
    Ready(Box<Ready>),
    Timed(Box<Ready>, Box<Measurement>),
    Ended(CaseEnd),
}

/// The request for a case's samples, and the latest reply.
pub(super) struct Turns {
    pub(super) measure: Measure,
    began: Option<MachineCounters>,
    /// CPU time of the worker's child processes before the request.
    children: Duration,
    reply: Result<ReplyBody, WorkerError>,
    /// Times of all turns so far, in nanoseconds.
    pub(super) device_ns: Vec<f64>,
}

impl LaneCase<'_, '_> {
    /// The side whose run the case belongs to.
    pub(super) fn side(&self) -> PairSide {
        self.lane.lane.side
    }

    /// True if both cases belong to the same block.
    pub(super) fn is_beside(&self, other: &LaneCase<'_, '_>) -> bool {
        self.lane.block == other.lane.block
    }

    /// The data of a declared operator and the folder of its results, if the case has them.
    pub(super) fn declared(&self) -> Option<&(Operands, PathBuf)> {
        match &self.stage {
            Stage::Ready(ready) | Stage::Timed(ready, _) => ready.declared.as_deref(),
            Stage::Asked(_) | Stage::Replied(_) | Stage::Ended(_) => None,
        }
    }

    /// True if lack of room may have kept the case from being prepared: too little memory, or a
    /// device that admits one process.
    pub(super) fn lacks_room(&self) -> bool {
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

    /// True if memory ran out while samples were taken.
    pub(super) fn lacked_room(&self) -> bool {
        let reply = self.turns.as_ref().map(|turns| &turns.reply);
        matches!(reply, Some(Ok(ReplyBody::Unavailable { .. })))
    }

    /// True if a tuner made a choice while the case was prepared.
    pub(super) fn is_tuned(&self) -> bool {
        matches!(&self.stage, Stage::Ready(ready) if !ready.prepared.tuned.is_empty())
    }

    /// Takes the stage out. The case ends with an error unless another stage is put in its place.
    fn take_stage(&mut self) -> Stage {
        std::mem::replace(&mut self.stage, Stage::Ended(out_of_turn().into()))
    }

    /// Asks the worker to prepare the case.
    pub(super) fn prepare(&mut self, settings: &Settings) {
        self.stage = match (self.take_stage(), &mut self.conversation) {
            (Stage::Asked(asked), Some(worker)) => {
                let body = RequestBody::Prepare(asked.prepare.clone());
                let reply = worker.ask(body, limit(settings));
                self.holds_case = matches!(reply, Ok(ReplyBody::Prepared(_)));
                Stage::Replied(Box::new((*asked, reply)))
            }
            (stage, _) => stage,
        };
    }

    /// Checks the results of the first call.
    pub(super) fn take_prepared(&mut self, session: &mut Session<'_>) {
        let mut laps = Laps::begin();
        self.stage = match (self.take_stage(), &self.conversation) {
            (Stage::Replied(replied), Some(worker)) => {
                let (asked, reply) = *replied;
                let began = self.began.as_ref();
                let ready = reply.map_err(CaseEnd::from).and_then(|reply| {
                    session.prepared(worker.hello(), self.case, asked, reply, began)
                });
                ready.map_or_else(Stage::Ended, |ready| Stage::Ready(Box::new(ready)))
            }
            (stage, _) => stage,
        };
        session.spend(self.case, laps.end());
    }

    /// Asks for the samples of one turn. Returns true if more turns may follow.
    pub(super) fn turn(&mut self, session: &mut Session<'_>, in_turns: bool, last: bool) -> bool {
        let (Stage::Ready(_), Some(worker)) = (&self.stage, &mut self.conversation) else {
            return false;
        };
        let settings = &session.suite.settings;
        let mut laps = Laps::begin();
        if let Some(turns) = &mut self.turns {
            if !is_paused(&turns.reply) {
                return false;
            }
            let limit = limit(settings) + Duration::from_millis(turns.measure.budget_ms);
            turns.reply = worker.ask(RequestBody::Resume { last }, limit);
        } else {
            let of_case = (self.case, self.lane.invocation);
            let measure = session.measure_request(&**worker, of_case, in_turns);
            if in_turns {
                self.turn = measure.pause_every;
            }
            let limit = limit(settings) + Duration::from_millis(measure.budget_ms);
            let began = session.state.load.look_for(&worker.hello().device);
            let children = children_of(&**worker);
            let reply = worker.ask(RequestBody::Measure(measure.clone()), limit);
            self.turns = Some(Turns {
                measure,
                began,
                children,
                reply,
                device_ns: Vec::new(),
            });
        }
        session.spend(self.case, laps.end());
        let Some(turns) = &mut self.turns else {
            return false;
        };
        if let Ok(ReplyBody::Paused { device_ns }) = &turns.reply {
            turns.device_ns.extend(device_ns.iter().map(|time| time.0));
        }
        is_paused(&turns.reply)
    }

    /// Checks the samples in the last reply, and bounds them by the harness's clock.
    pub(super) fn take_times(&mut self, session: &mut Session<'_>) {
        let Some(turns) = self.turns.take() else {
            return;
        };
        let (Stage::Ready(ready), Some(worker)) = (&self.stage, &mut self.conversation) else {
            return;
        };
        let (mut laps, mut clock) = (Laps::begin(), Nanoseconds(0.0));
        let device = worker.hello().device.clone();
        let children = children_of(&**worker);
        let measurement = turns.reply.map_err(CaseEnd::from).and_then(|reply| {
            let answered = (&turns.measure, reply);
            let of_case = (self.case, &**ready);
            let mut measurement =
                session.checked(&device, of_case, answered, turns.began.as_ref())?;
            let children = children.saturating_sub(turns.children);
            keep_waits_for_children(&mut measurement, children);
            let mut lap = Laps::begin();
            let (of_case, invocation) = ((self.case, &ready.variant), self.lane.invocation);
            let bound = session.bound(worker.as_mut(), invocation, of_case, &measurement);
            clock = lap.end();
            bound.map(|()| measurement)
        });
        session.spend(self.case, laps.end());
        session.spent.cases -= clock;
        session.spent.clocks += clock;
        self.stage = match (measurement, self.take_stage()) {
            (Ok(measurement), Stage::Ready(ready)) => Stage::Timed(ready, Box::new(measurement)),
            (Err(end), _) => Stage::Ended(end),
            (Ok(_), stage) => stage,
        };
    }

    /// Counts the structure of a call.
    pub(super) fn count_structure(&mut self, settings: &Settings) {
        self.stage = match self.take_stage() {
            // No samples were asked for; the suite counts structure only.
            Stage::Ready(ready) => Stage::Timed(ready, Box::default()),
            stage => stage,
        };
        if let (Stage::Timed(_, measurement), Some(worker)) =
            (&mut self.stage, &mut self.conversation)
            && let Err(error) = count(&mut **worker, self.lane.invocation, settings, measurement)
        {
            self.stage = Stage::Ended(CaseEnd::Lost(error));
        }
    }

    /// Asks the worker to release its case. The case's results stay even if that fails, but the
    /// worker is then not used for another case.
    pub(super) fn release(&mut self, settings: &Settings) {
        let Some(mut worker) = self.conversation.take() else {
            return;
        };
        let mut lives = !matches!(self.stage, Stage::Ended(CaseEnd::Lost(_)));
        if lives && self.holds_case {
            let reply = worker.ask(RequestBody::Release, limit(settings));
            self.loaded.extend(worker.loaded());
            lives = match reply {
                Ok(ReplyBody::Released { files }) => {
                    self.loaded.extend(files);
                    true
                }
                _ => false,
            };
        }
        if lives {
            self.lane.worker = LaneWorker::Up(worker);
        }
    }

    /// Puts the worker back into the lane. It may still hold the case.
    pub(super) fn put_back(mut self) {
        if let Some(worker) = self.conversation.take() {
            self.lane.worker = LaneWorker::Up(worker);
        }
    }

    /// The entry of the case.
    pub(super) fn end(self, session: &mut Session<'_>) -> Entry {
        session.state.loaded.extend(self.loaded);
        let outcome = match self.stage {
            Stage::Timed(ready, measurement) => Outcome::Measured(completed(*ready, *measurement)),
            // Nothing was timed, and no structure counted.
            Stage::Ready(ready) => Outcome::Measured(completed(*ready, Measurement::default())),
            Stage::Ended(CaseEnd::Outcome(outcome)) => *outcome,
            Stage::Ended(CaseEnd::Lost(error)) => worker_lost(&error, fault_of(&error)),
            Stage::Asked(_) | Stage::Replied(_) => out_of_turn(),
        };
        Entry {
            case: self.case.id(),
            invocation: self.lane.invocation,
            outcome,
            start: self.start,
        }
    }
}

/// CPU time of a worker's child processes. Zero on a GPU, where it does not matter.
fn children_of(worker: &dyn Conversation) -> Duration {
    let process = worker.process();
    let process = process.filter(|_| on_processor(&worker.hello().device));
    process.map_or(Duration::ZERO, cpu_of_children)
}

fn is_paused(reply: &Result<ReplyBody, WorkerError>) -> bool {
    matches!(reply, Ok(ReplyBody::Paused { .. }))
}

/// The outcome of a case whose worker replied at the wrong time.
fn out_of_turn() -> Outcome {
    no_answer(ReplyBody::Paused {
        device_ns: Vec::new(),
    })
}
