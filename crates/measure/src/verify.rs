//! Checks whether a worker's answers are credible, before they are used.

mod expected;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use self::expected::{ReferenceCache, ReferenceLookup};
use regatta_core::record::{Fault, is_time, sound};
use regatta_worker::case::Dtype;
use regatta_worker::operator::{Native, Operators, Problem};
use regatta_worker::protocol::{
    Checked, Device, DeviceKind, Measure, Measured, PROBES, Prepared, VariantInfo,
};
use regatta_worker::tolerance::{limit, probes_agree, tolerable};
use regatta_worker::units::{Nanoseconds, Rate};

/// The reason for which a case is not timed, or its times are not kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Rejected {
    /// The fault of the answer.
    pub fault: Fault,
    /// The reason as a sentence.
    pub reason: String,
}

impl Rejected {
    /// An answer that cannot be used, whether or not the result is right.
    pub fn unusable(reason: impl Into<String>) -> Rejected {
        Rejected {
            fault: Fault::Other,
            reason: reason.into(),
        }
    }
}

/// Checks results against float64. Keeps the reference values of each problem.
#[derive(Default)]
pub struct Verifier {
    references: ReferenceCache,
}

/// The request that a result answers.
#[derive(Clone, Copy, Debug)]
pub struct AskedResult {
    /// The seed of the first set of inputs.
    pub seed: u64,
    /// The seed from which the probed elements were to be drawn.
    pub draw: Option<u64>,
    /// The number of sets of inputs. Their seeds follow `seed`.
    pub input_sets: u32,
    /// True if the worker checks the result of its last call, as workers do whose calls the harness
    /// times.
    pub checks_after: bool,
    /// True if a call covers several problems. The last call may then belong to another one than
    /// the case's.
    pub several: bool,
}

impl Verifier {
    /// Compares a worker's first results with the tolerances, and their probes with the harness's
    /// own float64 result if the problem is small enough.
    ///
    /// # Errors
    /// A fault in the result or in the reply, or a check that could not be made.
    pub fn check(
        &mut self,
        problem: &Native,
        asked: AskedResult,
        variant: &VariantInfo,
        prepared: &Prepared,
    ) -> Result<BTreeMap<String, f64>, Rejected> {
        first_call(asked, prepared)?;
        let checked = Checked {
            seed: asked.seed,
            draw: prepared.draw,
            errors: prepared.errors.clone(),
            probes: prepared.probes.clone(),
            ..Checked::default()
        };
        let formula = format!("; {}", problem.formula());
        let words = ("wrong result", &*formula);
        self.check_claim(problem, variant, &checked, words, false)
    }

    /// Compares the results of the last timed call in the same way. Returns an empty map if the
    /// worker, asked for several sets of inputs, checks only before timing.
    ///
    /// # Errors
    /// As [`check`](Verifier::check).
    pub fn check_after(
        &mut self,
        problem: &Native,
        asked: AskedResult,
        variant: &VariantInfo,
        measured: &Measured,
    ) -> Result<BTreeMap<String, f64>, Rejected> {
        let Some(checked) = last_call(asked, measured)? else {
            return Ok(BTreeMap::new());
        };
        let of_call = checked.call.map(|call| format!(", in timed call {call}"));
        let of_call = of_call.unwrap_or_default();
        let wrong = format!("wrong result after timing{of_call}");
        // The last call may have had other lengths than the problem's.
        self.check_claim(problem, variant, checked, (&wrong, ""), asked.several)
    }

