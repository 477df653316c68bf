//! The search on histories that are known: real ones, planted ones, and any.

use proptest::prelude::*;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;

/// A history to be asked: levels by version, `None` where it does not run.
struct History<'a> {
    levels: &'a [Option<f64>],
    /// Standard deviation of a comparison, of logarithms.
    noise: f64,
    /// The smallest change that is called, as the floor of a suite.
    floor: f64,
    random: ChaCha8Rng,
}

/// What a search asked, in order: versions against the good end, and pairs.
#[derive(Debug, Default)]
struct Asked {
    probed: Vec<usize>,
    skipped: Vec<usize>,
    direct: Vec<(usize, usize)>,
}

impl History<'_> {
    fn new(levels: &[Option<f64>], noise: f64, seed: u64) -> History<'_> {
        let random = ChaCha8Rng::seed_from_u64(seed);
        History {
            levels,
            noise,
            floor: 0.01,
            random,
        }
    }

    /// The sum of twelve uniform numbers less six: near enough to normal.
    fn error(&mut self) -> f64 {
        let sum: f64 = (0..12).map(|_| self.random.random_range(0.0..1.0)).sum();
        self.noise * (sum - 6.0)
    }

    fn compare(&mut self, low: usize, high: usize) -> Probe {
        let (Some(before), Some(after)) = (self.levels[low], self.levels[high]) else {
            return Probe::Skipped;
        };
        let change = after - before + self.error();
        let half = 1.96 * self.noise.max(1e-6);
        let word = match change {
            _ if change - half > self.floor => Word::Regressed,
            _ if change + half < -self.floor => Word::Improved,
            _ if change.abs() + half < self.floor => Word::Same,
            _ => Word::Inconclusive,
        };
        Probe::Read(Reading {
            ratio: Ratio(change.exp()),
            low: Ratio((change - half).exp()),
            high: Ratio((change + half).exp()),
            word,
        })
    }

    fn search(&mut self, towards: Towards) -> (Answer, Asked) {
        let (mut known, mut asked) = (Known::default(), Asked::default());
        loop {
            match next(self.levels.len(), towards, &known) {
                Next::Probe { at, left } => {
                    assert!(left > 0 && !known.probes.contains_key(&at));
                    let probe = self.compare(0, at);
                    match probe {
                        Probe::Read(_) => asked.probed.push(at),
                        Probe::Skipped => asked.skipped.push(at),
                    }
                    known.probes.insert(at, probe);
                }
                Next::Direct { low, high } => {
                    asked.direct.push((low, high));
                    let before = known.direct.insert((low, high), self.compare(low, high));
                    assert_eq!(before, None, "asked twice");
                }
                Next::Done(answer) => return (answer, asked),
            }
        }
    }
}

/// jax 0.4.38 to 0.10.2, in milliseconds, the mean of both rounds of the releases that were
/// measured; those between have the time of the one before. The last two are one step.
fn jax() -> Vec<Option<f64>> {
    let ms = [
        31.65, 30.4, 53.7, 0.0, 52.75, 52.75, 52.75, 53.7, 53.7, 53.7, 55.65, 55.65, 55.65, 55.65,
        60.35, 60.5, 60.5, 60.5, 50.0, 49.05, 49.05, 30.55,
    ];
    let level = |ms: f64| (ms > 0.0).then(|| ms.ln());
    ms.into_iter().map(level).collect()
}

const RELEASES: [&str; 22] = [
    "0.4.38", "0.5.0", "0.5.1", "0.5.2", "0.5.3", "0.6.0", "0.6.1", "0.6.2", "0.7.0", "0.7.1",
    "0.7.2", "0.8.0", "0.8.1", "0.8.2", "0.8.3", "0.9.0", "0.9.0.1", "0.9.1", "0.9.2", "0.10.0",
    "0.10.1", "0.10.2",
];

#[test]
fn the_release_that_made_jax_slower_is_named_in_seven_installs() {
    let levels = jax();
    for seed in 0..50 {
        let (answer, asked) = History::new(&levels, 0.015, seed).search(Towards::Bad);
        let Answer::Found {
            low, high, skipped, ..
        } = answer
        else {
            panic!("{answer:?}");
        };
        assert_eq!((RELEASES[low], RELEASES[high]), ("0.5.0", "0.5.1"));
        assert!(skipped.is_empty());
        // The good end is installed as well.
        assert!(asked.probed.len() < 7, "{asked:?}");
        let skipped: Vec<&str> = asked.skipped.iter().map(|&at| RELEASES[at]).collect();
        assert_eq!(skipped, ["0.5.2"]);
        assert_eq!(asked.direct, [(low, high)]);
    }
}

