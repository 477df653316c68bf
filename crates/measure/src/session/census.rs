//! Asks the worker for the structure of one call, and derives figures that the worker left out.

use super::{limit, out_of_turn_text};
use crate::worker::{Conversation, WorkerError};
use regatta_core::machine::{
    ASKED_OF_CUDA, CENSUS, CENSUS_FAILED, Counters, Division, INSTRUCTIONS, Launch, METRICS,
    RecordedCall, Structure,
};
use regatta_core::record::{Choices, Measurement, Tuned};
use regatta_core::suite::{Count, Settings, Suite};
use regatta_cuda::kernels::arch::Arch;
use regatta_cuda::kernels::occupancy::{Demand, resident};
use regatta_worker::case::Case;
use regatta_worker::protocol::{Counter, Device, Prepared, ReplyBody, RequestBody, VariantInfo};

/// The hardware counters that the suite asks for in this case.
pub(super) fn counters(suite: &Suite, case: &Case) -> Vec<Counter> {
    let counts = suite.counts.iter().filter(|count| count.selects(case));
    let counter = |count: &Count| Counter {
        name: count.name.clone(),
        functions: count.functions.clone(),
    };
    counts.map(counter).collect()
}

fn request(settings: &Settings) -> RequestBody {
    let metrics = METRICS.iter().filter(|_| settings.instructions);
    RequestBody::Census {
        metrics: metrics.map(|metric| metric.name.to_owned()).collect(),
    }
}

/// The first invocations in which structure is counted. Some processes differ from others, so one
/// invocation is not enough.
const COUNTED: u32 = 5;

/// True if this invocation counts structure: every second one of the first [`COUNTED`], and the
/// last of these. Counting takes a fifth of a case's time on an H200.
pub(super) fn counts_structure(invocation: u32, planned: u32) -> bool {
    let last = COUNTED.min(planned);
    invocation < last && (invocation.is_multiple_of(2) || invocation + 1 == last)
}

/// Counts one call of the case, and adds its structure to the measurement. Keeps the times of
/// single operations of the first invocation only.
pub(super) fn count(
    worker: &mut dyn Conversation,
    invocation: u32,
    settings: &Settings,
    found: &mut Measurement,
) -> Result<(), WorkerError> {
    found.structure = Some(structure(worker, settings, found)?);
    if invocation > 0 {
        found.activity = None;
    }
    Ok(())
}

/// Returns the structure of one call, and adds counters and activity to `found`. A worker that
/// cannot count loses nothing else; the reason is kept, since a missing count is not 0.
fn structure(
    worker: &mut dyn Conversation,
    settings: &Settings,
    found: &mut Measurement,
) -> Result<Structure, WorkerError> {
    let reason = match worker.ask(request(settings), limit(settings))? {
        ReplyBody::Census(mut census) => match census.structure.objection() {
            Some(objection) => format!("{CENSUS_FAILED}: {objection}"),
            None => {
                complete(&mut census.structure, &worker.hello().device);
                // The census records CUDA calls exactly; the other activity figures stay in
                // `activity`.
                let calls = census.activity.as_ref().map(|activity| &activity.calls);
                for (call, count) in ASKED_OF_CUDA {
                    let one = calls.and_then(|calls| calls.get(call)).copied();
                    // While calls are timed, memory is laid out differently, and a call may ask the
                    // driver for more. The smallest number in any timed call is that of a steady
                    // call.
                    let timed = RecordedCall::at_least(&census.recorded, call);
                    if let Some(number) = one.max(timed) {
                        let counts = &mut census.structure.counts;
                        counts.entry(count.to_owned()).or_insert(number);
                    }
                }
                let counted = Counters::from_calls(&census.counted);
                let reason = match counted {
                    Some(_) => "other kernels were counted than the call launches",
                    None => "its worker reads no hardware counters",
                };
                let launches = &census.structure.launches;
                found.counters = counted.filter(|one| one.is_of(launches)).map(Box::new);
                if settings.instructions && found.counters.is_none() {
                    let uncounted = &mut census.structure.uncounted;
                    let entry = uncounted.entry(INSTRUCTIONS.to_owned());
                    entry.or_insert_with(|| reason.to_owned());
                }
                found.division = Division::from_calls(&census.recorded).map(Box::new);
                found.activity = census.activity.map(Box::new);
                return Ok(census.structure);
            }
        },
        ReplyBody::Unsupported { reason } => reason,
        ReplyBody::Failed { reason } => format!("{CENSUS_FAILED}: {reason}"),
        other => out_of_turn_text(&other),
    };
    let mut structure = Structure::default();
    structure.uncounted.insert(CENSUS.to_owned(), reason);
    Ok(structure)
}

