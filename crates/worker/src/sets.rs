//! Decides which inputs each sample has, and which sample is the last.
//!
//! A kernel that keeps its result and returns it again would be the fastest. So the contents of the
//! inputs change between samples, and the last sample has contents that no call had before; its
//! result is then checked.

use std::time::Duration;

use crate::inputs::drawn;
use crate::protocol::Measure;
use crate::serve::{Pause, Refusal};
use crate::units::Nanoseconds;

/// The set of the last sample: seed + 1.
pub const LAST: u32 = 1;

/// The sets of inputs of samples: 2, 3, 4, ..., and [`LAST`] for the last one. As no set repeats,
/// even a kernel that caches results by its inputs' contents gains nothing.
#[derive(Debug)]
pub struct Rotation {
    /// Samples that have had a set, without the last one.
    taken: u32,
}

impl Rotation {
    /// A new set for each sample; `None` if a single set was requested, so that the inputs stay the
    /// same.
    pub fn new(asked: u32) -> Option<Rotation> {
        (asked > 1).then_some(Rotation { taken: 0 })
    }

    /// The number of sets so far, including those of the first call and the last sample.
    pub fn sets(&self) -> u32 {
        self.taken + 2
    }

    /// The set of the next sample; `last` if it is the last one.
    pub fn next(&mut self, last: bool) -> u32 {
        if last {
            return LAST;
        }
        self.taken += 1;
        LAST + self.taken
    }
}

/// A sample to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The set of its inputs; `None` if the inputs stay the same.
    pub set: Option<u32>,
    /// True if it is the last one, as far as that is known beforehand.
    pub last: bool,
    /// True if a pause came before it.
    pub resumed: bool,
}

/// Takes the samples that a request asks for. `take` returns the part of the budget that a sample
/// used, and its time. Calls `pause` between samples as the request says.
///
/// # Errors
/// The first error of a sample or a pause; no sample follows it.
pub fn each<E: From<Refusal>>(
    request: &Measure,
    rotation: &mut Option<Rotation>,
    pause: Pause<'_>,
    mut take: impl FnMut(Sample) -> Result<(Duration, Nanoseconds), E>,
) -> Result<(), E> {
    let mut request = request.clone();
    let (mut taken, mut turn) = (SamplesTaken::default(), Vec::new());
    loop {
        if next(&request, &taken, rotation.is_some()) == NextSample::Enough {
            return Ok(());
        }
        let resumed = request.pause_every > 0 && turn.len() >= request.pause_every as usize;
        if resumed && pause(std::mem::take(&mut turn))? {
            let most = request.samples.max(request.min_samples);
            request.samples = most.min(taken.samples + request.pause_every);
            request.min_samples = request.samples;
        }
        let next = next(&request, &taken, rotation.is_some());
        let last = next == NextSample::Last;
        let set = rotation.as_mut().map(|rotation| rotation.next(last));
        let (spent, time) = take(Sample { set, last, resumed })?;
        taken.add(spent);
        turn.push(time);
        if last {
            return Ok(());
        }
    }
}

/// The calls of `request` that are checked in addition to the last one, counted from 1: one of
/// those that are made regardless of the budget, and two of all calls.
pub fn drawn_calls(request: &Measure, draw: u64) -> [u32; 3] {
    let most = request.samples.max(request.min_samples).saturating_sub(1);
    let least = request.min_samples.saturating_sub(1).min(most);
    let drawn_below = |k, below: u32| 1 + drawn(draw, k, below.into()) as u32;
    [
        drawn_below(0, least),
        drawn_below(1, most),
        drawn_below(2, most),
    ]
}

/// The decision before the next sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextSample {
    /// Take a sample; more will follow.
    Sample,
    /// Take a sample, the last one.
    Last,
    /// Take none.
    Enough,
}

/// The number of samples that are taken even beyond the budget, if the fastest ones would leave
/// time for that many. A call that is slow only now and then must not use up the budget before that
/// shows.
pub(crate) const SHOWING: u32 = 10;

/// The samples so far. Times do not include changing inputs.
#[derive(Clone, Copy, Debug, Default)]
struct SamplesTaken {
    samples: u32,
    spent: Duration,
    /// The fastest sample; `None` before the first.
    fastest: Option<Duration>,
}

impl SamplesTaken {
    fn add(&mut self, sample: Duration) {
        self.samples += 1;
        self.spent += sample;
        self.fastest = Some(self.fastest.map_or(sample, |fastest| fastest.min(sample)));
    }

    /// True if the budget is spent.
    fn late(&self, request: &Measure) -> bool {
        let budget = Duration::from_millis(request.budget_ms);
        let slow = |fastest: Duration| fastest.saturating_mul(SHOWING) >= budget;
        self.samples >= request.min_samples
            && self.spent >= budget
            && (self.samples >= SHOWING || self.fastest.is_none_or(slow))
    }
}

