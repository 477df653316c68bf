//! Runs several blocks side by side. The workers of all blocks are up at the same time, and each
//! prepares a case. Then they take their samples and check their results in turn: one works while
//! the others wait.
//!
//! On a GPU these are the blocks of several invocations, as many as fit into its memory. Preparing
//! a case and counting its structure is work of the host: ten processes at the same time need two
//! seconds, one after the other six. Checks wait for the GPU again and again, and each wait gives
//! the other processes a time slice: two checks at the same time take three times as long as one
//! after the other.

use std::collections::BTreeMap;
use std::thread::{self, JoinHandle};

use super::lane::{LaneCase, LaneWorker, RunningLane, RunningSides};
use super::sides::{compare_calls, compare_results, compare_turns};
use super::turns::take_turns;
use super::{Observer, counts_structure};
use crate::laps::Laps;
use crate::schedule::Block;
use crate::worker::at_once;
use regatta_core::record::PairSide;
use regatta_core::suite::Settings;

/// Runs `blocks`, and hands each entry to the writer of its side as soon as the case ends. Lanes
/// run one after the other if only one worker may be up, or if only one case fits into memory.
///
/// # Errors
/// The error of a writer. A worker's failure is an entry, not an error.
pub fn run<E>(
    blocks: &[Block],
    sides: &mut RunningSides<'_, E>,
    observer: &mut dyn Observer,
) -> Result<(), E> {
    let numbered = blocks.iter().enumerate();
    let lanes = numbered.flat_map(|(number, block)| {
        let lanes = block.lanes.iter();
        lanes.map(move |lane| RunningLane::new(lane, number, block.invocation))
    });
    measure_from(0, &mut lanes.collect::<Vec<_>>(), sides, observer)
}

