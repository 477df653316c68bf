//! Takes the ruler's readings: work of known length, longer by known shares, in turns.

use std::hint;
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use regatta_probe::host_cost::{HostCost, Metered, Step, host_cost};
use regatta_probe::sample::EMPTY_KERNEL_NS;
use regatta_probe::{Cache, Clock, Cuda, Device, Settings};

use super::machine;
use crate::record::ruler::{ADDED, Host, Length, Readings, SETS, Subtracted};
use crate::units::{Nanoseconds, Ratio, Share};

/// Nominal lengths in nanoseconds, with rounds and samples a set: some seconds in all.
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

/// Untimed work of a length before its first round.
const WARMUP: usize = 5;

/// Samples behind the cost of the host.
const HOST_SAMPLES: usize = 300;

/// Readings of the first GPU by the gated clock, cache cold as in most suites.
///
/// # Errors
/// No GPU, or a driver that fails.
pub fn gpu() -> Result<Readings, regatta_probe::Error> {
    // SAFETY: the null stream is always there.
    let device = unsafe { Cuda::open(0, std::ptr::null_mut())? };
    let (name, step) = (device.name()?, device.timer_step_ns()?);
    let mut clock = Clock::new(device, Settings::default())?;
    let found = clock.calibrate()?;
    let lengths = lengths(&LENGTHS, &mut |ns| {
        let sample = clock.sample(Cache::Cold, |device| device.spin(ns))?;
        Ok::<Nanoseconds, regatta_probe::Error>(Nanoseconds(sample.device_ns))
    })?;
    drop(clock);
    // SAFETY: as above.
    let device = unsafe { Cuda::open(0, std::ptr::null_mut())? };
    let mut clock = Clock::new(Metered::new(device), Settings::default())?;
    Ok(Readings {
        device: name,
        clock: format!("probe {}", regatta_probe::VERSION),
        timer: "%globaltimer".to_owned(),
        timer_step_ns: Some(Nanoseconds(step as f64)),
        own_ns: Nanoseconds(EMPTY_KERNEL_NS),
        subtracted: Some(Subtracted {
            pair_ns: Nanoseconds(found.pair_ns),
            launch_ns: Nanoseconds(found.cost_ns - found.pair_ns),
        }),
        host: Some(host(&mut clock)?),
        lengths,
    })
}

/// What a sample costs the host, once it is warm.
fn host<D: Device>(clock: &mut Clock<Metered<D>>) -> Result<Host, regatta_probe::Error> {
    host_cost(clock, Cache::Cold, HOST_SAMPLES / 10)?;
    let HostCost {
        total_ns,
        beside_ns,
        steps_ns,
        ..
    } = host_cost(clock, Cache::Cold, HOST_SAMPLES)?;
    let names = Step::ALL.map(|step| step.name().to_owned());
    Ok(Host {
        total_ns: Nanoseconds(total_ns),
        beside_ns: Nanoseconds(beside_ns),
        steps: names.into_iter().zip(steps_ns.map(Nanoseconds)).collect(),
    })
}

/// Readings of the processor, whose work is a loop that looks at the monotonic clock.
///
/// The clock that reads is the one that is looked at: what is seen is what comes between,
/// such as other processes.
pub fn cpu() -> Readings {
    let mut read = |ns| {
        let wanted = Duration::from_nanos(ns);
        let start = Instant::now();
        spin(wanted);
        Ok::<Nanoseconds, std::convert::Infallible>(start.elapsed().into())
    };
    let lengths = match lengths(&LENGTHS, &mut read) {
        Ok(lengths) => lengths,
        Err(never) => match never {},
    };
    Readings {
        device: machine::cpu_model(),
        clock: "monotonic clock".to_owned(),
        timer: "monotonic clock".to_owned(),
        timer_step_ns: monotonic_step(),
        own_ns: Nanoseconds::ZERO,
        subtracted: None,
        host: None,
        lengths,
    }
}

