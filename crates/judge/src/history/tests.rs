use std::collections::BTreeMap;

use jiff::Timestamp;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::judgement::{Mismatch, Word};
use regatta_core::record::history::{About, CaseTimes, HistoryRun};
use regatta_core::record::{Fault, Git};
use regatta_worker::case::CaseId;
use regatta_worker::units::quantities;

/// A pseudo-random number within ±1, the same in each test.
fn noise(case: usize, run: usize) -> f64 {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for part in [case as u64, run as u64, 7] {
        state = (state ^ part).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state ^= state >> 31;
        state = state.wrapping_mul(0x94d0_49bb_1331_11eb);
        state ^= state >> 29;
    }
    (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

/// A series of `runs` runs. The time of each is a given multiple of 100 µs, within one per cent;
/// its five invocations are within a fifth of a per cent of that.
fn series(case: usize, runs: usize, factor: impl Fn(usize) -> f64) -> Series {
    let time = |run| 1e5 * factor(run) * (1.0 + 0.01 * noise(case, run));
    let values = (0..runs).map(|run| {
        let near = [-0.002, 0.001, 0.0, -0.001, 0.002];
        quantities(near.map(|away| time(run) * (1.0 + away)))
    });
    Series {
        runs: (0..runs as u32).collect(),
        times: quantities((0..runs).map(time)),
        values: values.collect(),
    }
}

fn alone(runs: usize, factor: impl Fn(usize) -> f64) -> Trend {
    let all = [series(1, runs, factor)];
    let (shared, mut cases) = found(&all, runs, &Options::default());
    assert_eq!(shared, None);
    cases.remove(0)
}

fn at(trend: &Trend) -> Vec<usize> {
    trend.steps.iter().map(|step| step.run).collect()
}

#[test]
fn now_is_the_newest_run() {
    let trend = alone(6, |run| if run < 5 { 1.0 } else { 2.0 });
    let newest = trend.newest_ratio().unwrap();
    assert!((newest.0 - 2.0).abs() < 0.05, "{newest}");
    assert!((trend.since_reference().unwrap().0 - 1.0).abs() < 0.01);
}

#[test]
fn a_step_is_found_where_it_is_and_as_large_as_it_is() {
    let trend = alone(60, |run| if run < 40 { 1.0 } else { 1.05 });
    assert_eq!(at(&trend), [40]);
    let step = &trend.steps[0];
    assert_eq!((step.before, step.runs_after), (39, 20));
    assert!((step.change.ratio.0 - 1.05).abs() < 0.006, "{step:?}");
    let Comparison {
        ratio, low, high, ..
    } = step.change;
    assert!(low.unwrap() < ratio && ratio < high.unwrap());
    assert_eq!(
        (step.change.word, step.change.invocations),
        (Word::Regressed, (40, 20))
    );
    assert!((step.to_ns / step.from_ns).0 > 1.04);
    assert_eq!(trend.creep, None);
    assert!((trend.since_reference().unwrap().0 - 1.05).abs() < 0.01);
}

#[test]
fn changes_are_where_levels_change_and_nowhere_else() {
    let wild = |run: usize| [3, 17, 18, 31, 48, 59].contains(&run);
    let between =
        |range: std::ops::Range<usize>, run: usize| if range.contains(&run) { 1.6 } else { 1.0 };
    type Level<'a> = &'a dyn Fn(usize) -> f64;
    let rows: [(usize, Level, &[usize]); 8] = [
        (90, &|run| between(30..60, run), &[30, 60]),
        // Single outliers are not changes and do not hide any.
        (60, &|run| if wild(run) { 5.0 } else { 1.0 }, &[]),
        (
            60,
            &|run| {
                if wild(run) {
                    5.0
                } else {
                    1.0 + 0.05 * f64::from(run >= 30)
                }
            },
            &[30],
        ),
        // Few runs show what is large enough.
        (25, &|run| between(5..15, run), &[5, 15]),
        (25, &|run| between(22..99, run), &[]),
        (9, &|run| 1.0 + 8.0 * f64::from(run >= 4), &[]),
        (0, &|_| 1.0, &[]),
        (25, &|_| 1.0, &[]),
    ];
    for (runs, factor, expected) in rows {
        assert_eq!(at(&alone(runs, factor)), expected, "of {runs} runs");
    }
    let mended = alone(90, |run| between(30..60, run));
    assert!((mended.level_ns.unwrap().0 / 1e5 - 1.0).abs() < 0.01);
}

#[test]
fn what_creeps_has_no_day_and_is_told_against_the_oldest_run() {
    let slope = |by: f64| move |run: usize| 1.0 + by * run as f64 / 119.0;
    let trend = alone(120, slope(0.1));
    assert!(at(&trend).is_empty());
    let creep = trend.creep.unwrap();
    assert!((creep.change.ratio.0 - 1.1).abs() < 0.025, "{creep:?}");
    let Comparison {
        ratio, low, high, ..
    } = creep.change;
    assert!(low.unwrap() <= ratio && ratio <= high.unwrap());
    // A step on top of it is reported on its own.
    let both = alone(120, |run| {
        let step = if run < 70 { 1.0 } else { 1.3 };
        step * slope(0.1)(run)
    });
    assert_eq!(at(&both), [70]);
    let creep = both.creep.unwrap();
    assert!((1.05..1.13).contains(&creep.change.ratio.0), "{creep:?}");
    // A drift below the day-to-day allowance does not count.
    assert_eq!(alone(120, slope(0.03)).creep, None);
}

#[test]
fn few_runs_creep_in_either_direction_and_unchanged_ones_in_none() {
    for (by, expected) in [(1.02_f64, 1.243), (1.0 / 1.02, 0.804)] {
        let trend = alone(12, |run| by.powi(run as i32));
        assert!(trend.steps.is_empty());
        let creep = trend.creep.unwrap();
        assert!((creep.change.ratio.0 - expected).abs() < 0.025, "{creep:?}");
        assert_eq!((creep.to_ns / creep.from_ns).0 > 1.0, by > 1.0);
    }
    assert_eq!(alone(12, |_| 1.0).creep, None);
}

/// Older histories have a median a run: ten of the oldest are compared with ten of the newest.
#[test]
fn runs_of_one_value_creep_with_their_neighbours() {
    let medians = |by: f64| {
        let mut all = series(1, 60, |run| 1.0 + by * run as f64 / 59.0);
        all.values = all.times.iter().map(|time| vec![*time]).collect();
        let (_, mut cases) = found(&[all], 60, &Options::default());
        cases.remove(0)
    };
    let trend = medians(0.12);
    assert!(trend.steps.is_empty());
    let creep = trend.creep.unwrap();
    assert!((creep.change.ratio.0 - 1.1).abs() < 0.02, "{creep:?}");
    assert_eq!(medians(0.0).creep, None);
}

/// Half of a day's deviation comes from the previous day.
#[test]
fn runs_that_resemble_each_other_show_no_change() {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let mut normal = || (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0;
    for kept in [0.0, 0.3, 0.5, 0.5, 0.8] {
        let mut day = normal();
        let all: Vec<Series> = (0..30)
            .map(|case| {
                let away = (0..120).map(|_| {
                    day = kept * day + f64::sqrt(1.0 - kept * kept) * normal();
                    0.01 * day
                });
                let away: Vec<f64> = away.collect();
                series(case, 120, |run| away[run].exp())
            })
            .collect();
        let (shared, cases) = found(&all, 120, &Options::default());
        let steps = |trend: &Trend| trend.steps.len();
        let changed: usize = cases.iter().chain(&shared).map(steps).sum();
        assert_eq!(changed, 0, "{kept}");
    }
}

#[test]
fn what_all_share_is_taken_out_as_far_as_it_comes_and_goes() {
    let drift = |run: usize| 1.0 + 0.03 * (run as f64 / 15.0).sin();
    let all: Vec<Series> = (0..20)
        .map(|case| {
            series(case, 100, move |run| {
                let own = if case == 3 && run >= 60 { 1.03 } else { 1.0 };
                own * drift(run)
            })
        })
        .collect();
    let (shared, cases) = found(&all, 100, &Options::default());
    assert!(shared.unwrap().steps.is_empty());
    for (case, trend) in cases.iter().enumerate() {
        let steps = at(trend);
        assert_eq!(steps.len(), usize::from(case == 3), "{case}: {steps:?}");
        // For three per cent, a neighbour may be as likely.
        assert!(steps.iter().all(|run| run.abs_diff(60) <= 1), "{steps:?}");
    }
}

/// A jump in the newest run is not a drift of any case; a drift of all is reported once.
#[test]
fn a_slow_day_of_all_is_no_creep_and_a_drift_of_all_is_one() {
    let twenty = |factor: fn(usize) -> f64| {
        let all: Vec<Series> = (0..20).map(|case| series(case, 100, factor)).collect();
        found(&all, 100, &Options::default())
    };
    let crept = |cases: &[Trend]| cases.iter().filter(|trend| trend.creep.is_some()).count();
    let (shared, cases) = twenty(|run| if run == 99 { 1.15 } else { 1.0 });
    assert_eq!((shared.unwrap().creep, crept(&cases)), (None, 0));
    let (shared, cases) = twenty(|run| 1.0 + 0.2 * run as f64 / 99.0);
    let creep = shared.unwrap().creep.unwrap();
    assert!((creep.change.ratio.0 - 1.18).abs() < 0.03, "{creep:?}");
    assert_eq!(crept(&cases), 0);
}

const RUNS: usize = 60;

/// A history of two workers with twelve cases each, of which these take twice as long from run
/// 40 on.
fn history(slower: impl Fn(&str) -> bool) -> History {
    let ids: Vec<CaseId> = ["cpu/flash", "torch/sdpa"]
        .iter()
        .flat_map(|variant| {
            (1..=6).flat_map(move |n| {
                ["", ",bwd"].map(|way| CaseId(format!("{variant}:s{},d64{way}", 64 * n).into()))
            })
        })
        .collect();
    let runs = (0..RUNS).map(|run| {
        let results = ids.iter().enumerate().map(|(case, id)| {
            let factor = if run >= 40 && slower(&id.0) { 1.2 } else { 1.0 };
            let figures = CaseTimes {
                device_ns: Nanoseconds(1e5 * factor * (1.0 + 0.01 * noise(case, run))),
                invocations_ns: Vec::new(),
                host_ns: None,
                cpu_ns: None,
                disturbed: false,
            };
            (case as u32, Outcome::Measured(figures))
        });
        HistoryRun {
            about: about(run),
            results: results.collect(),
        }
    });
    History {
        suite: "s".to_owned(),
        machine: "m".to_owned(),
        runs: runs.collect(),
        cases: ids,
        damage: Vec::new(),
    }
}

fn about(run: usize) -> About {
    let torch = if run < 40 { "2.10.0" } else { "2.11.0" };
    About {
        id: run.to_string(),
        at: Timestamp::from_second(1_700_000_000 + 86_400 * run as i64).unwrap(),
        started: None,
        label: format!("reports/{run}"),
        git: Some(Git {
            revision: format!("{run:0<40}"),
            dirty: false,
            changes: None,
        }),
        tool: "0.1.0".to_owned(),
        verdict: None,
        versions: BTreeMap::from([(
            "torch".to_owned(),
            BTreeMap::from([("torch".to_owned(), torch.to_owned())]),
        )]),
        facts: BTreeMap::from([("driver".to_owned(), "580".to_owned())]),
    }
}

fn one_event(history: &History) -> Event {
    let trends = trends(history, &Options::default());
    assert_eq!(trends.events.len(), 1, "{:?}", trends.events);
    let event = trends.events[0].clone();
    assert_eq!((event.run, event.before), (40, 39));
    assert!((event.ratio.0 - 1.2).abs() < 0.02, "{event:?}");
    event
}

#[test]
fn who_moved_is_a_case_a_family_the_suite_or_the_machine() {
    let one = one_event(&history(|id| id == "cpu/flash:s64,d64"));
    assert_eq!((one.who, one.cases.len()), (Who::Case, 1));

    let family = one_event(&history(|id| {
        id.starts_with("torch") && id.ends_with("bwd")
    }));
    let cases = "all 6 cases of torch/sdpa with backward";
    assert_eq!(family.who, Who::Family(cases.to_owned()));
    let changed: Vec<&str> = family
        .code
        .iter()
        .map(|mismatch| mismatch.field.as_str())
        .collect();
    assert_eq!(changed, ["revision", "torch.torch"]);
    assert!(family.machine.is_empty());

    let half = one_event(&history(|id| id.starts_with("cpu")));
    assert_eq!(
        half.who,
        Who::Family("all 12 cases of cpu/flash".to_owned())
    );

    let all = one_event(&history(|_| true));
    assert_eq!((&all.who, all.cases.len()), (&Who::Machine, 24));

    // With another driver it is not a regression of the code, whichever cases changed.
    let mut driver = history(|id| id == "cpu/flash:s64,d64");
    for kept in &mut driver.runs[40..] {
        kept.about.facts = BTreeMap::from([("driver".to_owned(), "590".to_owned())]);
    }
    let event = one_event(&driver);
    assert_eq!(event.who, Who::Machine);
    assert_eq!(event.machine[0].head, "590");
}

#[test]
fn a_version_that_changed_a_run_later_is_told_as_nearby() {
    let mut history = history(|id| id == "cpu/flash:s64,d64");
    let torch = history.runs[39].about.versions.clone();
    history.runs[40].about.versions = torch;
    let event = one_event(&history);
    let fields = |all: &[Mismatch]| {
        all.iter()
            .map(|mismatch| mismatch.field.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(fields(&event.code), ["revision"]);
    assert_eq!(fields(&event.nearby), ["torch.torch"]);
}

#[test]
fn all_cases_of_one_worker_are_the_suite() {
    let mut history = history(|_| true);
    for id in &mut history.cases {
        id.0 = id.0.replace("torch/", "cpu/").into();
    }
    let judged = trends(&history, &Options::default());
    assert_eq!(judged.events.len(), 1);
    assert_eq!(judged.events[0].who, Who::Suite);
    let crept = trends(&history, &Options::default()).crept;
    assert!(crept.is_empty(), "{crept:?}");
}

#[test]
fn what_has_no_time_now_is_told_since_when() {
    let mut history = history(|_| false);
    for (run, reason) in [(20, "once"), (50, "first"), (59, "signal 11")] {
        history.runs[run].results[2].1 = Outcome::Failed {
            reason: reason.to_owned(),
            fault: Fault::Crash,
            log: String::new(),
        };
    }
    for run in 51..59 {
        history.runs[run].results.remove(2);
    }
    let trends = trends(&history, &Options::default());
    let lost: Vec<_> = trends.lost.iter().flatten().collect();
    assert_eq!(lost.len(), 1);
    assert_eq!((lost[0].run, lost[0].reason.as_str()), (50, "signal 11"));
    assert_eq!(trends.cases[2].runs, RUNS - 11);
    assert!(trends.events.is_empty());
}

#[test]
fn a_disturbed_case_has_its_cpu_time_but_no_wall_time_now() {
    let mut history = history(|_| false);
    for run in &mut history.runs[50..] {
        if let Outcome::Measured(times) = &mut run.results[2].1 {
            (times.disturbed, times.cpu_ns) = (true, Some(times.device_ns));
        }
    }
    let lost_cases = |metric| {
        let options = Options {
            metric,
            ..Options::default()
        };
        let lost = trends(&history, &options).lost;
        lost.into_iter().flatten().count()
    };
    assert_eq!(lost_cases(Metric::Device), 1);
    assert_eq!(lost_cases(Metric::CpuTime), 0);
}
