//! What the cases of an invocation have in common, and what those of a whole side do.
//!
//! A machine that is slower for one invocation is slower for all of its cases; a library
//! that is built anew, or a colder room, moves a whole side. Neither is a case's own. The
//! first is taken out of every value; the second is judged as one thing, the suite's.

use super::moderated::variance;
use super::terms::{Series, Trace};
use regatta_core::record::side::median;

/// Of fewer cases than these nothing is taken out: it could not be told from their own noise.
const FEWEST: usize = 10;

/// Fewer cases than these have no level at all.
const ANY: usize = 3;

/// The variance of a median of `n` normal values is this over `n`, in units of one's.
const OF_A_MEDIAN: f64 = std::f64::consts::FRAC_PI_2;

/// A part of the common level that is smaller than this is left in.
const MATTERS: f64 = 0.05;

/// The values of every case with what their invocations share taken out.
pub struct Levelled {
    /// By case.
    pub cases: Vec<Series>,
    /// What each regular invocation of base and head has in common, before.
    pub base: Vec<f64>,
    /// The same of the head.
    pub head: Vec<f64>,
    /// Part of what fresh invocations of `n` cases share that is theirs and no noise.
    pub shared: f64,
}

/// Takes out of each value what all cases of its invocation share.
pub fn level(series: &[Series]) -> Levelled {
    let mut cases = series.to_vec();
    let mut side = |of: fn(&mut Series) -> &mut Trace| {
        let mut traces: Vec<&mut Trace> = cases.iter_mut().map(of).collect();
        level_side(&mut traces)
    };
    let base = side(|case| &mut case.base);
    let head = side(|case| &mut case.head);
    let sessions = series.iter().map(|case| case.earlier.len()).max();
    for session in 0..sessions.unwrap_or(0) {
        let of_session = cases
            .iter_mut()
            .filter_map(|case| case.earlier.get_mut(session));
        let mut traces: Vec<&mut Trace> = of_session.collect();
        level_side(&mut traces);
    }
    Levelled {
        cases,
        shared: base.kept.max(head.kept),
        base: base.levels,
        head: head.levels,
    }
}

struct Side {
    levels: Vec<f64>,
    kept: f64,
}

/// One side: regular invocations, which all cases have, then fresh ones, which some have.
fn level_side(traces: &mut [&mut Trace]) -> Side {
    let lengths = traces.iter().map(|trace| trace.regular.len());
    let regular = lengths.clone().max().unwrap_or(0);
    let whole: Vec<usize> = (0..traces.len())
        .filter(|&at| traces[at].regular.len() == regular)
        .collect();
    if whole.len() < ANY || regular == 0 {
        return Side {
            levels: Vec::new(),
            kept: 0.0,
        };
    }
    let centres: Vec<f64> = traces
        .iter()
        .map(|trace| median(&trace.regular).unwrap_or(0.0))
        .collect();
    let levels: Vec<f64> = (0..regular)
        .map(|at| {
            let of = whole
                .iter()
                .map(|&case| traces[case].regular[at] - centres[case]);
            median(&of.collect::<Vec<_>>()).unwrap_or(0.0)
        })
        .collect();
    let own: Vec<f64> = whole
        .iter()
        .map(|&case| {
            let values = traces[case].regular.iter().zip(&levels);
            let rest: Vec<f64> = values.map(|(value, level)| value - level).collect();
            variance(&rest).value
        })
        .collect();
    let own = median(&own).unwrap_or(0.0) * OF_A_MEDIAN;
    let seen = variance(&levels).value;
    let real = (seen - own / whole.len() as f64).max(0.0);
    let many = whole.len() >= FEWEST && regular > 1;
    let part = |cases: usize| match many && real > 0.0 {
        true => real / (real + own / cases as f64),
        false => 0.0,
    };
    let kept = part(whole.len());
    if kept >= MATTERS {
        // Of a case that lacks an invocation nobody knows which is which.
        let whole = traces
            .iter_mut()
            .filter(|trace| trace.regular.len() == regular);
        for trace in whole {
            for (value, level) in trace.regular.iter_mut().zip(&levels) {
                *value -= kept * level;
            }
        }
    }
    let fresh = traces.iter().map(|trace| trace.fresh.len()).max();
    for at in 0..fresh.unwrap_or(0) {
        let there: Vec<f64> = traces
            .iter()
            .zip(&centres)
            .filter_map(|(trace, centre)| Some(trace.fresh.get(at)? - centre))
            .collect();
        let level = median(&there).unwrap_or(0.0) * part(there.len());
        if part(there.len()) >= MATTERS && there.len() >= FEWEST / 2 {
            for trace in traces.iter_mut() {
                if let Some(value) = trace.fresh.get_mut(at) {
                    *value -= level;
                }
            }
        }
    }
    Side { levels, kept }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cases(levels: &[f64], count: usize) -> Vec<Series> {
        let value = |case: usize, at: usize, level: f64| {
            // Own noise of a tenth of a percent, without a pattern over the cases.
            let own = ((case * 7 + at * 13) % 11) as f64 / 11.0 - 0.45;
            case as f64 + level + 0.001 * own
        };
        let trace = |case: usize| Trace {
            regular: (0..levels.len())
                .map(|at| value(case, at, levels[at]))
                .collect(),
            fresh: vec![value(case, 9, 0.02)],
        };
        (0..count)
            .map(|case| Series {
                base: trace(case),
                head: trace(case),
                earlier: Vec::new(),
                pairs: Vec::new(),
                floor: 0.02,
            })
            .collect()
    }

    fn spread(series: &[Series]) -> f64 {
        let all = &series[3].head.regular;
        all.iter()
            .fold(0.0, |most: f64, value| most.max((value - all[0]).abs()))
    }

    #[test]
    fn what_all_cases_share_is_taken_out() {
        let shaken = cases(&[0.0, 0.03, 0.0, -0.02, 0.01], 20);
        assert!(spread(&shaken) > 0.02);
        let levelled = level(&shaken);
        assert!(spread(&levelled.cases) < 0.003);
        assert!((levelled.head[1] - 0.03).abs() < 0.001);
        // The fresh invocation was 2 % slower for everybody.
        let fresh = levelled.cases[3].head.fresh[0];
        assert!((fresh - 3.0).abs() < 0.003, "{fresh}");
    }

    #[test]
    fn where_nothing_is_shared_and_where_few_are_there_nothing_is_taken_out() {
        let calm = cases(&[0.0; 5], 20);
        assert_eq!(level(&calm).cases[3].head.regular, calm[3].head.regular);
        let few = cases(&[0.0, 0.03, 0.0, -0.02, 0.01], 9);
        assert_eq!(level(&few).cases, few);
    }
}
