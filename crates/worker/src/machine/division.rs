//! Divides a call's time among its operations.
//!
//! It uses several calls that were recorded in the way they are timed, so that the clock sees the
//! same gaps. Recording stretches gaps, and operations slightly. So a division shows which time
//! belongs to which operation, and the clock shows the total.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use super::intervals::{Own, divide};
use super::operation::{Named, Operation, Work};
use super::{Ran, normalised};
use crate::units::{Nanoseconds, is_zero};

/// A steady call that was recorded in the way calls are timed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct RecordedCall {
    /// The clock's reading of the call, if it was timed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_ns: Option<Nanoseconds>,
    /// The call's own operations, sorted by start.
    pub operations: Vec<Operation<Named>>,
    /// Calls to CUDA that it made, by their names in [`Activity`](super::Activity), if they were
    /// counted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub calls: BTreeMap<String, u64>,
}

/// The operations of a call, each with the median over several calls of its own time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Division {
    /// The number of recorded calls that had the same operations.
    pub calls: u32,
    /// The median of the clock's readings, if the calls were timed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_ns: Option<Nanoseconds>,
    /// The operations in launch order.
    pub parts: Vec<Part>,
}

/// An operation, and the part of the device's time that belongs to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Part {
    /// The operation.
    #[serde(flatten)]
    pub work: Work<Named>,
    /// Number of its stream, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<u32>,
    /// The operator that launched it, if the program names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator: Option<String>,
    /// The operation's own time: while several run, each of them has an equal share.
    pub ns: Nanoseconds,
    /// Idle time of the device right before the operation.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub gap_ns: Nanoseconds,
    /// The part of `gap_ns` in which the device waited for the host, if launches are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_ns: Option<Nanoseconds>,
}

/// A call with more operations is not divided: no one can read more, and a baseline stores them.
const MAX_PARTS: usize = 2_000;

impl Part {
    /// The key for alignment: a kernel's normalised name, or a copy's direction.
    pub fn key(&self) -> String {
        match &self.work {
            Work::Kernel(kernel) => normalised(&kernel.name),
            Work::Copy { direction, .. } => format!("copy {direction}"),
            Work::Set { .. } => "set".to_owned(),
        }
    }
}

impl RecordedCall {
    /// The smallest number of CUDA calls with this name over some calls; `None` if one of them does
    /// not report it.
    pub fn at_least(calls: &[RecordedCall], name: &str) -> Option<u64> {
        let counts = calls.iter().map(|call| call.calls.get(name).copied());
        counts.collect::<Option<Vec<u64>>>()?.into_iter().min()
    }
}

impl Division {
    /// The medians over those calls of one case that had the most common operations. `None` if
    /// nothing ran, or if there are too many operations.
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

    /// The division of one call or repetition. `operations` are sorted by start, `own` has their
    /// own times, and `named` names a kernel. The parts are in launch order if all launches are
    /// known, otherwise in start order: operations of parallel streams may start in any order.
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

    /// The medians over those calls, invocations or repetitions that had the most common
    /// operations.
    pub fn merged(several: &[Division]) -> Option<Division> {
        Division::over(several, median)
    }

    /// As [`merged`](Division::merged) with means, which add up to the mean of the whole.
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
        // If two are equally common, the one with fewer operations: the other did more by chance.
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

    /// Time in which anything ran.
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
        // A call that only some calls make, for example to enlarge a cache, is not part of a steady
        // call.
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

    /// A call that did other work, such as tuning, is left out.
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
