//! Figures that the base counted and the head did not: they are unknown, not 0.

use crate::judgement::Uncounted;
use regatta_core::machine::{Launch, Structure, is_evidence, moves_data};
use regatta_core::record::CaseRecord;
use regatta_core::suite::{Action, Kind};
use regatta_worker::case::ParamValue;

use super::changes::kind;
use super::instructions;
use super::{Structures, asked, count};

/// Counts that the Python worker makes without being asked, if the counted module is loaded. The
/// order of a process's cases decides which of them loads it, and a module that is not loaded is
/// not called.
const WHERE_LOADED: [&str; 4] = [
    "calls.triton_autotune",
    "calls.triton_compile",
    "calls.torch_compile",
    "calls.jax_compile",
];

/// The prefix of sums over different calls, which are not structure.
const NO_STRUCTURE: &str = "calls_in_";

/// The figures that the base reports for a case and the head does not, or not equally in each
/// invocation, unless the policy ignores them. A figure that only the head reports is not listed.
pub fn vanished(pair: &Structures) -> Vec<Uncounted> {
    let mut lost = parameters(pair);
    lost.extend(varying(pair));
    let Some(base) = pair.base.structure.as_deref().filter(|s| !s.is_empty()) else {
        return lost;
    };
    let nothing = Structure::default();
    let head = pair.head.structure.as_deref().unwrap_or(&nothing);
    if !base.launches.is_empty() && head.launches.is_empty() {
        let before = Some(base.launches.len() as u64);
        lost.push(Uncounted::new("launches", before, why(head, "launches")));
    }
    if base.launches != head.launches {
        figures(pair, base, head, &mut lost);
    }
    let counted = if pair.are_alike() {
        Vec::new()
    } else {
        counts(pair.base, base)
    };
    for (name, before) in counted {
        let excused = name.starts_with(NO_STRUCTURE)
            || is_evidence(name)
            || (WHERE_LOADED.contains(&name) && !head.uncounted.contains_key(name))
            || kind(name).is_some_and(|kind| pair.policy.action(kind, name) == Action::Ignore);
        if !excused && count(pair.head, name).is_none() {
            lost.push(Uncounted::new(name, Some(before), why(head, name)));
        }
    }
    lost.extend(instructions::vanished(pair, head).or_else(|| instructions::inconclusive(pair)));
    lost
}

/// The parameters whose effective value only the base reports. A tuner's choice is left out, since
/// it belongs to its kernel.
fn parameters(pair: &Structures) -> Vec<Uncounted> {
    let tuned = |name: &String| {
        let mut choices = pair.base.choices.iter();
        choices.any(|choice| choice.tuned.contains_key(name))
    };
    let gone = pair.base.effective.iter().filter(|(name, _)| {
        let ignored = pair.policy.action(Kind::Parameters, name) == Action::Ignore;
        !ignored && !tuned(name) && !pair.head.effective.contains_key(*name)
    });
    let figure = |value: &ParamValue| match value {
        ParamValue::Int(value) => u64::try_from(*value).ok(),
        ParamValue::Word(_) => None,
    };
    gone.map(|(name, value)| Uncounted::new(name, figure(value), None))
        .collect()
}

/// The figures that differ between the head's invocations, but not between the base's.
fn varying(pair: &Structures) -> impl Iterator<Item = Uncounted> {
    let new = pair.head.varying.iter().filter(|(name, _)| {
        let kind = match name.as_str() {
            name if pair.head.effective.contains_key(name) => Kind::Parameters,
            "grid" => Kind::Grid,
            "block" => Kind::Block,
            "launches" | "structure" => Kind::Launches,
            name => kind(name).unwrap_or(Kind::Parameters),
        };
        let ignored = pair.policy.action(kind, name) == Action::Ignore;
        !ignored && !pair.base.varying.contains_key(*name)
    });
    new.map(|(name, how)| {
        Uncounted::inconclusive(name, format!("{name} differs between invocations: {how}"))
    })
}

/// The head's reason for a missing count, if it gives one.
fn why(head: &Structure, name: &str) -> Option<String> {
    let empty = head.is_empty().then_some("its worker counts no structure");
    head.why_uncounted(name).or(empty).map(str::to_owned)
}

/// The base's counts by name: those of its worker, and its calls to CUDA.
fn counts<'a>(record: &'a CaseRecord, structure: &'a Structure) -> Vec<(&'a str, u64)> {
    let own = structure.counts.iter();
    let mut all: Vec<(&str, u64)> = own.map(|(name, n)| (name.as_str(), *n)).collect();
    for (name, number) in asked(record) {
        if !structure.counts.contains_key(name) {
            all.push((name, number));
        }
    }
    all
}

/// True if a launch has the figure.
type Read = fn(&Launch) -> bool;

/// Adds launch figures that the base has for a computing kernel, and that none of the head's
/// launches of it have.
fn figures(pair: &Structures, base: &Structure, head: &Structure, lost: &mut Vec<Uncounted>) {
    const FIGURES: [(&str, Kind, Read); 4] = [
        ("registers", Kind::Registers, |l| l.registers.is_some()),
        ("shared memory", Kind::SharedMemory, |l| {
            l.shared_bytes.is_some()
        }),
        ("local memory", Kind::Spills, |l| l.local_bytes.is_some()),
        ("blocks on a multiprocessor", Kind::Occupancy, |l| {
            l.blocks_per_sm.is_some()
        }),
    ];
    let (before, after) = (base.by_kernel(), head.by_kernel());
    for (name, kind, known) in FIGURES {
        let any = |side: &Structure| {
            let mut launches = side.launches.iter();
            launches.any(|launch| !moves_data(&launch.name) && known(launch))
        };
        let all_lost = any(base)
            && !any(head)
            && after.keys().any(|kernel| {
                !moves_data(kernel) && pair.policy.action(kind, kernel) != Action::Ignore
            });
        let is_lost = all_lost
            || before.iter().any(|(kernel, launches)| {
                let is_known = |launches: &[&Launch]| launches.iter().any(|launch| known(launch));
                let now = after.get(kernel);
                let taken = pair.policy.action(kind, kernel) != Action::Ignore;
                !moves_data(kernel)
                    && taken
                    && is_known(launches)
                    && now.is_some_and(|now| !is_known(now))
            });
        if is_lost {
            lost.push(Uncounted::new(name, None, why(head, name)));
        }
    }
}