#[test]
fn the_release_that_is_good_again_is_named_in_seven_installs() {
    let levels = jax();
    for seed in 0..50 {
        let (answer, asked) = History::new(&levels, 0.015, seed).search(Towards::Fixed);
        let Answer::Found {
            low, high, reading, ..
        } = answer
        else {
            panic!("{answer:?}");
        };
        // Not 0.9.2, which is a part of the way back.
        assert_eq!((RELEASES[low], RELEASES[high]), ("0.10.1", "0.10.2"));
        assert_eq!(reading.word, Word::Improved);
        assert!(asked.probed.len() < 7, "{asked:?}");
    }
}

/// Sixty commits after the good end: creep of 0.3 % a commit over the thirty before a step of
/// 4 %, and three that do not build.
fn crept(random: &mut impl Rng) -> (Vec<Option<f64>>, usize) {
    let step = random.random_range(31..=60);
    let mut level = 0.0;
    let mut levels = vec![Some(0.0)];
    for at in 1..=60 {
        level += match at {
            _ if at == step => 1.04f64.ln(),
            _ if at + 30 >= step && at < step => 1.003f64.ln(),
            _ => 0.0,
        };
        levels.push(Some(level));
    }
    let mut broken = 0;
    while broken < 3 {
        let at = random.random_range(1..60);
        // A step that does not build itself is another question.
        if at != step && at + 1 != step && levels[at].take().is_some() {
            broken += 1;
        }
    }
    (levels, step)
}

#[test]
fn a_step_among_creep_is_found_in_noise() {
    let (mut right, mut comparisons) = (0, 0);
    for seed in 0..200 {
        let (levels, step) = crept(&mut ChaCha8Rng::seed_from_u64(seed));
        let (answer, asked) = History::new(&levels, 0.005, seed).search(Towards::Bad);
        comparisons += asked.probed.len() + asked.direct.len();
        right += usize::from(matches!(answer, Answer::Found { high, .. } if high == step));
    }
    println!("named in {right} of 200, {comparisons} comparisons in all");
    assert!(right >= 190 && comparisons < 200 * 18);
}

#[test]
fn unchanged_versions_are_not_searched() {
    let levels = vec![Some(0.0); 61];
    let mut refused = 0;
    for seed in 0..200 {
        let mut history = History::new(&levels, 0.005, seed);
        history.floor = 0.02;
        let (answer, asked) = history.search(Towards::Bad);
        refused += usize::from(answer == Answer::NoDifference && asked.probed == [60, 30]);
    }
    assert_eq!(refused, 200);
}

#[test]
fn creep_alone_is_no_step() {
    let levels: Vec<Option<f64>> = (0..61).map(|at| Some(0.003 * f64::from(at))).collect();
    for seed in 0..200 {
        let (answer, _) = History::new(&levels, 0.005, seed).search(Towards::Bad);
        let Answer::Spread(parts) = answer else {
            panic!("{answer:?}");
        };
        assert!(parts[0].ratio < Ratio(1.03), "{parts:?}");
    }
}

fn searched(levels: &[Option<f64>], towards: Towards) -> (Answer, Asked) {
    History::new(levels, 0.0, 0).search(towards)
}

/// Levels of unit steps, `x` for a version that does not run.
fn history(text: &str) -> Vec<Option<f64>> {
    let level = |c: char| c.to_digit(10).map(|level| 0.1 * f64::from(level));
    text.chars().map(level).collect()
}

#[test]
fn the_middle_is_looked_at_where_the_ends_agree() {
    let (answer, _) = searched(&history("0001110000"), Towards::Bad);
    assert!(matches!(
        answer,
        Answer::Found {
            low: 2,
            high: 3,
            ..
        }
    ));
    let (answer, _) = searched(&history("0001110000"), Towards::Fixed);
    assert!(matches!(
        answer,
        Answer::Found {
            low: 5,
            high: 6,
            ..
        }
    ));
    let (answer, asked) = searched(&history("0110000000"), Towards::Bad);
    assert_eq!((answer, asked.probed), (Answer::NoDifference, vec![9, 5]));
    // Nothing is good again at a bad end.
    let (answer, _) = searched(&history("0000111111"), Towards::Fixed);
    assert_eq!(answer, Answer::NoDifference);
}

#[test]
fn where_only_skipped_ones_lie_between_it_is_one_of_them() {
    let (answer, _) = searched(&history("0000xxx111"), Towards::Bad);
    let Answer::Found {
        low, high, skipped, ..
    } = answer
    else {
        panic!("{answer:?}");
    };
    assert_eq!((low, high, skipped), (3, 7, vec![4, 5, 6]));
    let (answer, _) = searched(&history("0xxx"), Towards::Bad);
    assert_eq!(answer, Answer::NoEnd);
    let (answer, asked) = searched(&history("0xx1"), Towards::Bad);
    assert!(matches!(
        answer,
        Answer::Found {
            low: 0,
            high: 3,
            ..
        }
    ));
    assert_eq!(asked.skipped, [2, 1], "the upper middle first");
    assert!(asked.direct.is_empty(), "the good end was compared already");
}

