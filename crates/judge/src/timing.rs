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
    use regatta_worker::units::{numbers, quantities};

    #[test]
    fn rates_follow_from_the_work_and_the_median() {
        let case = CaseId("cpu/flash:s1000,d64".to_owned());
        let mut record = timed(&[2e6, 1e6]);
        record.confirm_ns = vec![Nanoseconds(3e6)];
        record.host_ns = vec![Nanoseconds(10.0), Nanoseconds(30.0)];
        let timing = timing(&case, &record, None).unwrap();
        assert_eq!(numbers(&timing.invocations_ns), [2e6, 1e6, 3e6]);
        assert_eq!(
            (timing.median_ns, timing.min_ns, timing.max_ns),
            (Nanoseconds(2e6), Nanoseconds(1e6), Nanoseconds(3e6))
        );
        assert_eq!(timing.host_ns, Some(Nanoseconds(20.0)));
        assert_eq!(timing.first_call_ns, None);
        // 4 D per pair, a million pairs, in 2 ms: 128 GFLOP/s.
        assert!((timing.tflops.unwrap().0 - 0.128).abs() < 1e-12);
        assert!(timing.gbps.unwrap() > 0.0);
    }

    #[test]
    fn several_problems_a_call_have_no_rate() {
        let case = CaseId("triton/flash:s1024,d64:lengths=24".to_owned());
        let mut record = timed(&[2e6]);
        record.several = true;
        let timing = timing(&case, &record, None).unwrap();
        assert_eq!(
            (timing.median_ns, timing.tflops, timing.gbps),
            (Nanoseconds(2e6), None, None)
        );
    }

    #[test]
    fn an_unknown_case_has_no_rates_and_a_failed_one_no_timing() {
        let odd = CaseId("not a case".to_owned());
        assert_eq!(timing(&odd, &timed(&[1.0]), None).unwrap().tflops, None);
        assert_eq!(timing(&odd, &failed("x"), None), None);
        assert_eq!(timing(&odd, &timed(&[f64::NAN]), None), None);
    }

    #[test]
    fn what_was_judged_is_what_is_shown() {
        let case = CaseId("cpu/flash:s1000,d64".to_owned());
        let mut record = timed(&[10.0, 12.0, 11.0]);
        let shown = |record: &CaseRecord, stage| {
            let timing = timing(&case, record, Some(stage)).unwrap();
            (timing.median_ns.0, timing.min_ns.0, timing.max_ns.0)
        };
        assert_eq!(shown(&record, Stage::Confirm), (11.0, 10.0, 12.0));
        record.confirm_ns = quantities([20.0, 21.0, 22.0]);
        assert_eq!(shown(&record, Stage::Confirm), (16.0, 10.0, 22.0));
        assert_eq!(shown(&record, Stage::Screen), (11.0, 10.0, 12.0));
    }
}
