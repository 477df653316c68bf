//! The times of one side of a row, and the rates they amount to.

use super::complete::usable;
use super::judgement::{Stage, Timing};
use regatta_core::record::side::{CaseRecord, median};
use regatta_worker::attention::{CaseId, Problem, work};
use regatta_worker::units::{Nanoseconds, Rate};

/// The times of a case; `None` when it has none that can be used.
///
/// What is shown is what was judged (`stage`): all invocations, or the regular ones alone where
/// the fresh ones decide nothing.
pub fn timing(case: &CaseId, record: &CaseRecord, stage: Option<Stage>) -> Option<Timing> {
    let mut invocations_ns = usable(&record.device_ns);
    if invocations_ns.is_empty() {
        // Nothing is judged by them; they are what there is to show.
        let disturbed: Vec<Nanoseconds> =
            record.disturbed_screen().map(|of| of.device_ns).collect();
        invocations_ns = usable(&disturbed);
    }
    let screened = invocations_ns.len();
    invocations_ns.extend(usable(&record.confirm_ns));
    let judged = match stage {
        Some(Stage::Screen) if screened > 0 => &invocations_ns[..screened],
        _ => &invocations_ns,
    };
    let median_ns = median(judged)?;
    let problem = case.case().ok().map(|case| case.problem);
    let problem = problem.filter(|_| !record.several);
    let of = |amount: fn(&Problem) -> f64| problem.as_ref().map(amount);
    Some(Timing {
        median_ns,
        min_ns: judged.iter().copied().fold(median_ns, Nanoseconds::min),
        max_ns: judged.iter().copied().fold(median_ns, Nanoseconds::max),
        invocations_ns,
        host_ns: median(&usable(&record.host_ns)),
        first_call_ns: median(&usable(&record.first_call_ns)),
        tflops: of(work::flops).map(|flops| Rate::of_work(flops, median_ns)),
        // Bytes over nanoseconds are 1e9 a second.
        gbps: of(work::bytes).map(|bytes| bytes / median_ns.0),
        samples: record.samples,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{failed, timed};
    use regatta_worker::units::quantities;

    #[test]
    fn rates_follow_from_the_work_and_the_median_of_what_was_judged() {
        let case = CaseId("cpu/flash:s1000,d64".to_owned());
        let mut record = timed(&[2e6, 1e6]);
        record.confirm_ns = quantities([3e6]);
        record.host_ns = quantities([10.0, 30.0]);
        let of = |case: &CaseId, record: &CaseRecord, stage| timing(case, record, stage).unwrap();
        let all = of(&case, &record, Some(Stage::Confirm));
        assert_eq!(
            (all.median_ns.0, all.min_ns.0, all.max_ns.0),
            (2e6, 1e6, 3e6)
        );
        assert_eq!(all.host_ns, Some(Nanoseconds(20.0)));
        // 4 D per pair, a million pairs, in 2 ms: 128 GFLOP/s.
        assert!((all.tflops.unwrap().0 - 0.128).abs() < 1e-12);
        assert!(all.gbps.unwrap() > 0.0);
        let screen = of(&case, &record, Some(Stage::Screen));
        assert_eq!((screen.max_ns.0, screen.invocations_ns.len()), (2e6, 3));
        // Neither several problems a call nor an unknown case have a rate.
        record.several = true;
        assert_eq!(of(&case, &record, None).tflops, None);
        let odd = CaseId("not a case".to_owned());
        assert_eq!(of(&odd, &timed(&[1.0]), None).tflops, None);
        assert_eq!(timing(&odd, &failed("x"), None), None);
        assert_eq!(timing(&odd, &timed(&[f64::NAN]), None), None);
    }
}
