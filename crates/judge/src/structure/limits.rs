//! Limits on structure, which hold inside one run without any baseline.

use super::standing::multiprocessors;
use crate::complete::allowed;
use crate::counts;
use crate::judgement::LimitResult;
use regatta_core::machine::{CENSUS, Launch, Structure, moves_data};
use regatta_core::machine::{normalised, short};
use regatta_core::record::side::{CaseRecord, Side, Status};
use regatta_core::suite::matches_name;
use regatta_core::suite::structural::{Limit, Quantity};

/// Holds each case of a side to the limits that select it. Cases that are unsupported,
/// or allowed to fail, are excused.
pub fn limits(side: &Side) -> Vec<LimitResult> {
    let rules = &side.header.rules;
    let mut results = Vec::new();
    for limit in rules.limits.iter().filter(|l| !l.count.is_of_build()) {
        for (id, record) in &side.cases {
            let selected = id.case().is_ok_and(|case| limit.case.matches(&case));
            let excused = match record.status {
                Status::Measured => false,
                Status::Unsupported { .. } => true,
                _ => allowed(id, &rules.policy.allow),
            };
            if !selected || excused {
                continue;
            }
            let sms = multiprocessors(&side.header, id);
            let (value, reason) = match figure(limit, record, sms) {
                Ok(figure) => (Some(figure.value), figure.of),
                Err(reason) => (None, Some(reason)),
            };
            results.push(LimitResult {
                case: Some(id.clone()),
                ..LimitResult::of(limit, value, reason)
            });
        }
    }
    results
}

/// A value and what it was read off.
struct Figure {
    value: f64,
    of: Option<String>,
}

fn figure(limit: &Limit, record: &CaseRecord, sms: Option<u32>) -> Result<Figure, String> {
    let structure = record.structure.as_ref().filter(|s| !s.is_empty());
    let Some(structure) = structure else {
        let none = record.structure.as_ref();
        let why = none.and_then(|structure| structure.why_uncounted(CENSUS));
        return Err(match &record.status {
            Status::Measured => why.unwrap_or("its worker counts no structure").to_owned(),
            Status::Failed { reason, .. } | Status::Missing { reason } => {
                format!("not measured: {reason}")
            }
            Status::Unsupported { reason } => reason.clone(),
        });
    };
    let counted = |value: u64| Figure {
        value: value as f64,
        of: None,
    };
    match &limit.count {
        Quantity::Launches if structure.launches.is_empty() => {
            let why = structure.why_uncounted("launches");
            Err(why.unwrap_or("its worker tells no launches").to_owned())
        }
        Quantity::Launches => {
            let of_kernel = |launch: &&Launch| {
                let pattern = limit.kernel.as_ref();
                pattern.is_none_or(|pattern| matches_name(pattern, &normalised(&launch.name)))
            };
            let number = structure.launches.iter().filter(of_kernel).count();
            Ok(counted(number as u64))
        }
        Quantity::Copies => match copies(structure) {
            Some(copies) => Ok(counted(copies)),
            None => Err("its worker does not count copies".to_owned()),
        },
        Quantity::Count(name) => match figure_of(record, name) {
            Some(value) => Ok(Figure {
                value,
                of: events(record, name, value as u64),
            }),
            None => Err(match structure.why_uncounted(name) {
                Some(reason) => format!("{name} could not be counted: {reason}"),
                None => format!("its worker does not count {name}"),
            }),
        },
        Quantity::BuildSeconds => Err("it is of no case".to_owned()),
        Quantity::Blocks => {
            let launch = largest(limit, structure)?;
            Ok(Figure {
                value: launch.blocks() as f64,
                of: Some(grid_of(launch)),
            })
        }
        Quantity::SmFill => {
            let launch = largest(limit, structure)?;
            let sms = sms.ok_or("its device does not tell its multiprocessors")?;
            let busy = launch.sms_used(sms);
            Ok(Figure {
                value: busy as f64 / f64::from(sms),
                of: Some(format!("{}, {busy} of {sms} SMs", grid_of(launch))),
            })
        }
    }
}

/// A count of the worker's, or a figure of what the device did in a call.
fn figure_of(record: &CaseRecord, name: &str) -> Option<f64> {
    let activity = || record.activity.as_ref()?.figure(name);
    let counted = counts::count(record, name).map(|count| count as f64);
    counted.or_else(activity)
}

/// What happened in the events that a count is of, with the host's time: a broken limit is
/// then told with what it costs, on the first run.
fn events(record: &CaseRecord, count: &str, number: u64) -> Option<String> {
    let name = count.strip_prefix("calls.")?;
    (number > 0).then(|| counts::events(record, name, number))
}

/// Copies as the worker counts them, or else kernels that move data, where it tells any.
fn copies(structure: &Structure) -> Option<u64> {
    let moving = || structure.launches.iter().filter(|l| moves_data(&l.name));
    let counted = structure.counts.get("copies").copied();
    let launched = (!structure.launches.is_empty()).then(|| moving().count() as u64);
    counted.or(launched)
}

/// The launch with the most blocks among the kernels that a limit speaks of.
fn largest<'a>(limit: &Limit, structure: &'a Structure) -> Result<&'a Launch, String> {
    let speaks_of = |launch: &&Launch| match &limit.kernel {
        Some(pattern) => matches_name(pattern, &normalised(&launch.name)),
        None => !moves_data(&launch.name),
    };
    let launches = structure.launches.iter().filter(speaks_of);
    launches
        .max_by_key(|launch| launch.blocks())
        .ok_or_else(|| match &limit.kernel {
            Some(pattern) => format!("no kernel it launches matches {pattern}"),
            None => "it launches no kernel that computes".to_owned(),
        })
}

fn grid_of(launch: &Launch) -> String {
    let [x, y, z] = launch.grid;
    format!("grid {x}x{y}x{z} of {}", short(&normalised(&launch.name)))
}

#[cfg(test)]
mod tests;