#[test]
fn a_step_that_its_neighbours_do_not_show_is_not_named() {
    // Against the good end version 2 is slower than 1; against 1 it is not.
    let read = |ratio: f64, word| {
        let ratio = Ratio(ratio);
        Probe::Read(Reading {
            ratio,
            low: ratio * 0.995,
            high: ratio * 1.005,
            word,
        })
    };
    let mut known = Known {
        probes: BTreeMap::from([
            (1, read(1.01, Word::Inconclusive)),
            (2, read(1.05, Word::Regressed)),
        ]),
        ..Known::default()
    };
    let asked = next(3, Towards::Bad, &known);
    assert_eq!(asked, Next::Direct { low: 1, high: 2 });
    known.direct.insert((1, 2), read(1.012, Word::Inconclusive));
    let answer = next(3, Towards::Bad, &known);
    assert!(
        matches!(answer, Next::Done(Answer::Spread(_))),
        "{answer:?}"
    );
}

#[test]
fn what_noise_hides_is_compared_once_more_by_itself() {
    let read = |ratio: f64, factor: f64, word| {
        let ratio = Ratio(ratio);
        Probe::Read(Reading {
            ratio,
            low: ratio / factor,
            high: ratio * factor,
            word,
        })
    };
    // A loaded machine: levels are known to 30 %, and the step back of 29 % is lost in that.
    let mut known = Known {
        probes: BTreeMap::from([
            (4, read(1.67, 1.2, Word::Regressed)),
            (1, read(2.83, 1.4, Word::Regressed)),
            (2, read(2.3, 1.35, Word::Regressed)),
            (3, read(2.36, 1.38, Word::Regressed)),
        ]),
        ..Known::default()
    };
    let asked = next(5, Towards::Fixed, &known);
    assert_eq!(asked, Next::Direct { low: 3, high: 4 });
    known.direct.insert((3, 4), read(0.71, 1.1, Word::Improved));
    let answer = next(5, Towards::Fixed, &known);
    assert!(
        matches!(
            answer,
            Next::Done(Answer::Found {
                low: 3,
                high: 4,
                ..
            })
        ),
        "{answer:?}"
    );
}

#[test]
fn a_version_without_numbers_is_no_reading() {
    let reading = |low, ratio, high| Reading {
        ratio: Ratio(ratio),
        low: Ratio(low),
        high: Ratio(high),
        word: Word::Same,
    };
    assert!(reading(0.9, 1.0, 1.1).is_usable());
    for (low, ratio, high) in [
        (0.0, 1.0, 1.1),
        (0.9, f64::NAN, 1.1),
        (0.9, 1.0, f64::INFINITY),
        (1.1, 1.0, 0.9),
    ] {
        assert!(!reading(low, ratio, high).is_usable());
    }
}

proptest! {
    /// One step, wherever it is and whatever does not run: named, or one of a few, at the cost
    /// of a binary search.
    #[test]
    fn one_step_is_named(
        versions in 2usize..200,
        at in any::<prop::sample::Index>(),
        broken in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let step = 1 + at.index(versions - 1);
        let mut levels: Vec<Option<f64>> =
            (0..versions).map(|v| Some(if v >= step { 0.2 } else { 0.0 })).collect();
        for index in broken {
            let at = index.index(versions);
            if at > 0 && at < versions - 1 {
                levels[at] = None;
            }
        }
        let (answer, asked) = searched(&levels, Towards::Bad);
        let Answer::Found { low, high, skipped, .. } = answer else {
            panic!("{answer:?}");
        };
        prop_assert!(low < step && step <= high);
        prop_assert!(skipped.iter().all(|&at| levels[at].is_none()));
        prop_assert_eq!(skipped.len(), high - low - 1);
        if asked.skipped.is_empty() {
            prop_assert!(asked.probed.len() <= 1 + halvings(versions - 2), "{:?}", asked);
        }
    }

    /// Any history comes to an end, and what is named is a step.
    #[test]
    fn every_search_ends(
        levels in prop::collection::vec(prop::option::weighted(0.8, -0.5f64..0.5), 1..40),
        noise in 0.0f64..0.1,
        fixed: bool,
    ) {
        let mut levels = levels;
        levels[0] = Some(0.0);
        let towards = if fixed { Towards::Fixed } else { Towards::Bad };
        let (answer, _) = History::new(&levels, noise, 7).search(towards);
        if let Answer::Found { reading, .. } = answer {
            prop_assert_eq!(reading.word, towards.word());
        }
    }
}