/// Decides whether another sample follows. If `known`, the last one has to be known beforehand: it
/// is the one after which the budget would leave no time for another.
fn next(request: &Measure, taken: &SamplesTaken, known: bool) -> NextSample {
    let most = request.samples.max(request.min_samples);
    if taken.samples >= most || (taken.late(request) && !known) {
        return NextSample::Enough;
    }
    let after = SamplesTaken {
        samples: taken.samples + 1,
        spent: taken.spent + taken.spent.checked_div(taken.samples).unwrap_or_default(),
        ..*taken
    };
    if after.samples >= most || (known && after.late(request)) {
        NextSample::Last
    } else {
        NextSample::Sample
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Cache;

    fn request(samples: u32, min_samples: u32, budget_ms: u64) -> Measure {
        Measure {
            warmup: 0,
            samples,
            min_samples,
            budget_ms,
            cache: Cache::Hot,
            ..Measure::default()
        }
    }

    #[test]
    fn each_sample_has_a_set_of_its_own_and_the_last_one_that_is_known() {
        assert!(Rotation::new(1).is_none());
        let mut rotation = Rotation::new(2).unwrap();
        let order: Vec<u32> = (0..4).map(|at| rotation.next(at == 3)).collect();
        assert_eq!((order, rotation.sets()), (vec![2, 3, 4, LAST], 5));
    }

    /// The number of samples if each takes `each_ms` milliseconds, and whether the last was known
    /// beforehand.
    fn taken(request: &Measure, each_ms: u64, known: bool) -> (u32, bool) {
        let (mut taken, mut known_last) = (0, false);
        let mut rotation = known.then_some(Rotation { taken: 0 });
        let sample = |Sample { set, last, .. }: Sample| {
            assert_eq!(set, known.then(|| if last { LAST } else { taken + 2 }));
            (taken, known_last) = (taken + 1, last);
            Ok::<_, Refusal>((Duration::from_millis(each_ms), Nanoseconds::ZERO))
        };
        each(request, &mut rotation, &mut |_| Ok(false), sample).unwrap();
        (taken, known_last)
    }

    #[test]
    fn it_pauses_between_samples_ends_after_the_last_turn_and_where_a_pause_fails() {
        for (second, most, samples, last) in [
            (Ok(true), 100, 9, true),
            (Ok(true), 7, 7, true),
            (Err(Refusal::from("another request")), 100, 6, false),
        ] {
            let request = Measure {
                pause_every: 3,
                ..request(most, 2, u64::MAX)
            };
            let (mut rotation, mut turns) = (Rotation::new(2), Vec::new());
            let (mut resumed, mut ended) = (Vec::new(), false);
            let mut pause = |times: Vec<Nanoseconds>| {
                turns.push(times.len());
                if turns.len() == 2 {
                    second.clone()
                } else {
                    Ok(false)
                }
            };
            let sample = |sample: Sample| {
                resumed.push(sample.resumed);
                ended = sample.last;
                Ok::<_, Refusal>((Duration::ZERO, Nanoseconds(1.0)))
            };
            let result = each(&request, &mut rotation, &mut pause, sample);
            let wanted: Vec<bool> = (0..samples).map(|at| at > 0 && at % 3 == 0).collect();
            assert_eq!(resumed, wanted);
            assert_eq!((result.is_ok(), ended), (last, last));
            assert_eq!(turns, [3, 3]);
        }
    }

    #[test]
    fn a_call_that_is_slow_now_and_then_does_not_end_the_budget_before_ten() {
        for known in [false, true] {
            let samples = |slow_ms: u64, fast_ms: u64| {
                let (mut rotation, mut taken) = (known.then_some(Rotation { taken: 0 }), 0);
                let sample = |_| {
                    taken += 1;
                    let slow = taken % 4 == 0;
                    let spent = Duration::from_millis(if slow { slow_ms } else { fast_ms });
                    Ok::<_, Refusal>((spent, Nanoseconds::ZERO))
                };
                each(
                    &request(20, 5, 200),
                    &mut rotation,
                    &mut |_| Ok(false),
                    sample,
                )
                .unwrap();
                taken
            };
            assert_eq!(samples(5, 5), 20);
            assert_eq!(samples(150, 5), 10);
            // Ten times the fastest is beyond the budget.
            assert!((7..=9).contains(&samples(25, 25)), "{}", samples(25, 25));
            assert_eq!(samples(400, 50), 5);
        }
    }

    #[test]
    fn the_last_sample_is_known_and_their_number_is_what_was_asked_for() {
        for known in [false, true] {
            assert_eq!(taken(&request(5, 2, u64::MAX), 1, known).0, 5);
            assert_eq!(taken(&request(5, 2, 0), 1, known).0, 2);
            assert_eq!(taken(&request(0, 2, 1000), 1, known).0, 2);
            assert_eq!(taken(&request(100, 3, 50), 10, known).0, 5);
            assert_eq!(taken(&request(100, 8, 50), 10, known).0, 8);
            assert_eq!(taken(&request(1, 1, 0), 10, known).0, 1);
        }
        for samples in 1..20 {
            for budget in [0, 5, 30, 1000] {
                let request = request(samples, samples.min(3), budget);
                let (count, last) = taken(&request, 10, true);
                assert!(last, "{samples} {budget}");
                assert!((request.min_samples..=samples).contains(&count));
            }
        }
    }
}
