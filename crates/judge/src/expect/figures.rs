//! Limits on figures of a call's structure, and on builds.

use std::collections::BTreeMap;

use super::ExpectedCase;
use crate::complete::unmeasured;
use crate::judgement::ExpectationResult;
use crate::structure::{self, multiprocessors};
use regatta_core::machine::{CENSUS, Launch, Structure, moves_data, normalised, short};
use regatta_core::record::{Built, CaseRecord, Outcome, RunHeader};
use regatta_core::suite::{Expectation, Quantity, matches_name};
use regatta_worker::case::CaseId;

/// Compares each case that a limit selects, or each build, with the limit.
pub(super) fn results(
    rule: &Expectation,
    cases: &[ExpectedCase],
    header: &RunHeader,
) -> Vec<ExpectationResult> {
    if rule.metric.is_of_build() {
        return on_builds(rule, &header.built);
    }
    let optional = &header.rules.policy.optional;
    let selected = cases.iter().filter(|case| rule.case.matches(&case.case));
    let (excused, held): (Vec<_>, Vec<_>) = selected.partition(|case| case.is_excused(optional));
    let excused: Vec<&CaseId> = excused.iter().map(|case| case.id).collect();
    let results = held.iter().map(|case| {
        let sms = multiprocessors(header, case.id);
        let (value, reason) = match figure(rule, case.record, sms) {
            Ok((value, of)) => (Some(value), of),
            Err(reason) => (None, Some(reason)),
        };
        ExpectationResult::of_figure(rule, Some(case.id), value, reason)
    });
    let mut results: Vec<ExpectationResult> = results.collect();
    if let Some((word, reason)) = unmeasured(&excused, optional).filter(|_| held.is_empty()) {
        let result = ExpectationResult {
            word,
            reason: Some(reason),
            ..ExpectationResult::missing(rule, Some(excused[0]))
        };
        results.push(result.missing_at(&rule.origin));
    }
    results
}

/// The value of a limit's figure, and the launch or events that it was read from.
fn figure(
    rule: &Expectation,
    record: &CaseRecord,
    sms: Option<u32>,
) -> Result<(f64, Option<String>), String> {
    let structure = record.structure.as_ref().filter(|s| !s.is_empty());
    let Some(structure) = structure else {
        let structure = record.structure.as_ref();
        let why = structure.and_then(|structure| structure.why_uncounted(CENSUS));
        return Err(match &record.status {
            Outcome::Measured(()) => why.unwrap_or("its worker counts no structure").to_owned(),
            Outcome::Failed { reason, .. } | Outcome::Missing { reason } => {
                format!("not measured: {reason}")
            }
            Outcome::Unsupported { reason } => reason.clone(),
        });
    };
    let counted = |value: u64| (value as f64, None);
    match &rule.metric {
        Quantity::Launches if structure.launches.is_empty() => {
            let why = structure.why_uncounted("launches");
            Err(why.unwrap_or("its worker tells no launches").to_owned())
        }
        Quantity::Launches => {
            let of_kernel = |launch: &&Launch| {
                let pattern = rule.kernel.as_ref();
                pattern.is_none_or(|pattern| matches_name(pattern, &normalised(&launch.name)))
            };
            let number = structure.launches.iter().filter(of_kernel).count();
            Ok(counted(number as u64))
        }
        Quantity::Copies => match copies(structure) {
            Some(copies) => Ok(counted(copies)),
            None => Err("its worker does not count copies".to_owned()),
        },
        Quantity::Count(name) => match figure_of(record, name) {
            Some(value) => Ok((value, events(record, name, value as u64))),
            None => Err(match structure.why_uncounted(name) {
                Some(reason) => format!("{name} could not be counted: {reason}"),
                None => format!("its worker does not count {name}"),
            }),
        },
        Quantity::BuildSeconds | Quantity::Metric(_) => {
            Err("it is not a per-call metric".to_owned())
        }
        Quantity::Blocks => {
            let launch = largest(rule, structure)?;
            Ok((launch.blocks() as f64, Some(grid_of(launch))))
        }
        Quantity::SmFill => {
            let launch = largest(rule, structure)?;
            let sms = sms.ok_or("its device does not tell its multiprocessors")?;
            let busy = launch.sms_used(sms);
            let grid = format!("{}, {busy} of {sms} SMs", grid_of(launch));
            Ok((busy as f64 / f64::from(sms), Some(grid)))
        }
    }
}

