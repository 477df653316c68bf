//! Limits on structure, which hold inside one run without any baseline.

use std::collections::BTreeMap;

use super::multiprocessors;
use crate::complete::{allowed, unmeasured};
use crate::judgement::{ExpectationResult, Word};
use regatta_core::machine::{CENSUS, Launch, Structure, moves_data, normalised, short};
use regatta_core::record::{Built, CaseRecord, Side, Status};
use regatta_core::suite::{Limit, Quantity, Rules, matches_name};
use regatta_worker::attention::CaseId;

/// Holds each case of a side to the limits that select it. Cases that are unsupported,
/// or allowed to fail, are excused.
pub fn limits(side: &Side) -> Vec<ExpectationResult> {
    let rules = &side.header.rules;
    let optional = &rules.policy.optional;
    let mut results = Vec::new();
    for limit in rules.limits.iter().filter(|l| !l.count.is_of_build()) {
        let selects = |id: &CaseId| id.case().is_ok_and(|case| limit.case.matches(&case));
        let selected = side.cases.iter().filter(|(id, _)| selects(id));
        let (held, excused): (Vec<_>, Vec<_>) = selected.partition(|(id, record)| {
            let unsupported = matches!(record.status, Status::Unsupported { .. });
            record.status == Status::Measured || !unsupported && !allowed(id, optional)
        });
        let mut push = |case: &CaseId, value, reason, word: Option<Word>| {
            let result = ExpectationResult::of_limit(limit, value, reason);
            let result = ExpectationResult {
                case: Some(case.clone()),
                word: word.unwrap_or(result.word),
                ..result
            };
            results.push(result.missing_at(&limit.origin));
        };
        let ids: Vec<&CaseId> = excused.iter().map(|(id, _)| *id).collect();
        if let Some((word, reason)) = unmeasured(&ids, optional).filter(|_| held.is_empty()) {
            push(ids[0], None, Some(reason), Some(word));
        }
        for (id, record) in held {
            match figure(limit, record, multiprocessors(&side.header, id)) {
                Ok((value, of)) => push(id, Some(value), of, None),
                Err(reason) => push(id, None, Some(reason), None),
            }
        }
    }
    results
}

/// A value, and what it was read off.
fn figure(
    limit: &Limit,
    record: &CaseRecord,
    sms: Option<u32>,
) -> Result<(f64, Option<String>), String> {
    let structure = record.structure.as_ref().filter(|s| !s.is_empty());
    let Some(structure) = structure else {
        let structure = record.structure.as_ref();
        let why = structure.and_then(|structure| structure.why_uncounted(CENSUS));
        return Err(match &record.status {
            Status::Measured => why.unwrap_or("its worker counts no structure").to_owned(),
            Status::Failed { reason, .. } | Status::Missing { reason } => {
                format!("not measured: {reason}")
            }
            Status::Unsupported { reason } => reason.clone(),
        });
    };
    let counted = |value: u64| (value as f64, None);
    match &limit.count {
        Quantity::Launches if structure.launches.is_empty() => {
            let why = structure.why_uncounted("launches");
            Err(why.unwrap_or("its worker tells no launches").to_owned())
        }
        Quantity::Launches => {
            let of_kernel = |launch: &&Launch| {
                let pattern = limit.kernel.as_ref();
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
            let launch = largest(limit, structure)?;
            Ok((launch.blocks() as f64, Some(grid_of(launch))))
        }
        Quantity::SmFill => {
            let launch = largest(limit, structure)?;
            let sms = sms.ok_or("its device does not tell its multiprocessors")?;
            let busy = launch.sms_used(sms);
            let grid = format!("{}, {busy} of {sms} SMs", grid_of(launch));
            Ok((busy as f64 / f64::from(sms), Some(grid)))
        }
    }
}

/// A count of the worker's, or a figure of what the device did in a call.
fn figure_of(record: &CaseRecord, name: &str) -> Option<f64> {
    let activity = || record.activity.as_ref()?.figure(name);
    let counted = super::count(record, name).map(|count| count as f64);
    counted.or_else(activity)
}

/// The host's time in the events of a count: a violated limit is
/// reported with its cost on the first run.
fn events(record: &CaseRecord, count: &str, number: u64) -> Option<String> {
    let name = count.strip_prefix("calls.")?;
    (number > 0).then(|| super::events(record, name, number))
}

/// Copies as the worker counts them, or else kernels that move data, where it tells any.
fn copies(structure: &Structure) -> Option<u64> {
    let moving = || structure.launches.iter().filter(|l| moves_data(&l.name));
    let counted = structure.counts.get("copies").copied();
    let launched = (!structure.launches.is_empty()).then(|| moving().count() as u64);
    counted.or(launched)
}

/// The launch with the most blocks among the kernels that a limit speaks of.
fn largest<'a>(limit: &Limit, structure: &'a Structure) -> Result<&'a Launch, String> {
    let speaks_of = |launch: &&Launch| match &limit.kernel {
        Some(pattern) => matches_name(pattern, &normalised(&launch.name)),
        None => !moves_data(&launch.name),
    };
    let launches = structure.launches.iter().filter(speaks_of);
    launches
        .max_by_key(|launch| launch.blocks())
        .ok_or_else(|| match &limit.kernel {
            Some(pattern) => format!("no kernel it launches matches {pattern}"),
            None => "it launches no kernel that computes".to_owned(),
        })
}

