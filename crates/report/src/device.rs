//! What the device of a case was measured to reach, beside which its rates are shown, and how
//! much of it a call's launches fill.

use regatta_core::machine::Launch;
use regatta_core::record::side::CaseRecord;
use regatta_core::record::types::RunHeader;
use regatta_worker::attention::CaseId;
use regatta_worker::units::{Digits, Rate, Share};

/// The most that was seen of the device of a case, in its storage type.
#[derive(Clone, Debug, PartialEq)]
pub struct Reached {
    /// Of products of matrices; `None` where nothing measured them in this type.
    pub tflops: Option<Rate>,
    /// Of copies, in GB/s.
    pub gbps: Option<f64>,
    /// Who measured it, and by what.
    pub how: String,
}

/// What the device of a case reaches: measured by the worker of the case, or else by another one
/// on a device of the same name. `None` where nobody measured it.
pub fn reached(header: &RunHeader, case: &CaseId) -> Option<Reached> {
    let case = case.case().ok()?;
    let (worker, dtype) = (case.variant.worker_name(), case.problem.dtype);
    let device = |name: &str| {
        let mut workers = header.workers.iter();
        workers.find(|of| of.name == name).map(|of| &of.device)
    };
    let here = device(&worker);
    let mut known: Vec<_> = header.peaks.iter().collect();
    known.retain(|(name, _)| **name == worker || (here.is_some() && device(name) == here));
    // Its own first; then one that knows the type.
    known.sort_by_key(|(name, peak)| (**name != worker, !peak.tflops.contains_key(&dtype)));
    let tflops = known.iter().find_map(|(_, peak)| peak.tflops.get(&dtype));
    let (name, first) = known.first()?;
    Some(Reached {
        tflops: tflops.copied(),
        gbps: first.gbps,
        how: format!("{name}: {}", first.how),
    })
}

impl Reached {
    /// What share of the products' rate a rate is, for a reader.
    pub fn share_of_products(&self, rate: Option<Rate>) -> Option<String> {
        let (rate, peak) = (rate?, self.tflops?);
        Some(format!(
            "{} % of {peak}FLOP/s",
            Digits(100.0 * rate.0 / peak.0)
        ))
    }

    /// What share of the copies' rate a rate in GB/s is, for a reader.
    pub fn share_of_copies(&self, gbps: Option<f64>) -> Option<String> {
        let (rate, peak) = (gbps?, self.gbps?);
        let share = Digits(100.0 * rate / peak);
        Some(format!("{share} % of {} GB/s", Digits(peak)))
    }
}

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
pub(super) fn filled(record: &CaseRecord, sms: Option<u32>) -> Option<Share> {
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
    use regatta_core::record::testing;
    use regatta_core::record::types::Peak;
    use regatta_core::record::types::WorkerRecord;
    use regatta_worker::attention::Dtype;
    use std::collections::BTreeMap;

    fn peak(tflops: f64, how: &str) -> Peak {
        Peak {
            tflops: BTreeMap::from([(Dtype::Bf16, Rate(tflops))]),
            gbps: Some(4000.0),
            how: how.to_owned(),
        }
    }

    fn header() -> RunHeader {
        let worker = |name: &str, device: &str| WorkerRecord {
            name: name.to_owned(),
            device_kind: "cuda".to_owned(),
            device: device.to_owned(),
            versions: BTreeMap::new(),
            packages: BTreeMap::new(),
        };
        let named = |name: &str, peak| (name.to_owned(), peak);
        RunHeader {
            workers: vec![
                worker("torch", "H200"),
                worker("cuda", "H200"),
                worker("cpu", "EPYC"),
            ],
            peaks: BTreeMap::from([named("torch", peak(790.0, "torch.matmul"))]),
            ..testing::header()
        }
    }

    fn of(header: &RunHeader, id: &str) -> Option<Reached> {
        reached(header, &CaseId(id.to_owned()))
    }

    #[test]
    fn a_worker_without_a_peak_has_that_of_another_on_its_device() {
        let header = header();
        let own = of(&header, "torch/sdpa:s128,d64,bf16").unwrap();
        assert_eq!(own.tflops, Some(Rate(790.0)));
        assert_eq!(own.how, "torch: torch.matmul");
        assert_eq!(of(&header, "cuda/flash-mma:s128,d64,bf16"), Some(own));
        assert_eq!(of(&header, "cpu/flash:s128,d64"), None);
    }

    #[test]
    fn a_type_that_was_not_measured_has_no_share() {
        let found = of(&header(), "torch/sdpa:s128,d64").unwrap();
        assert_eq!(found.tflops, None);
        assert_eq!(found.share_of_products(Some(Rate(1.0))), None);
        let shares = found.share_of_copies(Some(1000.0));
        assert_eq!(shares.as_deref(), Some("25.0 % of 4000 GB/s"));
    }

    #[test]
    fn shares_are_of_what_was_measured() {
        let found = of(&header(), "torch/sdpa:s128,d64,bf16").unwrap();
        let share = found.share_of_products(Some(Rate(395.0)));
        assert_eq!(share.as_deref(), Some("50.0 % of 790.0 TFLOP/s"));
    }

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
            filled(&record(&[500, 33], Some(1)), Some(132)),
            Some(Share(0.25))
        );
        assert_eq!(filled(&record(&[157], None), Some(132)), Some(Share(1.0)));
        assert_eq!(
            filled(&record(&[500, 33], None), Some(132)),
            None,
            "which one?"
        );
        assert_eq!(filled(&record(&[500], Some(4)), Some(132)), None);
        assert_eq!(filled(&record(&[500], None), None), None);
    }

    #[test]
    fn a_launch_says_how_many_multiprocessors_it_uses() {
        let record = record(&[1], None);
        let launch = &record.structure.as_ref().unwrap().launches[0];
        assert_eq!(used(launch, Some(132)).as_deref(), Some("1 of 132"));
        assert_eq!(used(launch, Some(0)), None);
    }
}
