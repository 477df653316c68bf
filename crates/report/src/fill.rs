//! How much of a device a call's launches fill.

use regatta_core::machine::Launch;
use regatta_core::record::side::CaseRecord;
use regatta_core::record::types::RunHeader;
use regatta_worker::units::Share;

/// Multiprocessors of the machine's GPU, where the run says it.
pub(super) fn sms(header: &RunHeader) -> Option<u32> {
    let facts = header.machine.hard.iter();
    let mut found = facts.filter(|(name, _)| *name == "sms" || name.ends_with(".sms"));
    found.find_map(|(_, sms)| sms.parse().ok())
}

/// Multiprocessors that a launch gives a block: `1 of 132`.
pub(super) fn used(launch: &Launch, sms: Option<u32>) -> Option<String> {
    let sms = sms.filter(|&sms| sms > 0)?;
    Some(format!("{} of {sms}", launch.sms_used(sms)))
}

/// Share of the multiprocessors that get a block of the launch that takes longest; where
/// times are not known, of a launch that is the only one.
pub(super) fn share(record: &CaseRecord, sms: Option<u32>) -> Option<Share> {
    let launches = &record.structure.as_ref()?.launches;
    let longest = record.activity.as_ref().and_then(|found| found.longest);
    let launch = match (longest, &launches[..]) {
        (Some(place), launches) => launches.get(place)?,
        (None, [only]) => only,
        (None, _) => return None,
    };
    let sms = sms.filter(|&sms| sms > 0)?;
    Some(Share(launch.sms_used(sms) as f64 / f64::from(sms)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use regatta_core::machine::{ActivitySummary, Structure};
    use regatta_core::record::side::Status;

    fn record(blocks: &[u32], longest: Option<usize>) -> CaseRecord {
        let launch = |&x: &u32| Launch {
            grid: [x, 1, 1],
            block: [128, 1, 1],
            ..Launch::default()
        };
        CaseRecord {
            structure: Some(Box::new(Structure {
                launches: blocks.iter().map(launch).collect(),
                ..Structure::default()
            })),
            activity: longest.map(|place| ActivitySummary {
                longest: Some(place),
                ..ActivitySummary::default()
            }),
            ..CaseRecord::empty(Status::Measured)
        }
    }

    #[test]
    fn the_share_is_that_of_the_longest_launch() {
        assert_eq!(
            share(&record(&[500, 33], Some(1)), Some(132)),
            Some(Share(0.25))
        );
        assert_eq!(share(&record(&[157], None), Some(132)), Some(Share(1.0)));
        assert_eq!(
            share(&record(&[500, 33], None), Some(132)),
            None,
            "which one?"
        );
        assert_eq!(share(&record(&[500], Some(4)), Some(132)), None);
        assert_eq!(share(&record(&[500], None), None), None);
    }

    #[test]
    fn a_launch_says_how_many_multiprocessors_it_uses() {
        let record = record(&[1], None);
        let launch = &record.structure.as_ref().unwrap().launches[0];
        assert_eq!(used(launch, Some(132)).as_deref(), Some("1 of 132"));
        assert_eq!(used(launch, Some(0)), None);
    }
}