/// The tuner's choices for a prepared case, and whether a case's parameters can pin each.
pub fn tuned(prepared: &Prepared, variant: &VariantInfo) -> Choices {
    let chosen = prepared.tuned.iter().filter_map(|name| {
        // The worker did not report the value that it chose.
        let value = prepared.effective.get(name)?.clone();
        let takes = variant.parameters.get(name);
        let pinnable = takes.is_some_and(|takes| takes.allows(&value));
        Some((name.clone(), Tuned { value, pinnable }))
    });
    chosen.collect()
}

/// Fills in how many blocks a multiprocessor holds for each launch, from the resources of a block
/// and of the device. Does nothing if either is unknown.
fn complete(structure: &mut Structure, device: &Device) {
    let capability = device.facts.get("compute_capability");
    let Some(arch) = capability.and_then(|capability| arch(capability)) else {
        return;
    };
    for launch in &mut structure.launches {
        if launch.blocks_per_sm.is_none() {
            launch.blocks_per_sm = blocks_per_sm(arch, launch);
        }
    }
}

fn arch(capability: &str) -> Option<Arch> {
    let (major, minor) = capability.split_once('.')?;
    Some(Arch::of_device(major.parse().ok()?, minor.parse().ok()?))
}

/// Returns `None` if no block would fit: a kernel that ran did fit, so its figures are wrong. The
/// number of barriers is unknown and taken as no limit.
fn blocks_per_sm(arch: Arch, launch: &Launch) -> Option<u32> {
    let demand = Demand {
        threads: u32::try_from(launch.block_threads()).ok()?,
        registers: launch.registers?,
        shared_bytes: u32::try_from(launch.shared_bytes?).ok()?,
        barriers: 0,
    };
    resident(arch, demand).filter(|&blocks| blocks > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::hello;

    #[test]
    fn occupancy_follows_from_what_a_block_takes_where_that_is_known() {
        // The backward kernel of xFormers and PyTorch, as an H200 recorded it: 232 registers of
        // 128 threads are 29,696 of 65,536.
        let backward = || Launch {
            grid: [157, 1, 1],
            block: [128, 1, 1],
            registers: Some(232),
            shared_bytes: Some(53_504),
            ..Launch::default()
        };
        let launch = Launch {
            blocks_per_sm: Some(1),
            ..backward()
        };
        let bare = Launch {
            registers: None,
            ..backward()
        };
        let impossible = Launch {
            shared_bytes: Some(1 << 20),
            ..backward()
        };
        for (capability, launch, blocks) in [
            ("9.0", backward(), Some(2)),
            ("9.0", launch, Some(1)),
            ("9.0", bare, None),
            ("9.0", impossible, None),
            ("unknown", backward(), None),
            ("1.3", backward(), None),
            ("9", backward(), None),
        ] {
            let device = hello("cuda", "NVIDIA H200", &[("compute_capability", capability)]).device;
            let mut structure = Structure {
                launches: vec![launch],
                ..Structure::default()
            };
            complete(&mut structure, &device);
            assert_eq!(structure.launches[0].blocks_per_sm, blocks, "{capability}");
        }
    }
}
