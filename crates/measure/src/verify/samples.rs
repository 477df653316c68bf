//! Whether samples are what was asked for, and such as a clock can give.

use regatta_core::record::side::is_time;
use regatta_worker::attention::{Dtype, Problem, work};
use regatta_worker::protocol::{Device, Measure, Measured};
use regatta_worker::units::{Nanoseconds, Rate};

/// The fastest clock that a device is believed, in MHz.
const FASTEST_MHZ: f64 = 1e5;

/// Holds a worker to what a sample was to be. One that was written before there were
/// graphs ignores the request, and its times would pass for those of replays.
///
/// # Errors
/// What it did in place of what it was asked for.
pub fn as_asked(asked: &Measure, measured: &Measured) -> Result<(), String> {
    if asked.graph != measured.graph {
        return Err(match asked.graph {
            true => "the worker does not replay CUDA graphs: its reply does not say `graph`; \
                     measure with graph = false"
                .to_owned(),
            false => "the worker replayed a CUDA graph that nobody asked for".to_owned(),
        });
    }
    Ok(())
}

/// Refuses samples that no clock can have given, and more or fewer than were asked for.
///
/// # Errors
/// What is wrong with them.
pub fn samples(
    problem: &Problem,
    device: &Device,
    asked: &Measure,
    measured: &Measured,
) -> Result<(), String> {
    let count = measured.device_ns.len();
    if count == 0 {
        return Err("the worker took no sample".to_owned());
    }
    let most = asked.samples.max(asked.min_samples) as usize;
    let least = asked.min_samples.min(asked.samples).max(1) as usize;
    if !(least..=most).contains(&count) {
        return Err(format!(
            "{count} samples; at least {least} and at most {most} were asked for"
        ));
    }
    for (name, there) in [
        ("host_ns", measured.host_ns.len()),
        ("host_reference_ns", measured.host_reference_ns.len()),
        ("cpu_ns", measured.cpu_ns.len()),
        ("preempted", measured.preempted.len()),
        ("clock_mhz", measured.clock_mhz.len()),
    ] {
        if there > 0 && there != count {
            return Err(format!("{count} device times but {there} of {name}"));
        }
    }
    let all = measured.device_ns.iter().chain(&measured.host_ns);
    let all = all.chain(&measured.host_reference_ns);
    let all = all.chain(&measured.cpu_ns);
    if let Some(bad) = all.into_iter().find(|time| !is_time(**time)) {
        return Err(format!("a sample of {} ns", bad.0));
    }
    let mut clocks = measured.clock_mhz.iter();
    if let Some(bad) = clocks.find(|mhz| !(**mhz > 0.0 && **mhz <= FASTEST_MHZ)) {
        return Err(format!("a clock of {bad} MHz"));
    }
    if let Some(objection) = measured
        .peak_bytes
        .and_then(|of| of.objection("peak_bytes"))
    {
        return Err(objection);
    }
    let fastest = measured.device_ns.iter().copied();
    let fastest = fastest.fold(Nanoseconds(f64::MAX), Nanoseconds::min);
    if let Some(peak) = peak(device, problem.dtype) {
        let rate = Rate::of_work(work::flops(problem), fastest);
        if rate > peak {
            return Err(format!(
                "a sample of {:.0} ns would be {:.0} TFLOP/s, above the {:.0} TFLOP/s \
                 {} can do: the clock or the kernel is wrong",
                fastest.0, rate.0, peak.0, device.name
            ));
        }
    }
    Ok(())
}