fn grid_of(launch: &Launch) -> String {
    let [x, y, z] = launch.grid;
    format!("grid {x}x{y}x{z} of {}", short(&normalised(&launch.name)))
}

/// Holds each build to the limits on builds. Where none is known, each limit is compared with
/// nothing, and missing.
pub fn limits_on_builds(rules: &Rules, built: &BTreeMap<String, Built>) -> Vec<ExpectationResult> {
    let limits = rules
        .limits
        .iter()
        .filter(|limit| limit.count.is_of_build());
    let results = limits.flat_map(|limit| {
        if built.is_empty() {
            vec![result(limit, None)]
        } else {
            built.iter().map(|one| result(limit, Some(one))).collect()
        }
    });
    results.collect()
}

fn result(limit: &Limit, build: Option<(&String, &Built)>) -> ExpectationResult {
    let value = build.map(|(_, built)| built.wall_ns.seconds());
    let unknown = "no build of what is there is known: `regatta build SUITE` measures that of a \
                   suite, by its `makes`, `regatta env make NAME` what an environment compiles";
    let reason = build.is_none().then(|| unknown.to_owned());
    let result = ExpectationResult {
        built: build.map(|(what, _)| what.clone()),
        ..ExpectationResult::of_limit(limit, value, reason)
    };
    result.missing_at(&limit.origin)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{failed, side, timed, unsupported, written};
    use regatta_core::suite::{Origin, Selector};
    use regatta_worker::units::Nanoseconds;
    fn limit(count: &str, at_least: Option<f64>, at_most: Option<f64>) -> Limit {
        Limit {
            name: "n".to_owned(),
            case: Selector([("worker".to_owned(), vec!["cpu".to_owned()])].into()),
            count: count.to_owned().into(),
            kernel: None,
            at_least,
            at_most,
            origin: Origin("s.toml:6: expect[0]".to_owned()),
        }
    }

    fn results(limit: Limit, record: CaseRecord) -> Vec<ExpectationResult> {
        let mut side = side("head", vec![("cpu/flash:s64,d64", record)]);
        let sms = ("cpu.sms".to_owned(), "132".to_owned());
        side.header.machine.hard.extend([sms]);
        side.header.rules.limits = vec![limit];
        limits(&side)
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
            let limit = Limit {
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
        assert_eq!(results(launches(), failed("x"))[0].word, Word::Missing);
        assert_eq!(results(launches(), timed(&[1.0]))[0].word, Word::Missing);
        assert_eq!(results(launches(), unsupported("x"))[0].word, Word::Missing);
    }

    #[test]
    fn a_build_is_held_to_its_seconds_and_what_is_not_known_is_not_judged() {
        let rules = |count: &str, most| Rules {
            limits: vec![limit(count, None, Some(most))],
            ..Rules::default()
        };
        let wall_ns = Nanoseconds::of_seconds(300.0);
        let built = BTreeMap::from([("environment flash".to_owned(), Built { wall_ns })]);
        let over = limits_on_builds(&rules("build_seconds", 60.0), &built);
        assert_eq!(over[0].word, Word::Regressed);
        assert_eq!(over[0].subject(), "the build of environment flash");
        let fine = limits_on_builds(&rules("build_seconds", 600.0), &built);
        assert_eq!(fine[0].word, Word::Same);
        let without_build = limits_on_builds(&rules("build_seconds", 60.0), &BTreeMap::new());
        assert_eq!(without_build[0].word, Word::Missing);
        assert!(limits_on_builds(&rules("launches", 2.0), &built).is_empty());
    }
}
