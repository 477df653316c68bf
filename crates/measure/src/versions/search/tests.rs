//! The search on known histories: real ones, planted ones, and random ones.

use proptest::prelude::*;
use rand::rngs::ChaCha8Rng;
use rand::{Rng, RngExt, SeedableRng};

use super::*;
use regatta_worker::units::Share;

/// A known history: levels by version, `None` if a version does not run.
struct Planted<'a> {
    levels: &'a [Option<f64>],
    /// Standard deviation of a comparison, as a logarithm.
    noise: f64,
    /// The smallest change that is called, like the threshold of a suite.
    floor: f64,
    random: ChaCha8Rng,
}

/// The comparisons that a search made, in order: versions against the good end, and pairs.
#[derive(Debug, Default)]
struct Asked {
    probed: Vec<usize>,
    skipped: Vec<usize>,
    direct: Vec<(usize, usize)>,
    compared: BTreeMap<(usize, usize), Option<RatioReading>>,
}

impl Planted<'_> {
    fn new(levels: &[Option<f64>], noise: f64, seed: u64) -> Planted<'_> {
        let random = ChaCha8Rng::seed_from_u64(seed);
        Planted {
            levels,
            noise,
            floor: 0.01,
            random,
        }
    }

    /// The sum of twelve uniform numbers less six, which is nearly normal.
    fn error(&mut self) -> f64 {
        let sum: f64 = (0..12).map(|_| self.random.random_range(0.0..1.0)).sum();
        self.noise * (sum - 6.0)
    }

    fn compare(&mut self, low: usize, high: usize) -> Option<RatioReading> {
        let (before, after) = (self.levels[low]?, self.levels[high]?);
        let change = after - before + self.error();
        let half = 1.96 * self.noise.max(1e-6);
        let word = match change {
            _ if change - half > self.floor => Word::Regressed,
            _ if change + half < -self.floor => Word::Improved,
            _ if change.abs() + half < self.floor => Word::Same,
            _ => Word::Inconclusive,
        };
        let interval = [change - half, change, change + half].map(|log| Ratio(log.exp()));
        usable(interval, word)
    }

    fn search(&mut self, towards: Towards) -> (NextStep, Asked) {
        let mut asked = Asked::default();
        let mut history = BisectHistory {
            last: self.levels.len() - 1,
            towards,
            compared: BTreeMap::new(),
        };
        loop {
            let NextStep::Compare { low, high, left } = history.next() else {
                let answer = history.next();
                asked.compared = history.compared;
                return (answer, asked);
            };
            assert!(left > 0);
            let reading = self.compare(low, high);
            match (low, reading) {
                (0, Some(_)) => asked.probed.push(high),
                (0, None) => asked.skipped.push(high),
                _ => asked.direct.push((low, high)),
            }
            let before = history.compared.insert((low, high), reading);
            assert_eq!(before, None, "asked twice");
        }
    }
}

/// The versions of the step that a search named.
fn step(answer: &NextStep) -> Option<(usize, usize)> {
    match answer {
        NextStep::Found { low, high } => Some((*low, *high)),
        _ => None,
    }
}

/// Sixty commits after the good end: creep of 0.3 % a commit over the thirty before a step of 4 %,
/// and three commits that do not build.
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
        // The version of the step has to build.
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
        let (answer, asked) = Planted::new(&levels, 0.005, seed).search(Towards::Bad);
        comparisons += asked.probed.len() + asked.direct.len();
        right += usize::from(matches!(answer, NextStep::Found { high, .. } if high == step));
    }
    println!("named in {right} of 200, {comparisons} comparisons in all");
    assert!(right >= 190 && comparisons < 200 * 18);
}

#[test]
fn neither_noise_nor_creep_is_a_step() {
    let unchanged = vec![Some(0.0); 61];
    let creep: Vec<Option<f64>> = (0..61).map(|at| Some(0.003 * f64::from(at))).collect();
    for seed in 0..200 {
        let mut history = Planted::new(&unchanged, 0.005, seed);
        history.floor = 0.02;
        let (answer, asked) = history.search(Towards::Bad);
        assert_eq!(answer, NextStep::NoDifference);
        assert_eq!(asked.probed, vec![60, 30]);
        let (answer, _) = Planted::new(&creep, 0.005, seed).search(Towards::Bad);
        let NextStep::Spread(parts) = answer else {
            panic!("{answer:?}");
        };
        assert!(parts[0].ratio(Towards::Bad) < Ratio(1.03), "{parts:?}");
    }
}

fn searched(levels: &[Option<f64>], towards: Towards) -> (NextStep, Asked) {
    Planted::new(levels, 0.0, 0).search(towards)
}

/// Levels as digits, `x` for a version that does not run.
fn history(text: &str) -> Vec<Option<f64>> {
    let level = |c: char| c.to_digit(10).map(|level| 0.1 * f64::from(level));
    text.chars().map(level).collect()
}