/// Dense peak of a known device, from the vendors' data sheets; for
/// float32 that of its TF32 units, which a kernel may use.
fn peak(device: &Device, dtype: Dtype) -> Option<Rate> {
    // (part of the name, TF32, 16 bit), TFLOP/s without sparsity
    const PEAKS: [(&str, f64, f64); 6] = [
        ("H200", 495.0, 989.0),
        ("H100", 495.0, 989.0),
        ("A100", 156.0, 312.0),
        ("L40", 183.0, 366.0),
        ("B200", 1125.0, 2250.0),
        ("B100", 900.0, 1800.0),
    ];
    let known = PEAKS.iter().find(|(name, ..)| device.name.contains(name));
    let (_, tf32, half) = known?;
    Some(Rate(if dtype == Dtype::F32 { *tf32 } else { *half }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use regatta_worker::protocol::Cache;
    use regatta_worker::units::{Bytes, quantities};

    /// A plain request for so many samples.
    fn asked(samples: u32, min_samples: u32) -> Measure {
        Measure {
            warmup: 0,
            samples,
            min_samples,
            budget_ms: 1,
            cache: Cache::Hot,
            graph: false,
        }
    }

    fn device(name: &str) -> Device {
        crate::testing::hello("cuda", name, &[]).device
    }

    #[test]
    fn samples_above_the_peak_and_memory_that_no_machine_has_are_refused() {
        let mut problem = Problem::new(8192, 128);
        (problem.heads, problem.kv_heads, problem.dtype) = (16, 16, Dtype::Bf16);
        let held = |name: &str, ns: f64, bytes: u64| {
            let measured = Measured {
                device_ns: vec![Nanoseconds(ns)],
                peak_bytes: Some(Bytes(bytes)),
                ..Measured::default()
            };
            samples(&problem, &device(name), &asked(1, 1), &measured)
        };
        // 0.55 TFLOP in 0.1 ms: 5,500 TFLOP/s.
        let error = held("NVIDIA H200", 1e5, 1 << 37).unwrap_err();
        assert!(error.contains("above the 989 TFLOP/s"), "{error}");
        assert_eq!(held("NVIDIA H200", 1e6, 1 << 37), Ok(()));
        assert_eq!(held("abacus", 1e5, 1 << 37), Ok(()));
        let error = held("abacus", 1e6, 1 << 63).unwrap_err();
        assert!(
            error.starts_with("peak_bytes is 9223372036854775808"),
            "{error}"
        );
    }

    #[test]
    fn a_worker_that_ignores_the_kind_of_sample_is_found_out() {
        let asked = |graph| Measure {
            graph,
            ..asked(1, 1)
        };
        let plain = Measured::default();
        assert_eq!(as_asked(&asked(false), &plain), Ok(()));
        let error = as_asked(&asked(true), &plain).unwrap_err();
        assert!(error.contains("does not replay CUDA graphs"), "{error}");
        let replayed = Measured {
            graph: true,
            ..Measured::default()
        };
        assert_eq!(as_asked(&asked(true), &replayed), Ok(()));
        assert!(as_asked(&asked(false), &replayed).is_err());
    }

    #[test]
    fn samples_that_no_clock_gives_are_refused() {
        let problem = Problem::new(16, 16);
        let with = |device_ns: &[f64], host_ns: &[f64], clock_mhz: &[f64]| Measured {
            device_ns: quantities(device_ns.iter().copied()),
            host_ns: quantities(host_ns.iter().copied()),
            clock_mhz: clock_mhz.to_vec(),
            ..Measured::default()
        };
        let pair = [1e9, 2e9];
        for (measured, says) in [
            (with(&[], &[], &[]), "no sample"),
            (with(&[0.0, 1e9], &[], &[]), "of 0 ns"),
            (with(&[f64::NAN, 1e9], &[], &[]), "NaN ns"),
            (with(&[1e300, 1e9], &[], &[]), "000 ns"),
            (with(&pair, &[1.0], &[]), "1 of host_ns"),
            (with(&pair, &[1.0, 0.0], &[]), "of 0 ns"),
            (with(&pair, &[1.0, f64::NAN], &[]), "NaN ns"),
            (with(&pair, &[], &[-1980.0, 1980.0]), "-1980 MHz"),
            (with(&pair, &[], &[0.0, 1980.0]), "of 0 MHz"),
            (with(&pair, &[], &[1980.0, 1e308]), "MHz"),
            (with(&pair, &[], &[1980.0]), "1 of clock_mhz"),
        ] {
            let error = samples(&problem, &device("x"), &asked(2, 2), &measured).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
        let plain = with(&pair, &[1.0, 2.0], &[1980.0, 210.0]);
        let held = samples(&problem, &device("x"), &asked(2, 2), &plain);
        assert_eq!(held, Ok(()));
    }

    #[test]
    fn more_or_fewer_samples_than_asked_for_are_refused() {
        let problem = Problem::new(16, 16);
        let taken = |count: usize| Measured {
            device_ns: vec![Nanoseconds(1e9); count],
            ..Measured::default()
        };
        let held = |count, samples_, min| {
            samples(&problem, &device("x"), &asked(samples_, min), &taken(count))
        };
        for (count, fine) in [(2, false), (3, true), (20, true), (21, false), (500, false)] {
            assert_eq!(held(count, 20, 3).is_ok(), fine, "{count}");
        }
        // A suite that asks for fewer than it needs at the least.
        assert!(held(1, 1, 5).is_ok());
        assert!(held(5, 1, 5).is_ok());
    }
}
