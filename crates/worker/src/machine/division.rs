//! The division of a call's time: its operations, each with the time that is its own.
//!
//! Made from several calls that were recorded as they are timed, so that a gap is one that the
//! clock sees too. Recording stretches gaps, and by little what runs: a division says what
//! belongs to what, the clock how long the whole took.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use super::intervals::{Own, divide};
use super::operation::{Named, Operation, Work};
use super::{Ran, normalised};
use crate::units::{Nanoseconds, is_zero};

/// A steady call that was recorded as calls are timed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct RecordedCall {
    /// The clock's reading of it, if it was timed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_ns: Option<Nanoseconds>,
    /// The operations, by start; of the call alone.
    pub operations: Vec<Operation<Named>>,
    /// Calls to CUDA that it made, by the names of [`Activity`](super::Activity)'s, where they
    /// were counted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub calls: BTreeMap<String, u64>,
}

/// The operations of a call, each with the median of its own time over several calls.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Division {
    /// Calls that were recorded and did the same.
    pub calls: u32,
    /// The median of the clock's readings, if they were timed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_ns: Option<Nanoseconds>,
    /// In the order of launching.
    pub parts: Vec<Part>,
}

/// One operation, and what of the device's time belongs to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Part {
    /// The operation.
    #[serde(flatten)]
    pub work: Work<Named>,
    /// Number of its stream, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<u32>,
    /// The operator that launched it, where the program tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator: Option<String>,
    /// The time of its own: of each moment in which several ran, its part.
    pub ns: Nanoseconds,
    /// Idle time of the device right before it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub gap_ns: Nanoseconds,
    /// The part of that in which the device waited for the host, where launches are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_ns: Option<Nanoseconds>,
}

/// Operations beyond which a call is not divided: more cannot be read, and a baseline keeps
/// them.
const MAX_PARTS: usize = 2_000;

impl Part {
    /// The key for alignment: a kernel's name as two builds have it, a copy's direction.
    pub fn key(&self) -> String {
        match &self.work {
            Work::Kernel(kernel) => normalised(&kernel.name),
            Work::Copy { direction, .. } => format!("copy {direction}"),
            Work::Set { .. } => "set".to_owned(),
        }
    }
}

impl RecordedCall {
    /// The number of calls of CUDA by this name that each of some calls made at least; `None` if one of
    /// them does not report it.
    pub fn at_least(calls: &[RecordedCall], name: &str) -> Option<u64> {
        let counts = calls.iter().map(|call| call.calls.get(name).copied());
        counts.collect::<Option<Vec<u64>>>()?.into_iter().min()
    }
}

impl Division {
    /// The medians of calls of one case that did the same as most. `None` if
    /// nothing ran, or too much to list.
    pub fn from_calls(calls: &[RecordedCall]) -> Option<Division> {
        let each = calls
            .iter()
            .map(|call| Division::from_operations(call.time_ns, &call.operations));
        let each: Vec<Division> = each.collect();
        let division = Division::merged(&each)?;
        (1..=MAX_PARTS)
            .contains(&division.parts.len())
            .then_some(division)
    }

    fn from_operations(time_ns: Option<Nanoseconds>, operations: &[Operation<Named>]) -> Division {
        let mut order: Vec<&Operation<Named>> = operations.iter().collect();
        order.sort_by_key(|operation| (operation.start_ns, operation.end_ns));
        let ran: Vec<Ran> = order
            .iter()
            .map(|operation| Ran::from(*operation))
            .collect();
        Division {
            time_ns,
            ..Division::laid_out(&order, &divide(&ran), Clone::clone)
        }
    }

    /// One call or repetition, of operations by start, each with what is its own; `named` tells
    /// a kernel by its name. In the order of launching, where all launches are known, or else of
    /// starting: streams run side by side, and which of two starts first is chance.
    pub fn laid_out<K>(
        operations: &[&Operation<K>],
        own: &[Own],
        named: impl Fn(&K) -> Named,
    ) -> Division {
        let mut order: Vec<(&Operation<K>, Own)> = operations
            .iter()
            .copied()
            .zip(own.iter().copied())
            .collect();
        if order
            .iter()
            .all(|(operation, _)| operation.launched_ns.is_some())
        {
            order.sort_by_key(|(operation, _)| operation.launched_ns);
        }
        let part = |(operation, own): (&Operation<K>, Own)| Part {
            work: operation.work.named(&named),
            stream: operation.stream,
            operator: operation.operator.as_deref().map(str::to_owned),
            ns: Nanoseconds(own.share_ns),
            gap_ns: Nanoseconds(own.gap_ns),
            host_ns: own.host_ns.map(Nanoseconds),
        };
        Division {
            calls: 1,
            time_ns: None,
            parts: order.into_iter().map(part).collect(),
        }
    }

    /// The medians of several calls, invocations or repetitions, of those that did the same as
    /// most.
    pub fn merged(several: &[Division]) -> Option<Division> {
        Division::over(several, median)
    }

    /// The same, with means: their parts add up to the mean of the whole.
    pub fn averaged(several: &[Division]) -> Option<Division> {
        Division::over(several, |values| {
            Nanoseconds(values.iter().sum::<f64>() / values.len().max(1) as f64)
        })
    }