fn spin(wanted: Duration) {
    let start = Instant::now();
    while start.elapsed() < wanted {
        hint::spin_loop();
    }
}

/// Smallest difference between two looks at the monotonic clock that see a difference.
fn monotonic_step() -> Option<Nanoseconds> {
    let looks: Vec<Instant> = (0..4096).map(|_| Instant::now()).collect();
    let steps = looks.windows(2).map(|pair| pair[1] - pair[0]);
    let steps = steps.filter(|step| !step.is_zero());
    steps.min().map(Nanoseconds::from)
}

/// Reads every length: in each round, every set in turn, in an order drawn anew for each
/// sample, so that whatever drifts hits all sets alike.
fn lengths<E>(
    plan: &[(u64, usize, usize)],
    read: &mut impl FnMut(u64) -> Result<Nanoseconds, E>,
) -> Result<Vec<Length>, E> {
    let mut order: [usize; SETS] = std::array::from_fn(|set| set);
    let mut draws = ChaCha8Rng::seed_from_u64(1);
    let mut found = Vec::with_capacity(plan.len());
    for &(nominal, rounds, samples) in plan {
        for _ in 0..WARMUP {
            read(nominal)?;
        }
        let mut length = Length {
            nominal_ns: Nanoseconds(nominal as f64),
            rounds: Vec::with_capacity(rounds),
        };
        for _ in 0..rounds {
            let mut sets: [Vec<Nanoseconds>; SETS] = Default::default();
            for _ in 0..samples {
                order.shuffle(&mut draws);
                for &set in &order {
                    sets[set].push(read(longer(nominal, set))?);
                }
            }
            length.rounds.push(sets);
        }
        found.push(length);
    }
    Ok(found)
}

/// The length of a set's work.
fn longer(nominal: u64, set: usize) -> u64 {
    let added = set
        .checked_sub(SETS - ADDED.len())
        .map_or(Share(0.0), |i| ADDED[i]);
    (nominal as f64 * Ratio::grown_by(added).0).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_is_read_in_turn_and_of_its_length() {
        let mut asked = Vec::new();
        let mut read = |ns: u64| {
            asked.push(ns);
            Ok::<Nanoseconds, ()>(Nanoseconds(ns as f64 + 600.0))
        };
        let found = lengths(&[(1_000, 2, 3), (50_000, 1, 1)], &mut read).unwrap();
        assert_eq!(asked.len(), 2 * WARMUP + 2 * 3 * SETS + SETS);
        let [first, second] = &found[..] else {
            panic!("two lengths");
        };
        assert_eq!((first.rounds.len(), second.rounds.len()), (2, 1));
        for sets in &first.rounds {
            let read: Vec<f64> = sets.iter().map(|set| set[2].0).collect();
            assert_eq!(read, [1_600.0, 1_600.0, 1_610.0, 1_620.0, 1_650.0, 1_700.0]);
        }
        // Each sample's turn holds every length once, whatever the order.
        let mut turn = asked[WARMUP..WARMUP + SETS].to_vec();
        let next = &asked[WARMUP + SETS..WARMUP + 2 * SETS];
        assert_ne!(turn, next, "the order is drawn anew");
        turn.sort_unstable();
        assert_eq!(turn, [1_000, 1_000, 1_010, 1_020, 1_050, 1_100]);
    }

    #[test]
    fn a_failure_ends_it() {
        let mut left = 9;
        let mut read = |_| {
            left -= 1;
            if left == 0 {
                Err("lost")
            } else {
                Ok(Nanoseconds(1.0))
            }
        };
        assert_eq!(lengths(&LENGTHS, &mut read), Err("lost"));
    }

    #[test]
    fn work_on_the_processor_is_never_shorter_than_asked() {
        let start = Instant::now();
        spin(Duration::from_micros(50));
        assert!(start.elapsed() >= Duration::from_micros(50));
        assert!(monotonic_step().is_some_and(|step| step > Nanoseconds::ZERO));
    }
}
