//! Checks a clock: it reads work of a known length and work that is longer by known shares, in
//! turns.

use std::hint;
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use rand::seq::SliceRandom;
use regatta_probe::clock::EMPTY_KERNEL_NS;
use regatta_probe::{CacheState, Cuda, StreamClock};

use super::machine;
use regatta_core::record::median;
use regatta_worker::units::{Nanoseconds, Ratio, Share};

/// Shares by which some of the work is longer than the nominal length.
pub const ADDED: [Share; 4] = [Share(0.01), Share(0.02), Share(0.05), Share(0.10)];

/// Sets in a round: two of the nominal length, whose difference is the clock's error, and one for
/// each of [`ADDED`].
const SETS: usize = 2 + ADDED.len();

/// Nominal lengths in nanoseconds, with rounds and samples a set. All together take some seconds.
const LENGTHS: [(u64, usize, usize); 9] = [
    (2_000, 12, 40),
    (5_000, 12, 40),
    (10_000, 12, 40),
    (20_000, 12, 40),
    (50_000, 12, 20),
    (100_000, 12, 20),
    (500_000, 12, 10),
    (2_000_000, 8, 5),
    (20_000_000, 6, 3),
];

/// Untimed repetitions of a length before its first round.
const WARMUP: usize = 5;

/// The readings of a round, by set.
type Round = [Vec<Nanoseconds>; SETS];

/// A clock's reading of one nominal length.
#[derive(Clone, Debug, PartialEq)]
pub struct ClockReading {
    /// The nominal length of the work.
    pub nominal: Nanoseconds,
    /// The median reading.
    pub read: Nanoseconds,
    /// The median reading less the nominal length and less the overhead of the work itself.
    pub bias: Nanoseconds,
    /// The smallest difference that can be seen, as a share of the nominal length: the largest
    /// difference over all rounds between two sets of the same work.
    pub visible: Share,
    /// The measured share for each of [`ADDED`]: the median over rounds of the difference of
    /// medians.
    pub added: [Share; ADDED.len()],
}

/// Checks the gated clock of the first GPU, with a cold cache as in most suites. Returns a
/// description of the clock, and its readings.
///
/// # Errors
/// No GPU is available, or the driver fails.
pub fn gpu() -> Result<(String, Vec<ClockReading>), regatta_probe::Error> {
    // SAFETY: the null stream always exists.
    let device = unsafe { Cuda::open(0, std::ptr::null_mut())? };
    let name = device.name()?;
    let mut clock = StreamClock::new(device)?;
    let cost = Nanoseconds(clock.calibrate()?);
    let readings = readings(&LENGTHS, Nanoseconds(EMPTY_KERNEL_NS), &mut |ns| {
        let sample = clock.sample(CacheState::Cold, |device| device.spin(ns))?;
        Ok::<Nanoseconds, regatta_probe::Error>(Nanoseconds(sample.device_ns))
    })?;
    let what = format!(
        "{name}: probe {}, which subtracts {cost}",
        regatta_probe::VERSION
    );
    Ok((what, readings))
}

/// Checks the clock of the processor. The work is a loop that polls the monotonic clock.
///
/// The loop ends by the same clock that reads it, so the error is due to interruptions, such as
/// other processes.
pub fn cpu() -> (String, Vec<ClockReading>) {
    let mut read = |ns| {
        let wanted = Duration::from_nanos(ns);
        let start = Instant::now();
        while start.elapsed() < wanted {
            hint::spin_loop();
        }
        Ok::<Nanoseconds, std::convert::Infallible>(start.elapsed().into())
    };
    let readings = match readings(&LENGTHS, Nanoseconds::ZERO, &mut read) {
        Ok(readings) => readings,
        Err(never) => match never {},
    };
    (
        format!("{}: monotonic clock", machine::cpu_model()),
        readings,
    )
}