    fn over(several: &[Division], middle: fn(Vec<f64>) -> Nanoseconds) -> Option<Division> {
        let keys = |of: &Division| of.parts.iter().map(Part::key).collect::<Vec<_>>();
        let mut like: HashMap<Vec<String>, Vec<&Division>> = HashMap::new();
        for one in several {
            like.entry(keys(one)).or_default().push(one);
        }
        // The one of two equals that has fewer operations: the other did more by chance.
        let most = like.into_values().max_by_key(|same| {
            let first = same.first().map_or(0, |division| division.parts.len());
            (same.len(), std::cmp::Reverse(first))
        });
        let same = most?;
        let first = same.first()?;
        let over = |at: usize, figure: fn(&Part) -> Nanoseconds| {
            middle(
                same.iter()
                    .map(|division| figure(&division.parts[at]).0)
                    .collect(),
            )
        };
        let parts = first.parts.iter().enumerate().map(|(at, part)| {
            let known = same
                .iter()
                .all(|division| division.parts[at].host_ns.is_some());
            Part {
                ns: over(at, |part| part.ns),
                gap_ns: over(at, |part| part.gap_ns),
                host_ns: known.then(|| over(at, |part| part.host_ns.unwrap_or_default())),
                ..part.clone()
            }
        });
        let times: Option<Vec<f64>> = same
            .iter()
            .map(|division| division.time_ns.map(|ns| ns.0))
            .collect();
        Some(Division {
            calls: same.iter().map(|division| division.calls).sum(),
            time_ns: times.map(middle),
            parts: parts.collect(),
        })
    }

    /// The time in which anything ran.
    pub fn busy_ns(&self) -> Nanoseconds {
        self.parts.iter().map(|part| part.ns).sum()
    }

    /// Idle time between operations.
    pub fn idle_ns(&self) -> Nanoseconds {
        self.parts.iter().map(|part| part.gap_ns).sum()
    }
}

fn median(mut values: Vec<f64>) -> Nanoseconds {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    Nanoseconds(match values.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(name: &str, start_ns: u64, end_ns: u64) -> Operation<Named> {
        let name = name.to_owned();
        Operation {
            launched_ns: Some(start_ns as i64 - 5),
            ..Operation::new(Work::Kernel(Named { name }), start_ns, end_ns)
        }
    }

    fn call(time: f64, operations: Vec<Operation<Named>>) -> RecordedCall {
        RecordedCall {
            time_ns: Some(Nanoseconds(time)),
            operations,
            calls: BTreeMap::new(),
        }
    }

    #[test]
    fn what_every_call_asks_each_asks() {
        let asks = |frees| RecordedCall {
            calls: [("frees".to_owned(), frees)].into(),
            ..RecordedCall::default()
        };
        let least = |calls: &[RecordedCall]| RecordedCall::at_least(calls, "frees");
        assert_eq!(least(&[asks(3), asks(1), asks(2)]), Some(1));
        // One that a few calls ask, as to enlarge what is kept, is of none.
        assert_eq!(least(&[asks(0), asks(4)]), Some(0));
        assert_eq!(least(&[asks(1), RecordedCall::default()]), None);
        assert_eq!(least(&[]), None);
    }

    #[test]
    fn each_operation_has_the_median_of_its_own_time() {
        let calls = [
            call(40.0, vec![kernel("copy", 0, 10), kernel("flash", 12, 30)]),
            call(50.0, vec![kernel("copy", 0, 20), kernel("flash", 24, 40)]),
            call(45.0, vec![kernel("copy", 0, 12), kernel("flash", 15, 36)]),
        ];
        let division = Division::from_calls(&calls).unwrap();
        assert_eq!(
            (division.calls, division.time_ns),
            (3, Some(Nanoseconds(45.0)))
        );
        let times: Vec<f64> = division.parts.iter().map(|part| part.ns.0).collect();
        assert_eq!(times, [12.0, 18.0]);
        assert_eq!(division.parts[1].gap_ns, Nanoseconds(3.0));
        assert_eq!(division.idle_ns(), Nanoseconds(3.0));
        let twice = Division::merged(&[division.clone(), division.clone()]).unwrap();
        assert_eq!((twice.calls, &twice.parts), (6, &division.parts));
    }

    /// A call that did other work, as one that tunes, is left out.
    #[test]
    fn what_one_call_did_alone_is_not_told() {
        let usual = || call(30.0, vec![kernel("flash", 0, 20)]);
        let other = call(90.0, vec![kernel("tune", 0, 10), kernel("flash", 12, 80)]);
        let division = Division::from_calls(&[usual(), other.clone(), usual()]).unwrap();
        assert_eq!((division.calls, division.parts.len()), (2, 1));
        assert_eq!(division.busy_ns(), Nanoseconds(20.0));
        let invocations = [
            division.clone(),
            Division::from_calls(&[other]).unwrap(),
            division,
        ];
        assert_eq!(Division::merged(&invocations).unwrap().parts.len(), 1);
    }
}
