//! What the device did in one recorded call, as figures of a case.

use super::fact::Fact;
use regatta_core::machine::ActivitySummary;
use regatta_core::record::side::CaseRecord;
use regatta_worker::units::{Nanoseconds, counted};

/// Its figures, the base's before the head's where both are known and read otherwise.
pub(super) fn facts(head: Option<&CaseRecord>, base: Option<&CaseRecord>) -> Vec<Fact> {
    let of = |record: Option<&CaseRecord>| record.and_then(|record| record.activity.clone());
    let Some(head) = of(head) else {
        return Vec::new();
    };
    let base = of(base);
    FIGURES
        .iter()
        .filter_map(|(name, read)| {
            let now = read(&head)?;
            let before = base.as_ref().and_then(read).filter(|before| *before != now);
            Some(Fact {
                name: (*name).to_owned(),
                differs: false,
                value: match before {
                    Some(before) => format!("{before} → {now}"),
                    None => now,
                },
            })
        })
        .collect()
}

type Read = fn(&ActivitySummary) -> Option<String>;

/// Recording stretches a call, so each is told as a part of the call that was recorded.
const FIGURES: [(&str, Read); 5] = [
    ("device busy in a recorded call", |of| {
        Some(part(of.time.busy_ns, of.time.span_ns))
    }),
    ("idle between launches", |of| {
        let idle = Nanoseconds(of.time.idle_ns() as f64);
        (of.time.gaps > 0).then(|| format!("{idle} in {}", counted(of.time.gaps as usize, "gap")))
    }),
    ("of the call, waiting for the host", |of| {
        Some(of.time.host_bound()?.to_string())
    }),
    ("copying, with a kernel at once", |of| {
        let copying = of.time.copying_ns.filter(|&ns| ns > 0)?;
        Some(part(of.time.overlap_ns, copying))
    }),
    ("in kernels that move data", |of| {
        let moving = of.moving_ns.filter(|&ns| ns > 0)?;
        Some(part(moving, of.time.busy_ns))
    }),
];

/// `52.7 µs of 267.0 µs`.
fn part(part: u64, whole: u64) -> String {
    match part {
        0 => format!("none of {}", Nanoseconds(whole as f64)),
        part => format!(
            "{} of {}",
            Nanoseconds(part as f64),
            Nanoseconds(whole as f64)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use regatta_core::machine::DeviceTime;
    use regatta_core::record::side::Status;

    fn record(activity: ActivitySummary) -> CaseRecord {
        CaseRecord {
            activity: Some(activity),
            ..CaseRecord::empty(Status::Measured)
        }
    }

    fn told(head: &CaseRecord, base: Option<&CaseRecord>) -> Vec<String> {
        let facts = facts(Some(head), base).into_iter();
        facts
            .map(|fact| format!("{}: {}", fact.name, fact.value))
            .collect()
    }

    #[test]
    fn figures_that_are_known_are_told_and_no_others() {
        let views = record(ActivitySummary {
            time: DeviceTime {
                busy_ns: 63_616,
                span_ns: 63_616,
                host_bound_ns: Some(0),
                ..DeviceTime::default()
            },
            ..ActivitySummary::default()
        });
        assert_eq!(
            told(&views, None),
            [
                "device busy in a recorded call: 63.6 µs of 63.6 µs",
                "of the call, waiting for the host: 0.0 %"
            ]
        );
        let copies = record(ActivitySummary {
            time: DeviceTime {
                busy_ns: 214_306,
                span_ns: 266_977,
                gaps: 4,
                host_bound_ns: Some(29_901),
                copying_ns: Some(14_000),
                ..DeviceTime::default()
            },
            moving_ns: Some(149_986),
            ..ActivitySummary::default()
        });
        assert_eq!(
            told(&copies, Some(&views)),
            [
                "device busy in a recorded call: 63.6 µs of 63.6 µs → 214.3 µs of 267.0 µs",
                "idle between launches: 52.7 µs in 4 gaps",
                "of the call, waiting for the host: 0.0 % → 11.2 %",
                "copying, with a kernel at once: none of 14.0 µs",
                "in kernels that move data: 150.0 µs of 214.3 µs",
            ]
        );
        let none = CaseRecord::empty(Status::Measured);
        assert_eq!(told(&none, Some(&views)), [""; 0]);
    }
}