/// A count that the worker reports, or a figure of the device's activity in a call.
fn figure_of(record: &CaseRecord, name: &str) -> Option<f64> {
    let activity = || record.activity.as_ref()?.figure(name);
    let counted = structure::count(record, name).map(|count| count as f64);
    counted.or_else(activity)
}

/// The host's time in the events of a count, so that a violated limit is reported with its cost on
/// the first run.
fn events(record: &CaseRecord, count: &str, number: u64) -> Option<String> {
    let name = count.strip_prefix("calls.")?;
    (number > 0).then(|| structure::events(record, name, number))
}

/// The number of copies that the worker counts, or else that of kernels that move data, if it
/// reports launches.
fn copies(structure: &Structure) -> Option<u64> {
    let moving = || structure.launches.iter().filter(|l| moves_data(&l.name));
    let counted = structure.counts.get("copies").copied();
    let launched = (!structure.launches.is_empty()).then(|| moving().count() as u64);
    counted.or(launched)
}

/// The launch with the most blocks among the kernels that a limit selects.
fn largest<'a>(rule: &Expectation, structure: &'a Structure) -> Result<&'a Launch, String> {
    let speaks_of = |launch: &&Launch| match &rule.kernel {
        Some(pattern) => matches_name(pattern, &normalised(&launch.name)),
        None => !moves_data(&launch.name),
    };
    let launches = structure.launches.iter().filter(speaks_of);
    launches
        .max_by_key(|launch| launch.blocks())
        .ok_or_else(|| match &rule.kernel {
            Some(pattern) => format!("no kernel it launches matches {pattern}"),
            None => "it launches no kernel that computes".to_owned(),
        })
}

fn grid_of(launch: &Launch) -> String {
    let [x, y, z] = launch.grid;
    format!("grid {x}x{y}x{z} of {}", short(&normalised(&launch.name)))
}

