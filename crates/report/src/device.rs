//! The measured peak rates of a case's device, with which its own rates are compared, and the share
//! of the device that a call's launches fill.

use regatta_core::machine::Launch;
use regatta_core::record::{CaseRecord, RunHeader};
use regatta_judge::judgement::Row;
use regatta_worker::case::CaseId;
use regatta_worker::operator::Operators;
use regatta_worker::units::{Digits, Rate, Share};

/// The measured peak rates of a case's device, in the case's storage type.
#[derive(Clone, Debug, PartialEq)]
pub struct Reached {
    /// The peak of matrix products; `None` if it was not measured in this type.
    pub tflops: Option<Rate>,
    /// The peak of copies, in GB/s.
    pub gbps: Option<f64>,
    /// Worker and method of the measurement.
    pub how: String,
}

/// The measured peaks of a case's device: those of the case's worker, or else of another worker on
/// a device of the same name. `None` if they were not measured.
pub fn reached(header: &RunHeader, case: &CaseId) -> Option<Reached> {
    let case = case.case().ok()?;
    let (worker, dtype) = (case.variant.worker_name(), case.problem.dtype());
    let device = |name: &str| {
        let worker = header.workers.iter().find(|worker| worker.name == name)?;
        Some(&worker.device)
    };
    let here = device(&worker);
    let mut known: Vec<_> = header.peaks.iter().collect();
    known.retain(|(name, _)| **name == worker || (here.is_some() && device(name) == here));
    // The case's own worker comes first, then one that measured the type.
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
    /// The shares of the peak rates that a case reaches, as text: of the rate of matrix products,
    /// and of the rate of copies by its compulsory bytes.
    pub fn shares(&self, tflops: Option<Rate>, gbps: Option<f64>) -> [Option<String>; 2] {
        let share = |rate: f64, peak: f64| format!("{} %", Digits(100.0 * rate / peak));
        let products = tflops.zip(self.tflops);
        let copies = gbps.zip(self.gbps);
        [
            products.map(|(rate, peak)| format!("{} of {peak}FLOP/s", share(rate.0, peak.0))),
            copies.map(|(rate, peak)| format!("{} of {} GB/s", share(rate, peak), Digits(peak))),
        ]
    }
}

/// The operations of a case per byte that any implementation must move; 0 if its id does not parse.
pub(super) fn intensity(row: &Row, operators: &Operators) -> f64 {
    let intensity = row.case.case().ok().and_then(|case| {
        let flops = case.problem.flops(operators)?;
        Some(flops / case.problem.bytes(operators)?)
    });
    let short = format!("{:.4e}", intensity.unwrap_or(0.0));
    short.parse().unwrap_or(0.0)
}

/// The number of multiprocessors for which a launch has a block: `1 of 132`.
pub(super) fn used(launch: &Launch, sms: Option<u32>) -> Option<String> {
    let sms = sms.filter(|&sms| sms > 0)?;
    Some(format!("{} of {sms}", launch.sms_used(sms)))
}

/// The share of the multiprocessors for which the longest launch has a block. If times are unknown,
/// of the only launch.
pub(super) fn filled(record: &CaseRecord, sms: Option<u32>) -> Option<Share> {
    let launches = &record.structure.as_ref()?.launches;
    let activity = record.activity.as_ref();
    let launch = match (
        activity.and_then(|activity| activity.longest),
        &launches[..],
    ) {
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
    use regatta_core::record::{Outcome, Peak, WorkerRecord, testing};
    use regatta_worker::case::Dtype;

    #[test]
    fn rates_are_held_to_what_was_measured_on_the_device_in_the_type() {
        let mut header = testing::header();
        let like = header.workers.remove(0);
        let workers = [("torch", "H200"), ("cuda", "H200"), ("cpu", "EPYC")];
        let workers = workers.map(|(name, device)| WorkerRecord {
            name: name.to_owned(),
            device: device.to_owned(),
            ..like.clone()
        });
        header.workers = workers.into();
        let peak = Peak {
            tflops: [(Dtype::Bf16, Rate(790.0))].into(),
            gbps: Some(4000.0),
            how: "torch.matmul".to_owned(),
        };
        header.peaks.insert("torch".to_owned(), peak);
        let reached_by = |id: &str| reached(&header, &CaseId(id.into()));
        let own = reached_by("torch/sdpa:s128,d64,bf16").unwrap();
        assert_eq!(own.how, "torch: torch.matmul");
        assert_eq!(
            own.shares(Some(Rate(395.0)), Some(1000.0)),
            ["50.0 % of 790.0 TFLOP/s", "25.0 % of 4000 GB/s"]
                .map(|reached_by| Some(reached_by.to_owned()))
        );
        assert_eq!(reached_by("cuda/flash-mma:s128,d64,bf16"), Some(own));
        assert_eq!(reached_by("cpu/flash:s128,d64"), None);
        let other = reached_by("torch/sdpa:s128,d64").unwrap();
        assert_eq!(other.shares(Some(Rate(1.0)), None), [None, None]);
    }

    #[test]
    fn what_is_filled_is_that_of_the_longest_launch() {
        for (blocks, longest, sms, share) in [
            (&[500, 33][..], Some(1), Some(132), Some(0.25)),
            (&[157], None, Some(132), Some(1.0)),
            // Which one is the longest?
            (&[500, 33], None, Some(132), None),
            (&[500], Some(4), Some(132), None),
            (&[500], None, None, None),
        ] {
            let launch = |&x: &u32| Launch {
                grid: [x, 1, 1],
                block: [128, 1, 1],
                ..Launch::default()
            };
            let structure = Structure {
                launches: blocks.iter().map(launch).collect(),
                ..Structure::default()
            };
            assert_eq!(used(&structure.launches[0], Some(0)), None);
            let record = CaseRecord {
                structure: Some(structure.into()),
                activity: longest.map(|place| ActivitySummary {
                    longest: Some(place),
                    ..ActivitySummary::default()
                }),
                ..CaseRecord::empty(Outcome::Measured(()))
            };
            assert_eq!(filled(&record, sms), share.map(Share), "{blocks:?}");
        }
    }
}