    /// Compares a result with the tolerances. Messages about a wrong result begin with `words`, and
    /// end with `hint` if the code may compute another formula. If `may_lack_probes`, the worker's
    /// own check suffices if it sent no probes.
    fn check_claim(
        &mut self,
        problem: &Native,
        variant: &VariantInfo,
        claim: &Checked,
        (words, hint): (&str, &str),
        may_lack_probes: bool,
    ) -> Result<BTreeMap<String, f64>, Rejected> {
        let wrong = |reason: String| Rejected {
            fault: Fault::WrongResult,
            reason: format!("{words}{reason}"),
        };
        let tf32 = variant.tf32 && problem.dtype == Dtype::F32;
        let mut errors = BTreeMap::new();
        for &(tensor, direction) in problem.results() {
            let error = claim
                .errors
                .get(tensor)
                .ok_or_else(|| wrong(format!(": the worker reports no error for {tensor}")))?;
            let figures = [error.relative_l2, error.max_abs];
            if let Some(figure) = figures.into_iter().flatten().find(|figure| *figure < 0.0) {
                return Err(Rejected::unusable(format!(
                    "the worker reports an error of {figure} for {tensor}, which none can be"
                )));
            }
            tolerable(problem.dtype, tf32, direction, error.relative_l2).map_err(|reason| {
                let hint = match error.relative_l2 {
                    Some(error) if error > OTHER_FORMULA => hint,
                    _ => "",
                };
                wrong(format!(": {tensor}: {reason}{hint}"))
            })?;
            errors.insert(tensor.to_owned(), error.relative_l2.unwrap_or(f64::NAN));
            if may_lack_probes && claim.probes.is_empty() {
                continue;
            }
            let probes = claim.probes.get(tensor).map_or(&[][..], Vec::as_slice);
            if probes.len() != PROBES {
                return Err(wrong(format!(
                    ": {} probes of {tensor}, {PROBES} are asked for",
                    probes.len()
                )));
            }
            // Independent of the worker's own check, and of the size of the problem.
            if probes.contains(&None) {
                return Err(wrong(format!(
                    ", found by regatta's own check: {tensor} has elements that are not finite \
                     or were never written"
                )));
            }
        }
        if may_lack_probes && claim.probes.is_empty() {
            return Ok(errors);
        }
        let expected = match self.references.find(problem, claim.seed, claim.draw) {
            ReferenceLookup::Computed(expected) => expected,
            ReferenceLookup::NotComputedHere => return Ok(errors),
            ReferenceLookup::TooLarge(error) => {
                return Err(Rejected {
                    fault: Fault::Unchecked,
                    reason: format!("the harness could not check the result: {error}"),
                });
            }
        };
        for &(tensor, direction) in problem.results() {
            let limit = limit(problem.dtype, tf32, direction);
            probes_agree(tensor, &claim.probes[tensor], &expected[tensor], limit).map_err(
                |reason| wrong(format!(", found by regatta's own float64 check: {reason}")),
            )?;
        }
        Ok(errors)
    }
}

/// Checks that a first call answers the request, whatever its result.
///
/// # Errors
/// The part of the reply that is impossible.
pub fn first_call(asked: AskedResult, prepared: &Prepared) -> Result<(), Rejected> {
    drawn_as_asked(asked.draw, prepared.draw)?;
    if !is_time(prepared.first_call_ns) {
        let took = prepared.first_call_ns.0;
        let why = "the clock is wrong, or the code under test has changed it";
        return Err(Rejected::unusable(format!(
            "a first call of {took} ns: {why}"
        )));
    }
    if prepared.problems == 0 {
        let says = "the worker reports 0 problems a call";
        return Err(Rejected::unusable(says));
    }
    Ok(())
}

/// The check of the last timed call, whose inputs must be the requested ones. `None` if the worker
/// checks only before timing.
///
/// # Errors
/// The inputs that the call had in their place.
pub fn last_call(asked: AskedResult, measured: &Measured) -> Result<Option<&Checked>, Rejected> {
    let one = measured.input_sets == 1;
    if measured.input_sets == 0 {
        let says = "the worker says that it took its samples on 0 sets of inputs";
        return Err(Rejected::unusable(says));
    }
    let sets = asked.input_sets;
    let Some(checked) = &measured.checked else {
        if sets > 1 && asked.checks_after {
            return Err(Rejected::unusable(
                "the reply to `measure` has no `checked`, and `hello` has `repeats`: such a worker \
                 checks its last call. The code under test may have taken it out",
            ));
        }
        return Ok(None);
    };
    if sets > 1 && one && measured.input_sets_reason.is_none() {
        return Err(Rejected::unusable(format!(
            "{sets} sets of inputs were asked for; the worker had one, and does not say why"
        )));
    }
    let wanted = asked.seed.wrapping_add(u64::from(!one));
    if checked.seed != wanted {
        return Err(Rejected::unusable(format!(
            "the worker checked its last call on the inputs of seed {}; they were to be those of \
             seed {wanted}",
            checked.seed
        )));
    }
    drawn_as_asked(asked.draw, checked.draw)?;
    Ok(Some(checked))
}

/// The relative L2 error above which code may compute another formula.
const OTHER_FORMULA: f64 = 0.3;

/// Refuses probes that were drawn from another seed than requested. A worker that draws none has
/// probes at fixed places.
fn drawn_as_asked(asked: Option<u64>, found: Option<u64>) -> Result<(), Rejected> {
    if found.is_none() || found == asked {
        return Ok(());
    }
    let word = |draw: Option<u64>| draw.map_or("none".to_owned(), |draw| draw.to_string());
    Err(Rejected::unusable(format!(
        "the worker drew its probes from {}; `draw` was {}",
        word(found),
        word(asked)
    )))
}

/// The highest clock rate of a device that is believed, in MHz.
const FASTEST_MHZ: f64 = 1e5;

/// Checks that samples were taken as requested. A worker from before graphs ignores that request,
/// and its times would pass for those of replays.
///
/// # Errors
/// The difference between reply and request.
pub fn as_asked(asked: &Measure, measured: &Measured) -> Result<(), String> {
    if asked.graph != measured.graph {
        return Err(if asked.graph {
            "the worker does not replay CUDA graphs: its reply does not say `graph`; \
                     measure with graph = false"
                .to_owned()
        } else {
            "the worker replayed a CUDA graph without being asked to".to_owned()
        });
    }
    Ok(())
}

