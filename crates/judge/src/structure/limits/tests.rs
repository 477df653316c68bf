use super::*;
use crate::judgement::Held;
use crate::testing::{failed, side, timed, unsupported};
use regatta_core::machine::{ActivitySummary, DeviceTime};
use regatta_core::suite::rules::Selector;

const CASE: &str = "cpu/flash:s64,d64";

fn launch(name: &str, blocks: u32) -> Launch {
    Launch {
        name: name.to_owned(),
        grid: [blocks, 1, 1],
        block: [128, 1, 1],
        ..Launch::default()
    }
}

fn limit(count: &str, at_least: Option<f64>, at_most: Option<f64>) -> Limit {
    Limit {
        name: "n".to_owned(),
        case: Selector([("worker".to_owned(), vec!["cpu".to_owned()])].into()),
        count: count.to_owned().into(),
        kernel: None,
        at_least,
        at_most,
    }
}

fn results(limit: Limit, record: CaseRecord) -> Vec<LimitResult> {
    let mut side = side("head", vec![(CASE, record)]);
    let sms = ("cpu.sms".to_owned(), "132".to_owned());
    side.header.machine.hard.extend([sms]);
    side.header.rules.limits = vec![limit];
    limits(&side)
}

fn measured() -> CaseRecord {
    let mut record = timed(&[1.0]);
    record.structure = Some(Box::new(Structure {
        launches: vec![
            launch("elementwise_kernel", 4000),
            launch("reduce_kernel", 600),
            launch("void flash_bwd<64>()", 33),
        ],
        counts: [("calls.selections".to_owned(), 1)].into(),
        ..Structure::default()
    }));
    record
}

fn held(limit: Limit) -> (Held, String) {
    let result = results(limit, measured()).remove(0);
    (
        result.held,
        format!("{}; {:?}", result.told(), result.reason),
    )
}

#[test]
fn figures_of_launches_are_those_of_the_largest_grid_that_is_meant() {
    assert_eq!(
        held(limit("blocks", Some(600.0), None)),
        (
            Held::Yes,
            "blocks is 600, at least 600 is allowed; \
             Some(\"grid 600x1x1 of reduce_kernel\")"
                .to_owned()
        )
    );
    let fill = Limit {
        kernel: Some("flash*".to_owned()),
        ..limit("sm_fill", Some(0.5), None)
    };
    assert_eq!(
        held(fill.clone()),
        (
            Held::Broken,
            "sm_fill is 0.250, at least 0.500 is allowed; \
             Some(\"grid 33x1x1 of flash_bwd<64>, 33 of 132 SMs\")"
                .to_owned()
        )
    );
    let nothing = Limit {
        kernel: Some("fmha*".to_owned()),
        ..fill
    };
    let (outcome, text) = held(nothing);
    assert_eq!(outcome, Held::NotJudged);
    assert!(
        text.contains("no kernel it launches matches fmha*"),
        "{text}"
    );
}

#[test]
fn counts_have_bounds_and_an_unknown_one_is_not_judged() {
    let at_most = |count, most| held(limit(count, None, Some(most))).0;
    assert_eq!(at_most("launches", 3.0), Held::Yes);
    assert_eq!(at_most("launches", 2.0), Held::Broken);
    assert_eq!(at_most("copies", 1.0), Held::Yes);
    assert_eq!(at_most("copies", 0.0), Held::Broken);
    assert_eq!(at_most("calls.selections", 0.0), Held::Broken);
    assert_eq!(at_most("calls.selections", 1.0), Held::Yes);
    assert_eq!(at_most("calls.other", 0.0), Held::NotJudged);
}

#[test]
fn what_the_device_did_has_limits_too() {
    let mut record = measured();
    record.activity = Some(ActivitySummary {
        time: DeviceTime {
            overlap_ns: 40,
            ..DeviceTime::default()
        },
        ..ActivitySummary::default()
    });
    let held = |count| {
        let found = results(limit(count, Some(41.0), None), record.clone());
        (found[0].held, found[0].value)
    };
    assert_eq!(held("overlap_ns"), (Held::Broken, Some(40.0)));
    assert_eq!(held("copying_ns"), (Held::NotJudged, None));
    assert_eq!(held("overlap"), (Held::NotJudged, None));
}

#[test]
fn what_could_not_be_counted_says_why() {
    let mut record = measured();
    let structure = record.structure.as_mut().unwrap();
    let reason = "te:select is not there".to_owned();
    structure.uncounted.insert("calls.other".to_owned(), reason);
    let found = results(limit("calls.other", None, Some(0.0)), record);
    let said = "calls.other could not be counted: te:select is not there";
    assert_eq!(found[0].reason.as_deref(), Some(said));
}

#[test]
fn a_limit_on_events_tells_the_hosts_time_in_them() {
    let of = |counts: &[(&str, u64)], count| {
        let mut record = timed(&[1.0]);
        let counts = counts
            .iter()
            .map(|(name, value)| ((*name).to_owned(), *value));
        record.structure = Some(Box::new(Structure {
            counts: counts.collect(),
            ..Structure::default()
        }));
        let result = results(limit(count, None, Some(0.0)), record).remove(0);
        (result.held, result.told(), result.reason)
    };
    let selections = [
        ("calls.backend_selections", 8),
        ("ns.backend_selections", 660_100),
        ("calls.plans", 1),
        ("calls.triton_autotune", 0),
    ];
    assert_eq!(
        of(&selections, "calls.backend_selections"),
        (
            Held::Broken,
            "calls.backend_selections is 8, at most 0 is allowed".to_owned(),
            Some(
                "backend re-selected 8 times a call, 660.1 µs of the host a call in it".to_owned()
            )
        )
    );
    let reason = |count| of(&selections, count).2;
    assert_eq!(reason("calls.plans").unwrap(), "plans once a call");
    // Nothing happened, and a time is no event.
    assert_eq!(reason("calls.triton_autotune"), None);
    assert_eq!(reason("ns.backend_selections"), None);
}

#[test]
fn what_was_not_measured_is_not_judged_and_unsupported_is_excused() {
    let launches = || limit("launches", None, Some(1.0));
    assert_eq!(results(launches(), failed("x"))[0].held, Held::NotJudged);
    assert_eq!(results(launches(), timed(&[1.0]))[0].held, Held::NotJudged);
    assert!(results(launches(), unsupported("x")).is_empty());
}
