//! The algebra of times: what ran at once, when nothing did, and who was waited for.
//!
//! Of one device. Every figure of idle time, overlap and waiting for the host is taken
//! here, of a census of one call and of a trace of a whole program alike.

/// Something that a device did, in nanoseconds of one clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ran {
    /// When it started.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// When the host began to launch it, where known.
    pub launched_ns: Option<u64>,
}

/// A time in which a device did nothing, between operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// When everything before it had ended.
    pub start_ns: u64,
    /// When the next operation started.
    pub end_ns: u64,
    /// Its first nanoseconds, until the host began to launch that operation: the device
    /// waited for the host. The rest is the device's own, or the driver's. `None` where
    /// the launch is not known.
    pub host_ns: Option<u64>,
}

impl Gap {
    /// Its length in nanoseconds.
    pub fn ns(&self) -> u64 {
        self.end_ns - self.start_ns
    }
}

/// The gaps between what ran, in order.
pub fn gaps(ran: impl IntoIterator<Item = Ran>) -> Vec<Gap> {
    let mut order: Vec<Ran> = ran.into_iter().collect();
    order.sort_by_key(|ran| ran.start_ns);
    let mut found = Vec::new();
    let mut ended = None;
    for next in order {
        if let Some(start_ns) = ended.filter(|&ended| ended < next.start_ns) {
            // A clock that is off may put a launch behind its operation.
            let until = |launched: u64| launched.clamp(start_ns, next.start_ns);
            found.push(Gap {
                start_ns,
                end_ns: next.start_ns,
                host_ns: next.launched_ns.map(|at| until(at) - start_ns),
            });
        }
        ended = ended.max(Some(next.end_ns));
    }
    found
}

/// The time that operations cover, each moment once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cover {
    /// In order, without touching.
    stretches: Vec<(u64, u64)>,
}

impl Cover {
    /// The time that these cover.
    pub fn of(ran: impl IntoIterator<Item = Ran>) -> Cover {
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

    /// Nanoseconds in it.
    pub fn ns(&self) -> u64 {
        self.stretches.iter().map(|(start, end)| end - start).sum()
    }

    /// Nanoseconds from its first moment to its last.
    pub fn span_ns(&self) -> u64 {
        match (self.stretches.first(), self.stretches.last()) {
            (Some(first), Some(last)) => last.1 - first.0,
            _ => 0,
        }
    }

    /// Nanoseconds in which at least two of several are.
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

    /// Nanoseconds that it has in common with another.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ran(start_ns: u64, end_ns: u64) -> Ran {
        Ran {
            start_ns,
            end_ns,
            launched_ns: None,
        }
    }

    fn launched(start_ns: u64, end_ns: u64, at: u64) -> Ran {
        Ran {
            launched_ns: Some(at),
            ..ran(start_ns, end_ns)
        }
    }

    #[test]
    fn a_gap_is_the_hosts_until_the_launch_of_what_ends_it() {
        let found = gaps([
            launched(0, 10, 0),
            launched(100, 110, 92),
            launched(150, 160, 200),
            launched(170, 180, 5),
            ran(190, 200),
        ]);
        let parts: Vec<_> = found.iter().map(|gap| (gap.ns(), gap.host_ns)).collect();
        let expected = [(90, Some(82)), (40, Some(40)), (10, Some(0)), (10, None)];
        assert_eq!(parts, expected);
    }

    proptest! {
        #[test]
        fn a_cover_and_its_gaps_make_the_span(
            times in prop::collection::vec((0u64..500, 0u64..80), 1..30)
        ) {
            let ran: Vec<Ran> = times.iter().map(|&(at, ns)| ran(at, at + ns)).collect();
            let cover = Cover::of(ran.iter().copied());
            let idle: u64 = gaps(ran.iter().copied()).iter().map(Gap::ns).sum();
            prop_assert_eq!(cover.ns() + idle, cover.span_ns());
        }

        #[test]
        fn two_covers_and_what_they_share_make_the_cover_of_both(
            one in prop::collection::vec((0u64..500, 1u64..80), 0..30),
            other in prop::collection::vec((0u64..500, 1u64..80), 0..30),
        ) {
            let all = |times: &[(u64, u64)]| -> Vec<Ran> {
                times.iter().map(|&(at, ns)| ran(at, at + ns)).collect()
            };
            let (one, other) = (all(&one), all(&other));
            let both = Cover::of(one.iter().chain(&other).copied());
            let (one, other) = (Cover::of(one), Cover::of(other));
            prop_assert_eq!(Cover::at_once_ns(&[one.clone(), other.clone()]), one.common_ns(&other));
            prop_assert_eq!(one.ns() + other.ns() - one.common_ns(&other), both.ns());
        }
    }
}