/// Refuses samples that no clock can have given, and a number of samples that was not requested.
///
/// # Errors
/// The fault in the samples.
pub fn samples(
    cost: &Cost,
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
    if let Some(objection) = measured.uneven() {
        return Err(objection);
    }
    let times = measured.times().into_iter();
    let mut times = times.flat_map(|(_, list)| list);
    if let Some(bad) = times.find(|time| !is_time(**time)) {
        return Err(format!("a sample of {} ns: {REMEDY}", bad.0));
    }
    let mut waits = measured.waited_ns.iter();
    if let Some(bad) = waits.find(|time| !(0.0..1e23).contains(&time.0)) {
        return Err(format!("a wait for a core of {} ns", bad.0));
    }
    let mut clocks = measured.clock_mhz.iter();
    if let Some(bad) = clocks.find(|mhz| !(**mhz > 0.0 && **mhz <= FASTEST_MHZ)) {
        return Err(format!("a clock of {bad} MHz"));
    }
    let peak = measured.peak_bytes;
    let memory = peak.and_then(|bytes| bytes.objection("peak_bytes"));
    if let Some(objection) = memory.or_else(|| sound::growth(measured.growth_bytes_per_call)) {
        return Err(objection);
    }
    let fastest = measured.device_ns.iter().copied();
    let fastest = fastest.fold(Nanoseconds(f64::MAX), Nanoseconds::min);
    possible(cost, device, fastest)
}

/// The fix for a call whose time is impossible, in messages.
const REMEDY: &str = "the clock or the kernel is wrong. Each call has to compute, on the current \
                      stream, and to end with its results: it must not return those of an earlier \
                      call, leave work to a thread, or give a result that is computed when it is \
                      read";

/// The least work of a call, as far as its operator declares it.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    dtype: Dtype,
    flops: Option<f64>,
    bytes: Option<f64>,
}

impl Cost {
    /// The cost of a problem.
    pub fn new(problem: &Problem, operators: &Operators) -> Cost {
        Cost {
            dtype: problem.dtype(),
            flops: problem.flops(operators),
            bytes: problem.bytes(operators),
        }
    }
}

/// Refuses a time in which no device can do the problem's arithmetic or move its tensors.
fn possible(cost: &Cost, device: &Device, fastest: Nanoseconds) -> Result<(), String> {
    if fastest < SHORTEST {
        return Err(format!("a sample of {fastest}: {REMEDY}"));
    }
    let (rate, gbps) = limits(device, cost.dtype);
    let asked = Rate::of_work(cost.flops.unwrap_or_default(), fastest);
    if let Some(rate) = rate.filter(|rate| asked > *rate) {
        return Err(format!(
            "a sample of {fastest} would be {asked}FLOP/s, above the {rate}FLOP/s {} can do: \
             {REMEDY}",
            device.name
        ));
    }
    // Bytes in a nanosecond equal GB in a second.
    let moved = cost.bytes.unwrap_or_default() / fastest.0;
    if let Some(most) = gbps.filter(|most| moved > *most) {
        return Err(format!(
            "a sample of {fastest} would move {moved:.0} GB/s, above the {most:.0} GB/s {} can \
             do: {REMEDY}",
            device.name
        ));
    }
    Ok(())
}

/// The shortest time of a call that reads its arguments, on any device: a few cycles.
const SHORTEST: Nanoseconds = Nanoseconds(1.0);

/// Upper bounds of a device, if known: its arithmetic, and its GB/s from the closest memory or
/// cache.
fn limits(device: &Device, dtype: Dtype) -> (Option<Rate>, Option<f64>) {
    if device.known_kind() != Some(DeviceKind::Cpu) {
        return (peak(device, dtype), None);
    }
    let cores = device.facts.get("cores");
    let cores = cores.and_then(|cores| cores.parse::<f64>().ok());
    let cores = cores.unwrap_or(1024.0);
    // Bounds for each core, above what any core does. In TFLOP/s: AMX at 4 GHz reaches 8 in
    // bfloat16, and three such products make one of float32. A first-level cache delivers 128 bytes
    // a cycle.
    let tflops = match dtype {
        Dtype::F32 => 3.0,
        Dtype::F16 | Dtype::Bf16 => 10.0,
    };
    (Some(Rate(tflops * cores)), Some(1_000.0 * cores))
}

/// Dense peak of a known device from the vendors' data sheets. For float32 it is the peak of the
/// TF32 units, which a kernel may use.
fn peak(device: &Device, dtype: Dtype) -> Option<Rate> {
    // Part of the name, TF32 and 16-bit peaks in TFLOP/s without sparsity.
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