/// Measures the cases of `lanes` from `place` on. All lanes run together while there is room, then
/// the lanes of each block, then each lane alone.
fn measure_from<E>(
    mut place: usize,
    lanes: &mut [RunningLane<'_>],
    sides: &mut RunningSides<'_, E>,
    observer: &mut dyn Observer,
) -> Result<(), E> {
    let invocations = lanes.iter().map(|lane| lane.invocation);
    if let (Some(first), Some(last)) = (invocations.clone().min(), invocations.max()) {
        observer.invocations(first..=last);
    }
    let places = lanes.iter().map(|lane| lane.lane.cases.len()).max();
    let places = places.unwrap_or(0);
    let mut apart = BTreeMap::new();
    while place < places
        && (lanes.len() == 1 || !sides.one_at_a_time())
        && at_place(lanes, place, &mut apart, sides, observer)?
    {
        place += 1;
    }
    end_workers(lanes, sides);
    if place < places || sides.one_at_a_time() {
        // Ending workers hold memory that the next ones need.
        wait_for_ends(sides);
    }
    let several = lanes.iter().any(|lane| lane.block != lanes[0].block);
    for part in lanes.chunk_by_mut(|one, other| several && one.block == other.block) {
        let from = apart.get(&part[0].block).copied().unwrap_or(place);
        if from < places {
            measure_from(from, part, sides, observer)?;
        }
    }
    Ok(())
}

/// Measures the case at `place` in all lanes. Returns false, with nothing measured, if the cases
/// have to be prepared one after the other. Skips the blocks in `apart`, which are measured
/// separately, and adds those that have to be: each with its first place that is not measured yet.
fn at_place<E>(
    lanes: &mut [RunningLane<'_>],
    place: usize,
    apart: &mut BTreeMap<usize, usize>,
    sides: &mut RunningSides<'_, E>,
    observer: &mut dyn Observer,
) -> Result<bool, E> {
    let together = lanes.iter_mut();
    let together = together.filter(|lane| !apart.contains_key(&lane.block));
    let mut together: Vec<_> = together.collect();
    start_workers(&mut together, place, sides);
    let mut cases = Vec::new();
    for lane in together {
        let session = &mut sides.get(lane.lane.side).session;
        cases.extend(lane.begin(place, session, observer));
    }
    let several = cases.iter().any(|case| !case.is_beside(&cases[0]));
    at_once_in(cases.iter_mut().collect(), sides, LaneCase::prepare);
    for case in &mut cases {
        case.take_prepared(&mut sides.get(case.side()).session);
    }
    if several {
        cases = without_tuned(cases, place, apart, sides);
    }
    let mut lack_room = cases.len() > 1 && cases.iter().any(LaneCase::lacks_room);
    if !lack_room {
        for block in cases.chunk_by_mut(|one, other| one.is_beside(other)) {
            compare_calls(block, sides);
            compare_results(block, sides, false);
            take_turns(block, sides);
            lack_room = several && block.iter().any(LaneCase::lacked_room);
            if lack_room {
                break;
            }
        }
    }
    if lack_room {
        cases.into_iter().for_each(LaneCase::put_back);
        make_room(lanes, sides);
        return Ok(false);
    }
    for case in &mut cases {
        case.take_times(&mut sides.get(case.side()).session);
    }
    for block in cases.chunk_by_mut(|one, other| one.is_beside(other)) {
        compare_turns(block);
        compare_results(block, sides, true);
    }
    count_structure(&mut cases, sides);
    at_once_in(cases.iter_mut().collect(), sides, LaneCase::release);
    for case in cases {
        let side = sides.get(case.side());
        let entry = case.end(&mut side.session);
        (side.keep)(&entry)?;
        observer.done(&entry);
    }
    Ok(true)
}

/// Returns the cases of blocks in which no tuner made a choice. The other blocks are measured
/// apart, in new processes: a tuner beside other processes chooses by times that they disturb.
fn without_tuned<'l, 'a, E>(
    cases: Vec<LaneCase<'l, 'a>>,
    place: usize,
    apart: &mut BTreeMap<usize, usize>,
    sides: &mut RunningSides<'_, E>,
) -> Vec<LaneCase<'l, 'a>> {
    for case in cases.iter().filter(|case| case.is_tuned()) {
        let state = &mut sides.get(case.side()).session.state;
        state.tuning.insert(case.lane.lane.worker.clone());
        apart.insert(case.lane.block, place);
    }
    let is_apart = |case: &LaneCase<'_, '_>| apart.contains_key(&case.lane.block);
    let (tuned, others): (Vec<_>, Vec<_>) = cases.into_iter().partition(is_apart);
    at_once(tuned.into_iter().map(|case| move || drop(case)).collect());
    others
}

/// Calls `work` on all of these cases at the same time.
fn at_once_in<'l, 'a, E>(
    cases: Vec<&mut LaneCase<'l, 'a>>,
    sides: &mut RunningSides<'_, E>,
    work: fn(&mut LaneCase<'l, 'a>, &Settings),
) {
    let (mut laps, count) = (Laps::begin(), cases.len().max(1) as f64);
    let works = cases.into_iter().map(|case| {
        let suite = sides.get(case.side()).session.suite;
        move || {
            work(case, &suite.settings);
            case
        }
    });
    let done = at_once(works.collect());
    let taken = laps.end() / count;
    for case in done {
        sides.get(case.side()).session.spend(case.case, taken);
    }
}

/// Counts the structure of a call, in the invocations that do so. The first invocation also times
/// single operations, so its processes count one after the other; those of later ones count at the
/// same time.
fn count_structure<E>(cases: &mut [LaneCase<'_, '_>], sides: &mut RunningSides<'_, E>) {
    let mut beside = Vec::new();
    for case in cases {
        let settings = &sides.get(case.side()).session.suite.settings;
        let invocation = case.lane.invocation;
        if !counts_structure(invocation, settings.invocations) {
            continue;
        }
        if invocation == 0 || settings.instructions {
            at_once_in(vec![case], sides, LaneCase::count_structure);
        } else {
            beside.push(case);
        }
    }
    at_once_in(beside, sides, LaneCase::count_structure);
}

/// Starts the missing workers of lanes that have a case at this place, on both sides at the same
/// time, while earlier workers end.
fn start_workers<E>(
    lanes: &mut [&mut RunningLane<'_>],
    place: usize,
    sides: &mut RunningSides<'_, E>,
) {
    let absent = lanes.iter_mut().filter(|lane| lane.is_absent(place));
    let (base, head): (Vec<_>, Vec<_>) = absent.partition(|lane| lane.lane.side == PairSide::Base);
    let count = (base.len() + head.len()).max(1) as f64;
    let mut laps = Laps::begin();
    let starts = sides.both().zip([head, base]).map(|(side, lanes)| {
        let launcher = &mut *side.session.launcher;
        move || {
            let starts = lanes.into_iter();
            let starts = starts.map(|lane| (launcher.start(&lane.lane.worker), lane));
            starts.collect::<Vec<_>>()
        }
    });
    let started = at_once(starts.collect());
    let taken = laps.end() / count;
    wait_for_ends(sides);
    for (started, lane) in started.into_iter().flatten() {
        sides.get(lane.lane.side).session.spent.workers += taken;
        lane.take_started(started);
    }
}

/// Records that these lanes lack room, and ends the workers that were started ahead.
fn make_room<E>(lanes: &[RunningLane<'_>], sides: &mut RunningSides<'_, E>) {
    for lane in lanes {
        let session = &mut sides.get(lane.lane.side).session;
        // Workers that wait for their pair hold memory that the case needs.
        session.launcher.end_ahead();
        // A worker that did not start beside other processes may start alone.
        session.state.one_at_a_time |= lane.is_down();
    }
}

/// Ends all workers that are up, at the same time. Does not wait for them: a GPU's context takes
/// half a second to end.
fn end_workers<E>(lanes: &mut [RunningLane<'_>], sides: &mut RunningSides<'_, E>) {
    for lane in lanes {
        let worker = lane.take_worker();
        sides.get(lane.lane.side).session.state.ending.end(worker);
    }
}

/// Waits until ending workers have ended, so that nothing runs beside a case.
fn wait_for_ends<E>(sides: &mut RunningSides<'_, E>) {
    for side in sides.both() {
        let mut laps = Laps::begin();
        side.session.state.ending.wait();
        side.session.spent.workers += laps.end();
    }
}

/// Workers that are ending, each in a thread of its own.
#[derive(Default)]
pub(super) struct EndingWorkers(Vec<JoinHandle<()>>);

impl EndingWorkers {
    fn end(&mut self, worker: LaneWorker) {
        if let LaneWorker::Up(conversation) = worker {
            self.0.push(thread::spawn(move || drop(conversation)));
        }
    }

    fn wait(&mut self) {
        for ending in self.0.drain(..) {
            // The thread has already printed its panic.
            let _ = ending.join();
        }
    }
}

impl Drop for EndingWorkers {
    fn drop(&mut self) {
        self.wait();
    }
}
