//! The times of one side of a row, and the rates they amount to.

use super::judgement::Timing;
use regatta_core::record::side::{CaseRecord, median};
use regatta_core::suite::rules::Metric;
use regatta_worker::attention::{CaseId, Problem, work};
use regatta_worker::units::{Nanoseconds, Rate};

/// The times of a case, over all of its invocations; `None` when it has none.
pub fn timing(case: &CaseId, record: &CaseRecord) -> Option<Timing> {
    let invocations_ns = record.device_ns();
    let median_ns = median(&invocations_ns)?;
    let problem = case.case().ok().map(|case| case.problem);
    let problem = problem.filter(|_| !record.several);
    let of = |amount: fn(&Problem) -> f64| problem.as_ref().map(amount);
    Some(Timing {
        median_ns,
        min_ns: invocations_ns
            .iter()
            .copied()
            .fold(median_ns, Nanoseconds::min),
        max_ns: invocations_ns
            .iter()
            .copied()
            .fold(median_ns, Nanoseconds::max),
        host_ns: record.median(Metric::Host).map(Nanoseconds),
        first_call_ns: record.median(Metric::FirstCall).map(Nanoseconds),
        invocations_ns,
        tflops: of(work::flops).map(|flops| Rate::of_work(flops, median_ns)),
        // Bytes over nanoseconds are 1e9 a second.
        gbps: of(work::bytes).map(|bytes| bytes / median_ns.0),
        samples: record.samples,
    })
}
