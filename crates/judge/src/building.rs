//! Limits on builds: what they took, by the header of a run.

use std::collections::BTreeMap;

use super::judgement::LimitResult;
use regatta_core::record::built::Built;
use regatta_core::suite::rules::Rules;
use regatta_core::suite::structural::Limit;

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
    let value = of.map(|(_, built)| built.wall_ns.seconds());
    let unknown = "no build of what is there is known: `regatta build SUITE` measures that of a \
                   suite, by its `makes`, `regatta env make NAME` what an environment compiles";
    let reason = of.is_none().then(|| unknown.to_owned());
    LimitResult {
        built: of.map(|(what, _)| what.clone()),
        ..LimitResult::of(limit, value, reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judgement::Held;
    use regatta_core::suite::rules::Selector;
    use regatta_worker::units::Nanoseconds;

    fn rules(count: &str, at_most: f64) -> Rules {
        let limit = Limit {
            name: "built in time".to_owned(),
            case: Selector::default(),
            count: count.to_owned().into(),
            kernel: None,
            at_least: None,
            at_most: Some(at_most),
        };
        Rules {
            limits: vec![limit],
            ..Rules::default()
        }
    }

    #[test]
    fn a_build_is_held_to_its_seconds_and_what_is_not_known_is_not_judged() {
        let wall_ns = Nanoseconds::of_seconds(300.0);
        let built = BTreeMap::from([("environment flash".to_owned(), Built { wall_ns })]);
        let over = limits(&rules("build_seconds", 60.0), &built);
        assert_eq!(over[0].held, Held::Broken);
        assert_eq!(over[0].subject(), "the build of environment flash");
        assert_eq!(
            over[0].told(),
            "build_seconds is 300, at most 60 is allowed"
        );
        let fine = limits(&rules("build_seconds", 600.0), &built);
        assert_eq!(fine[0].held, Held::Yes);
        let none = limits(&rules("build_seconds", 60.0), &BTreeMap::new());
        assert_eq!(none[0].held, Held::NotJudged);
        assert!(none[0].reason.as_ref().unwrap().contains("regatta build"));
        assert!(limits(&rules("launches", 2.0), &built).is_empty());
    }
}