#[test]
fn every_shape_of_a_history_has_its_answer() {
    use Towards::{Bad, Fixed};
    for (levels, towards, named) in [
        ("0001110000", Bad, Some((2, 3))),
        ("0001110000", Fixed, Some((5, 6))),
        ("0110000000", Bad, None),
        // A bad end never becomes good again.
        ("0000111111", Fixed, None),
        ("0000xxx111", Bad, Some((3, 7))),
        ("0xx1", Bad, Some((0, 3))),
        ("0xxx", Bad, None),
    ] {
        let (answer, asked) = searched(&history(levels), towards);
        assert_eq!(step(&answer), named, "{levels}");
        match (levels, answer) {
            ("0xxx", answer) => assert_eq!(answer, NextStep::NoEnd),
            ("0000xxx111", _) => {
                let mut skipped = asked.skipped;
                skipped.sort();
                assert_eq!(skipped, [4, 5, 6]);
            }
            ("0xx1", _) => {
                assert_eq!(asked.skipped, [2, 1], "the upper middle first");
                assert!(asked.direct.is_empty(), "the good end was compared already");
            }
            ("0110000000", answer) => {
                assert_eq!((answer, asked.probed), (NextStep::NoDifference, vec![9, 5]));
            }
            (_, NextStep::NoDifference | NextStep::Found { .. }) => {}
            (_, other) => panic!("{levels}: {other:?}"),
        }
    }
}

fn usable([low, ratio, high]: [Ratio; 3], word: Word) -> Option<RatioReading> {
    RatioReading::usable(&Comparison {
        low: Some(low),
        high: Some(high),
        ..Comparison::new(word, ratio, Share(0.05), (5, 5))
    })
}

/// A comparison whose interval extends by `factor` on both sides.
fn read(ratio: f64, factor: f64, word: Word) -> Option<RatioReading> {
    usable([ratio / factor, ratio, ratio * factor].map(Ratio), word)
}

#[test]
fn a_step_is_named_where_its_neighbours_show_it() {
    use Word::{Improved, Inconclusive, Regressed};
    // Version 2 is slower than 1 by comparisons with the good end, but not beside 1.
    let near = [(1, 1.01, 1.005, Inconclusive), (2, 1.05, 1.005, Regressed)];
    // On a loaded machine, levels are known to 30 %, which hides the step back of 29 %.
    let far = [
        (4, 1.67, 1.2, Regressed),
        (1, 2.83, 1.4, Regressed),
        (2, 2.3, 1.35, Regressed),
        (3, 2.36, 1.38, Regressed),
    ];
    #[rustfmt::skip]
    let all = [
        (3, Towards::Bad, &near[..], (1, 2), (1.012, 1.005, Inconclusive), false),
        (5, Towards::Fixed, &far[..], (3, 4), (0.71, 1.1, Improved), true),
    ];
    for (versions, towards, probes, pair, direct, named) in all {
        let probes = probes
            .iter()
            .map(|&(at, r, f, word)| ((0, at), read(r, f, word)));
        let mut history = BisectHistory {
            last: versions - 1,
            towards,
            compared: probes.collect(),
        };
        let (low, high) = pair;
        let left = 1;
        assert_eq!(history.next(), NextStep::Compare { low, high, left });
        let reading = read(direct.0, direct.1, direct.2);
        history.compared.insert(pair, reading);
        let answer = history.next();
        assert_eq!(step(&answer), named.then_some(pair), "{answer:?}");
        assert!(named || matches!(answer, NextStep::Spread(_)), "{answer:?}");
    }
}

#[test]
fn a_version_without_numbers_is_no_reading() {
    let is_usable = |of: [f64; 3]| usable(of.map(Ratio), Word::Same).is_some();
    assert!(is_usable([0.9, 1.0, 1.1]));
    for interval in [
        [0.0, 1.0, 1.1],
        [0.9, f64::NAN, 1.1],
        [0.9, 1.0, f64::INFINITY],
        [1.1, 1.0, 0.9],
    ] {
        assert!(!is_usable(interval), "{interval:?}");
    }
}

proptest! {
    /// One step, at any place, among versions that may not run: it is named, or one of a few, with
    /// as many comparisons as a binary search.
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
        let NextStep::Found { low, high } = answer else {
            panic!("{answer:?}");
        };
        prop_assert!(low < step && step <= high);
        prop_assert!((low + 1..high).all(|at| levels[at].is_none()));
        if asked.skipped.is_empty() {
            prop_assert!(asked.probed.len() <= 1 + halvings(versions - 2), "{:?}", asked);
        }
    }

    /// Any search ends, and names a step if any.
    #[test]
    fn every_search_ends(
        levels in prop::collection::vec(prop::option::weighted(0.8, -0.5f64..0.5), 1..40),
        noise in 0.0f64..0.1,
        fixed: bool,
    ) {
        let mut levels = levels;
        levels[0] = Some(0.0);
        let towards = if fixed { Towards::Fixed } else { Towards::Bad };
        let (answer, asked) = Planted::new(&levels, noise, 7).search(towards);
        if let NextStep::Found { low, high } = answer {
            let shown = asked.compared[&(low, high)].map(|reading| reading.word);
            prop_assert_eq!(shown, Some(towards.word()));
        }
    }
}
