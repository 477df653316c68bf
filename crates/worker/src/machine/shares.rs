//! Whose each moment of a device is: a part to every operation that ran in it, and what was
//! idle to the operation that ended the idling. So parts and gaps add up to the time from the
//! first start to the last end, however much ran at once.

use super::intervals::Ran;

/// What of a device's time belongs to one operation, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Own {
    /// Of each moment in which it ran, the part that is its own: half where two ran.
    pub share_ns: f64,
    /// Idle time right before it.
    pub gap_ns: f64,
    /// The first part of that, until the host began to launch it; `None` where the launch is
    /// not known.
    pub host_ns: Option<f64>,
}

/// Divides a device's time among what ran, in the order given.
pub fn divide(ran: &[Ran]) -> Vec<Own> {
    let mut own = vec![Own::default(); ran.len()];
    let mut order: Vec<usize> = (0..ran.len()).collect();
    order.sort_by_key(|&at| (ran[at].start_ns, ran[at].end_ns, at));
    let mut running: Vec<usize> = Vec::new();
    // Before the first operation nothing waited.
    let mut now = order.first().map_or(0, |&first| ran[first].start_ns);
    for next in order {
        let start = ran[next].start_ns;
        now = pass(&mut own, &mut running, ran, now, Some(start));
        if running.is_empty() && now < start {
            own[next].gap_ns = (start - now) as f64;
            let waited = |at: u64| (at.clamp(now, start) - now) as f64;
            own[next].host_ns = ran[next].launched_ns.map(waited);
        }
        now = now.max(start);
        running.push(next);
    }
    pass(&mut own, &mut running, ran, now, None);
    for (of, ran) in own.iter_mut().zip(ran) {
        if of.gap_ns == 0.0 {
            of.host_ns = ran.launched_ns.map(|_| 0.0);
        }
    }
    own
}

/// Gives the time up to a moment, or to the last end, to what runs; where that left off.
fn pass(
    own: &mut [Own],
    running: &mut Vec<usize>,
    ran: &[Ran],
    mut now: u64,
    until: Option<u64>,
) -> u64 {
    while let Some(first) = running.iter().map(|&at| ran[at].end_ns).min() {
        let end = until.map_or(first, |until| first.min(until));
        let each = end.saturating_sub(now) as f64 / running.len() as f64;
        running.iter().for_each(|&at| own[at].share_ns += each);
        now = now.max(end);
        running.retain(|&at| ran[at].end_ns > now);
        if until.is_some_and(|until| now >= until) {
            break;
        }
    }
    now
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::intervals::Cover;
    use super::*;

    fn ran(start_ns: u64, end_ns: u64, launched_ns: Option<u64>) -> Ran {
        Ran {
            start_ns,
            end_ns,
            launched_ns,
        }
    }

    #[test]
    fn a_moment_is_shared_and_a_gap_is_of_what_ends_it() {
        let own = divide(&[
            ran(100, 200, Some(90)),
            ran(150, 250, Some(95)),
            ran(300, 310, Some(280)),
            ran(310, 320, None),
        ]);
        let shares: Vec<f64> = own.iter().map(|of| of.share_ns).collect();
        assert_eq!(shares, [75.0, 75.0, 10.0, 10.0]);
        let gaps: Vec<f64> = own.iter().map(|of| of.gap_ns).collect();
        assert_eq!(gaps, [0.0, 0.0, 50.0, 0.0], "nothing waits for the first");
        let hosts: Vec<_> = own.iter().map(|of| of.host_ns).collect();
        assert_eq!(hosts, [Some(0.0), Some(0.0), Some(30.0), None]);
        assert_eq!(divide(&[]), []);
    }

    proptest! {
        #[test]
        fn parts_and_gaps_are_the_span(
            times in prop::collection::vec((0u64..500, 0u64..80), 1..30)
        ) {
            let ran: Vec<Ran> = times.iter().map(|&(at, ns)| ran(at, at + ns, None)).collect();
            let own = divide(&ran);
            let cover = Cover::of(ran.iter().copied());
            let shares: f64 = own.iter().map(|of| of.share_ns).sum();
            let gaps: f64 = own.iter().map(|of| of.gap_ns).sum();
            prop_assert!((shares - cover.ns() as f64).abs() < 1e-6);
            prop_assert!((shares + gaps - cover.span_ns() as f64).abs() < 1e-6, "{own:?}");
        }
    }
}
