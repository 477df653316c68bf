//! Computes with times of operations: overlaps, idle time, waits for the host, and each operation's
//! own share.
//!
//! All operations are of one device. Every figure of idle time, overlap and waiting comes from
//! here, both for a census of one call and for the trace of a whole program.

/// An operation that ran on a device. Times are nanoseconds of one clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ran {
    /// The start.
    pub start_ns: u64,
    /// The end.
    pub end_ns: u64,
    /// The moment when the host began to launch it, if known.
    pub launched_ns: Option<u64>,
}

/// The time that some operations cover together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cover {
    /// Sorted stretches that do not touch.
    stretches: Vec<(u64, u64)>,
}

impl Cover {
    /// The time that these operations cover.
    pub fn new(ran: impl IntoIterator<Item = Ran>) -> Cover {
        let mut times: Vec<(u64, u64)> = ran
            .into_iter()
            .filter(|ran| ran.start_ns <= ran.end_ns)
            .map(|ran| (ran.start_ns, ran.end_ns))
            .collect();
        times.sort_unstable();
        let mut stretches: Vec<(u64, u64)> = Vec::new();
        for (start, end) in times {
            match stretches.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => stretches.push((start, end)),
            }
        }
        Cover { stretches }
    }

    /// The total length in nanoseconds.
    pub fn ns(&self) -> u64 {
        self.stretches.iter().map(|(start, end)| end - start).sum()
    }

    /// Nanoseconds from the first moment to the last.
    pub fn span_ns(&self) -> u64 {
        let ends = self.stretches.first().zip(self.stretches.last());
        ends.map_or(0, |(first, last)| last.1 - first.0)
    }

    /// Nanoseconds that at least two of several cover.
    pub fn at_once_ns(several: &[Cover]) -> u64 {
        let edges = several.iter().flat_map(|cover| &cover.stretches);
        let mut edges: Vec<(u64, i32)> = edges
            .flat_map(|&(start, end)| [(start, 1), (end, -1)])
            .collect();
        edges.sort_unstable();
        let (mut open, mut since, mut sum) = (0, 0, 0_u64);
        for (at, step) in edges {
            if open >= 2 {
                sum = sum.saturating_add(at - since);
            }
            (open, since) = (open + step, at);
        }
        sum
    }

    /// Nanoseconds that both cover.
    pub fn common_ns(&self, other: &Cover) -> u64 {
        let (mut i, mut j, mut common) = (0, 0, 0);
        while let (Some(a), Some(b)) = (self.stretches.get(i), other.stretches.get(j)) {
            common += a.1.min(b.1).saturating_sub(a.0.max(b.0));
            if a.1 < b.1 {
                i += 1;
            } else {
                j += 1;
            }
        }
        common
    }
}

/// The part of a device's time that belongs to one operation, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Own {
    /// The operation's share of the time in which it ran: half of it while two ran.
    pub share_ns: f64,
    /// Idle time right before it.
    pub gap_ns: f64,
    /// The part of `gap_ns` before the host began to launch the operation; `None` if the launch is
    /// unknown.
    pub host_ns: Option<f64>,
}

/// Divides a device's time among operations. The result is in the order of `ran`.
pub fn divide(ran: &[Ran]) -> Vec<Own> {
    let mut own = vec![Own::default(); ran.len()];
    let mut order: Vec<usize> = (0..ran.len()).collect();
    order.sort_by_key(|&at| (ran[at].start_ns, ran[at].end_ns, at));
    let mut running: Vec<usize> = Vec::new();
    // Nothing waited before the first operation.
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

/// Divides the time from `now` to `until`, or to the last end, among running operations. Returns
/// the moment up to which time is divided.
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

    use super::*;

    fn ran(start_ns: u64, end_ns: u64, launched_ns: Option<u64>) -> Ran {
        Ran {
            start_ns,
            end_ns,
            launched_ns,
        }
    }

    proptest! {
        #[test]
        fn two_covers_and_what_they_share_make_the_cover_of_both(
            one in prop::collection::vec((0u64..500, 1u64..80), 0..30),
            other in prop::collection::vec((0u64..500, 1u64..80), 0..30),
        ) {
            let all = |times: &[(u64, u64)]| -> Vec<Ran> {
                times.iter().map(|&(at, ns)| ran(at, at + ns, None)).collect()
            };
            let (one, other) = (all(&one), all(&other));
            let both = Cover::new(one.iter().chain(&other).copied());
            let (one, other) = (Cover::new(one), Cover::new(other));
            prop_assert_eq!(Cover::at_once_ns(&[one.clone(), other.clone()]), one.common_ns(&other));
            prop_assert_eq!(one.ns() + other.ns() - one.common_ns(&other), both.ns());
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
        let shares: Vec<f64> = own.iter().map(|own| own.share_ns).collect();
        assert_eq!(shares, [75.0, 75.0, 10.0, 10.0]);
        let gaps: Vec<f64> = own.iter().map(|own| own.gap_ns).collect();
        assert_eq!(gaps, [0.0, 0.0, 50.0, 0.0], "nothing waits for the first");
        let hosts: Vec<_> = own.iter().map(|own| own.host_ns).collect();
        assert_eq!(hosts, [Some(0.0), Some(0.0), Some(30.0), None]);
        // An inexact clock may put a launch after its operation.
        let late = divide(&[ran(0, 10, None), ran(50, 60, Some(80)), ran(70, 80, None)]);
        let gaps: Vec<_> = late.iter().map(|own| (own.gap_ns, own.host_ns)).collect();
        assert_eq!(gaps, [(0.0, None), (40.0, Some(40.0)), (10.0, None)]);
        assert_eq!(divide(&[]), []);
    }

    proptest! {
        #[test]
        fn parts_and_gaps_are_the_span(
            times in prop::collection::vec((0u64..500, 0u64..80), 1..30)
        ) {
            let ran: Vec<Ran> = times.iter().map(|&(at, ns)| ran(at, at + ns, None)).collect();
            let own = divide(&ran);
            let cover = Cover::new(ran.iter().copied());
            let shares: f64 = own.iter().map(|own| own.share_ns).sum();
            let gaps: f64 = own.iter().map(|own| own.gap_ns).sum();
            prop_assert!((shares - cover.ns() as f64).abs() < 1e-6);
            prop_assert!((shares + gaps - cover.span_ns() as f64).abs() < 1e-6, "{own:?}");
        }
    }
}
