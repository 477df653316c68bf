//! The times of one side of a row, and the rates they amount to.

use super::complete::usable;
use super::judgement::Timing;
use crate::attention::{CaseId, Problem, work};
use crate::record::side::{CaseRecord, median};

/// The times of a case; `None` when it has none that can be used.
///
/// The median covers all invocations, confirming ones too: it is what is shown.
/// What is judged is chosen by the rule in `time`.
pub fn timing(case: &CaseId, record: &CaseRecord) -> Option<Timing> {
    let mut invocations_ns = usable(&record.device_ns);
    invocations_ns.extend(usable(&record.confirm_ns));
    let median_ns = median(&invocations_ns)?;
    let problem = case.case().ok().map(|case| case.problem);
    let problem = problem.filter(|_| !record.several);
    // Work over nanoseconds is 1e9 a second: giga; tera is a thousand of them.
    let rate = |amount: fn(&Problem) -> f64| Some(amount(problem.as_ref()?) / median_ns);
    Some(Timing {
        median_ns,
        min_ns: invocations_ns.iter().copied().fold(median_ns, f64::min),
        max_ns: invocations_ns.iter().copied().fold(median_ns, f64::max),
        invocations_ns,
        host_ns: median(&usable(&record.host_ns)),
        first_call_ns: median(&usable(&record.first_call_ns)),
        tflops: rate(work::flops).map(|giga| giga / 1e3),
        gbps: rate(work::bytes),
        samples: record.samples,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::testing::{failed, timed};

    #[test]
    fn rates_follow_from_the_work_and_the_median() {
        let case = CaseId("cpu/flash:s1000,d64".to_owned());
        let mut record = timed(&[2e6, 1e6]);
        record.confirm_ns = vec![3e6];
        record.host_ns = vec![10.0, 30.0];
        let timing = timing(&case, &record).unwrap();
        assert_eq!(timing.invocations_ns, [2e6, 1e6, 3e6]);
        assert_eq!(
            (timing.median_ns, timing.min_ns, timing.max_ns),
            (2e6, 1e6, 3e6)
        );
        assert_eq!(timing.host_ns, Some(20.0));
        assert_eq!(timing.first_call_ns, None);
        // 4 D per pair, a million pairs, in 2 ms: 128 GFLOP/s.
        assert!((timing.tflops.unwrap() - 0.128).abs() < 1e-12);
        assert!(timing.gbps.unwrap() > 0.0);
    }

    #[test]
    fn several_problems_a_call_have_no_rate() {
        let case = CaseId("triton/flash:s1024,d64:lengths=24".to_owned());
        let mut record = timed(&[2e6]);
        record.several = true;
        let timing = timing(&case, &record).unwrap();
        assert_eq!(
            (timing.median_ns, timing.tflops, timing.gbps),
            (2e6, None, None)
        );
    }

    #[test]
    fn an_unknown_case_has_no_rates_and_a_failed_one_no_timing() {
        let odd = CaseId("not a case".to_owned());
        assert_eq!(timing(&odd, &timed(&[1.0])).unwrap().tflops, None);
        assert_eq!(timing(&odd, &failed("x")), None);
        assert_eq!(timing(&odd, &timed(&[f64::NAN])), None);
    }
}