/// Reads every length. A round has one sample of each set after the other, in a new random order
/// for each sample, so that drift affects all sets alike. A correct reading is the nominal length
/// plus `own`.
fn readings<E>(
    plan: &[(u64, usize, usize)],
    own: Nanoseconds,
    read: &mut impl FnMut(u64) -> Result<Nanoseconds, E>,
) -> Result<Vec<ClockReading>, E> {
    let mut order: [usize; SETS] = std::array::from_fn(|set| set);
    let mut draws = ChaCha8Rng::seed_from_u64(1);
    let mut readings = Vec::with_capacity(plan.len());
    for &(nominal, rounds, samples) in plan {
        for _ in 0..WARMUP {
            read(nominal)?;
        }
        let mut taken = vec![Round::default(); rounds];
        for sets in &mut taken {
            for _ in 0..samples {
                order.shuffle(&mut draws);
                for &set in &order {
                    sets[set].push(read(longer(nominal, set))?);
                }
            }
        }
        readings.extend(reading(Nanoseconds(nominal as f64), own, &taken));
    }
    Ok(readings)
}

/// The length of a set's work, in nanoseconds.
fn longer(nominal: u64, set: usize) -> u64 {
    let added = set
        .checked_sub(SETS - ADDED.len())
        .map_or(Share(0.0), |i| ADDED[i]);
    (nominal as f64 * Ratio::grown_by(added).0).round() as u64
}

/// The reading of one length from its rounds; `None` if a set is empty.
fn reading(nominal: Nanoseconds, own: Nanoseconds, rounds: &[Round]) -> Option<ClockReading> {
    let same = rounds
        .iter()
        .flat_map(|sets| sets[0].iter().chain(&sets[1]));
    let read = median(&same.copied().collect::<Vec<Nanoseconds>>())?;
    let of_round =
        |sets: &Round| -> Option<Vec<Nanoseconds>> { sets.iter().map(|set| median(set)).collect() };
    let rounds: Vec<Vec<Nanoseconds>> = rounds.iter().map(of_round).collect::<Option<_>>()?;
    let apart = rounds.iter().map(|sets| (sets[1] - sets[0]).abs());
    let mut added = [Share(0.0); ADDED.len()];
    for (number, share) in added.iter_mut().enumerate() {
        let more = rounds
            .iter()
            .map(|sets| sets[2 + number] - (sets[0] + sets[1]) / 2.0);
        *share = median(&more.collect::<Vec<Nanoseconds>>())?.share_of(nominal);
    }
    Some(ClockReading {
        nominal,
        read,
        bias: read - nominal - own,
        visible: apart
            .map(|difference| difference.share_of(nominal))
            .reduce(Share::max)?,
        added,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_is_read_in_turn_and_an_exact_clock_reads_it_as_it_is() {
        let mut asked = Vec::new();
        let mut read = |ns: u64| {
            asked.push(ns);
            Ok::<Nanoseconds, ()>(Nanoseconds(ns as f64 + 850.0))
        };
        let plan = [(1_000, 2, 3), (50_000, 1, 1)];
        let readings = readings(&plan, Nanoseconds(600.0), &mut read).unwrap();
        assert_eq!(asked.len(), 2 * WARMUP + 2 * 3 * SETS + SETS);
        assert_eq!(readings.len(), 2);
        assert_eq!(readings[0].read, Nanoseconds(1_850.0));
        assert_eq!(readings[0].bias, Nanoseconds(250.0));
        assert_eq!(readings[0].visible, Share(0.0));
        for (read, share) in readings[0].added.iter().zip(ADDED) {
            assert!((*read - share).abs() < Share(1e-9), "{read:?}");
        }
        // Each sample's turn has every length once, in any order.
        let mut turn = asked[WARMUP..WARMUP + SETS].to_vec();
        let next = &asked[WARMUP + SETS..WARMUP + 2 * SETS];
        assert_ne!(turn, next, "each sample has a new order");
        turn.sort_unstable();
        assert_eq!(turn, [1_000, 1_000, 1_010, 1_020, 1_050, 1_100]);
    }

    #[test]
    fn noise_decides_what_is_visible_and_a_failure_ends_it() {
        // Each set's median is off by its place: up to 300 ns between the two equal sets.
        let set = |off: f64| vec![Nanoseconds(10_000.0 + off); 3];
        let round = |off: f64| -> Round { std::array::from_fn(|at| set(off * at as f64)) };
        let rounds = [round(-300.0), round(20.0)];
        let reading = reading(Nanoseconds(10_000.0), Nanoseconds::ZERO, &rounds).unwrap();
        assert!((reading.visible.0 - 0.03).abs() < 1e-9, "{reading:?}");
        let mut lost = |_| Err("lost");
        assert_eq!(
            readings(&LENGTHS, Nanoseconds::ZERO, &mut lost),
            Err("lost")
        );
    }
}
