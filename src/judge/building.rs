//! Limits on builds: what they took, by the header of a run.

use std::collections::BTreeMap;

use super::judgement::LimitResult;
use crate::record::built::Built;
use crate::suite::rules::Rules;
use crate::suite::structural::{Limit, Quantity};

/// Holds each build to the limits on builds. Where none is known, each limit is held against
/// nothing, and not judged.
pub fn limits(rules: &Rules, built: &BTreeMap<String, Built>) -> Vec<LimitResult> {
    let limits = rules
        .limits
        .iter()
        .filter(|limit| limit.count.is_of_build());
    let results = limits.flat_map(|limit| match built.is_empty() {
        true => vec![result(limit, None)],
        false => built.iter().map(|one| result(limit, Some(one))).collect(),
    });
    results.collect()
}

fn result(limit: &Limit, of: Option<(&String, &Built)>) -> LimitResult {
    let value = of.and_then(|(_, built)| match limit.count {
        Quantity::BuildSeconds => Some(built.wall_ns.seconds()),
        Quantity::BuildCores => built.cores_busy(),
        _ => None,
    });
    let reason = match (of, value) {
        (None, _) => Some(
            "no build of what is there is known: `regatta build SUITE` measures that of a suite, \
             by its `makes`, `regatta env make NAME` what an environment compiles"
                .to_owned(),
        ),
        (Some(_), None) => Some("its processor time is not known".to_owned()),
        (Some((_, built)), Some(_)) => built.cores_told(),
    };
    LimitResult {
        built: of.map(|(what, _)| what.clone()),
        ..LimitResult::of(limit, value, reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::judgement::Held;
    use crate::suite::rules::Selector;
    use crate::units::Nanoseconds;

    fn rules(count: &str, at_least: Option<f64>, at_most: Option<f64>) -> Rules {
        let limit = Limit {
            name: "built in time".to_owned(),
            case: Selector::default(),
            count: count.to_owned().into(),
            kernel: None,
            at_least,
            at_most,
        };
        Rules {
            limits: vec![limit],
            ..Rules::default()
        }
    }

    fn built(cpu_s: Option<f64>) -> BTreeMap<String, Built> {
        let built = Built {
            wall_ns: Nanoseconds::of_seconds(300.0),
            cpu_ns: cpu_s.map(Nanoseconds::of_seconds),
            cores: 64,
            because: Some("ninja is not there".to_owned()),
            ..Built::default()
        };
        BTreeMap::from([("environment flash".to_owned(), built)])
    }

    #[test]
    fn a_build_is_held_to_its_seconds_and_its_cores_with_the_cause() {
        let over = limits(
            &rules("build_seconds", None, Some(60.0)),
            &built(Some(297.0)),
        );
        assert_eq!(over[0].held, Held::Broken);
        assert_eq!(over[0].subject(), "the build of environment flash");
        assert_eq!(
            over[0].told(),
            "build_seconds is 300, at most 60 is allowed"
        );
        let cause = over[0].reason.as_deref();
        assert_eq!(cause, Some("one core busy of 64: ninja is not there"));
        let idle = limits(&rules("build_cores", Some(16.0), None), &built(Some(297.0)));
        assert_eq!(
            idle[0].told(),
            "build_cores is 0.990, at least 16 is allowed"
        );
        assert_eq!(idle[0].held, Held::Broken);
        let fine = limits(&rules("build_seconds", None, Some(600.0)), &built(None));
        assert_eq!(fine[0].held, Held::Yes);
    }

    #[test]
    fn a_limit_held_against_nothing_is_not_judged() {
        let none = limits(&rules("build_seconds", None, Some(60.0)), &BTreeMap::new());
        assert_eq!(none[0].held, Held::NotJudged);
        assert!(none[0].reason.as_ref().unwrap().contains("regatta build"));
        let blind = limits(&rules("build_cores", Some(2.0), None), &built(None));
        assert_eq!(blind[0].held, Held::NotJudged);
        let other = limits(&rules("launches", None, Some(2.0)), &built(None));
        assert!(other.is_empty());
    }
}