/// Compares each build with a limit on builds. Without a known build, the result is missing.
pub fn on_builds(rule: &Expectation, built: &BTreeMap<String, Built>) -> Vec<ExpectationResult> {
    if built.is_empty() {
        let unknown = "no build of what is there is known: `regatta build SUITE` measures that of \
                       a suite, by its `makes`, `regatta env make NAME` what an environment compiles";
        let unknown = Some(unknown.to_owned());
        return vec![ExpectationResult::of_figure(rule, None, None, unknown)];
    }
    let results = built.iter().map(|(what, built)| ExpectationResult {
        built: Some(what.clone()),
        ..ExpectationResult::of_figure(rule, None, Some(built.wall_ns.seconds()), None)
    });
    results.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expect::expectations;
    use crate::judgement::Word;
    use crate::testing::{failed, side, timed, unsupported, written};
    use regatta_core::record::Fault;
    use regatta_core::suite::{Origin, Selector};
    use regatta_worker::units::Nanoseconds;

    fn limit(figure: &str, at_least: Option<f64>, at_most: Option<f64>) -> Expectation {
        Expectation {
            name: "n".to_owned(),
            case: Selector([("worker".to_owned(), vec!["cpu".to_owned()])].into()),
            against: None,
            metric: figure.to_owned().into(),
            kernel: None,
            at_least,
            at_most,
            origin: Origin("s.toml:6: expect[0]".to_owned()),
        }
    }

    fn results(limit: Expectation, record: CaseRecord) -> Vec<ExpectationResult> {
        let mut side = side("head", vec![("cpu/flash:s64,d64", record)]);
        let sms = ("cpu.sms".to_owned(), "132".to_owned());
        side.header.machine.hard.extend([sms]);
        side.header.rules.expectations = vec![limit];
        expectations(&side).results
    }

    fn measured() -> CaseRecord {
        let counted = "elementwise_kernel@4000 reduce_kernel@600 flash_bwd<64>@33 +overlap=0.04 \
                       calls.backend_selections=8 ns.backend_selections=660100 calls.plans=1 \
                       calls.triton_autotune=0";
        let mut record = written(counted);
        let hidden = (
            "calls.hidden".to_owned(),
            "te:select is not there".to_owned(),
        );
        record.structure.as_mut().unwrap().uncounted = [hidden].into();
        record.activity.as_mut().unwrap().time.copying_ns = None;
        record
    }

    /// A limit on events names the host's time in them; a time is not an event.
    #[test]
    fn figures_are_held_to_their_bounds_and_say_what_they_were_read_off() {
        let table = "
blocks >= 600 => Same grid 600x1x1 of reduce_kernel
launches <= 3 => Same
launches <= 2 => Regressed
copies <= 1 => Same
copies <= 0 => Regressed
calls.plans <= 1 => Same plans once a call
calls.other <= 0 => Missing its worker does not count calls.other (s.toml:6: expect[0])
calls.hidden <= 0 => Missing calls.hidden could not be counted: te:select is not there (s.toml:6: expect[0])
overlap_ns >= 41 => Regressed
copying_ns >= 41 => Missing its worker does not count copying_ns (s.toml:6: expect[0])
calls.backend_selections <= 0 => Regressed backend re-selected 8 times a call, 660.1 µs of the host a call in it
calls.triton_autotune <= 0 => Same
ns.backend_selections <= 0 => Regressed
";
        for line in table.lines().filter(|line| !line.is_empty()) {
            let (rule, expected) = line.split_once(" => ").unwrap();
            let words: Vec<&str> = rule.split(' ').collect();
            let bound = Some(words[2].parse().unwrap());
            let limit = match words[1] {
                "<=" => limit(words[0], None, bound),
                _ => limit(words[0], bound, None),
            };
            let result = results(limit, measured()).remove(0);
            let text = format!("{:?} {}", result.word, result.reason.unwrap_or_default());
            assert_eq!(text.trim(), expected, "{line}");
        }
    }

    #[test]
    fn a_limit_on_a_kernel_is_on_the_largest_grid_of_it() {
        let sentence_of = |kernel: &str| {
            let limit = Expectation {
                kernel: Some(kernel.to_owned()),
                ..limit("sm_fill", Some(0.5), None)
            };
            let result = results(limit, measured()).remove(0);
            format!("{}; {}", result.sentence(), result.reason.unwrap())
        };
        assert_eq!(
            sentence_of("flash*"),
            "sm_fill is 0.250, at least 0.500 is allowed; grid 33x1x1 of flash_bwd<64>, 33 of 132 \
             SMs"
        );
        let unmatched = sentence_of("fmha*");
        assert!(
            unmatched.ends_with("no kernel it launches matches fmha* (s.toml:6: expect[0])"),
            "{unmatched}"
        );
    }

    #[test]
    fn what_was_not_measured_is_missing() {
        let launches = || limit("launches", None, Some(1.0));
        assert_eq!(
            results(launches(), failed("x", Fault::Other))[0].word,
            Word::Missing
        );
        assert_eq!(results(launches(), timed(&[1.0]))[0].word, Word::Missing);
        assert_eq!(results(launches(), unsupported("x"))[0].word, Word::Missing);
    }

    #[test]
    fn a_build_is_held_to_its_seconds_and_what_is_not_known_is_not_judged() {
        let wall_ns = Nanoseconds::of_seconds(300.0);
        let built = BTreeMap::from([("environment flash".to_owned(), Built { wall_ns })]);
        let limit = |most| limit("build_seconds", None, Some(most));
        let over = on_builds(&limit(60.0), &built);
        assert_eq!(over[0].word, Word::Regressed);
        assert_eq!(over[0].subject(), "the build of environment flash");
        assert_eq!(on_builds(&limit(600.0), &built)[0].word, Word::Same);
        let without_build = results(limit(60.0), timed(&[1.0]));
        assert_eq!(without_build[0].word, Word::Missing);
    }
}
