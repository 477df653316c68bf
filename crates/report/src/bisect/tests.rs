//! Answers of every kind, as they are shown.

use serde_json::{Value, json};

use super::*;
use crate::fixture::{fits, stands_alone};
use regatta_core::record::PairSide;
use regatta_measure::versions::bisect::Stretch;
use regatta_worker::joined::Joined;
use regatta_worker::units::Ratio;

fn of(ratio: f64) -> CaseReading {
    let slower = ratio > 1.05;
    let word = if slower { Word::Regressed } else { Word::Same };
    let metric = json!({
        "metric": "device", "word": word, "base": 31.1e6, "head": 31.1e6 * ratio,
        "ratio": ratio, "low": 0.98 * ratio, "high": 1.02 * ratio, "threshold": 0.01,
        "detectable": 0.031, "invocations": [5, 5], "paired": true,
    });
    CaseReading {
        case: CaseId("jax/sdpa:b1,h8,s512,d64,f32,causal,both".into()),
        metric: Some(serde_json::from_value(metric).unwrap()),
        cpu_time: None,
        cause: slower.then(|| "workspace: 25182208 → 44040192 bytes".to_owned()),
        reason: None,
    }
}

fn releases() -> Vec<Version> {
    let numbers = ["0.4.38", "0.5.0", "0.5.1", "0.5.2", "0.5.3"];
    let version = |number| Version {
        spec: format!("pypi:jax=={number}").parse().unwrap(),
        name: format!("jax {number}"),
    };
    numbers.map(version).into()
}

/// The versions at these places, compared with the first; `None` where one cannot be used.
fn tried(ratios: &[(usize, Option<f64>)]) -> Vec<Tried> {
    let reason = "ERROR: No matching distribution found for jaxlib==0.5.2 <i>";
    let tried = ratios.iter().map(|&(high, ratio)| Tried {
        high,
        cases: ratio.map(of).into_iter().collect(),
        unusable: match ratio {
            Some(_) => None,
            None => Some((PairSide::Head, reason.to_owned())),
        },
        ..Tried::default()
    });
    tried.collect()
}

struct Scene {
    towards: Towards,
    row: Vec<Version>,
    searched: Searched,
}

impl Scene {
    fn of(row: Vec<Version>, ratios: &[(usize, Option<f64>)], ending: Ending) -> Scene {
        Scene {
            towards: Towards::Bad,
            searched: Searched {
                metric: Metric::Device,
                tried: tried(ratios),
                ending,
            },
            row,
        }
    }

    /// Renders the text and the page, and checks them for the properties that every one must have.
    fn shown(&self) -> (String, String) {
        let arguments = ["jax-sdpa".to_owned(), "-f".to_owned(), "a b".to_owned()];
        let bisect = Bisect {
            suite: "jax-sdpa",
            towards: self.towards,
            searched: &self.searched,
            row: &self.row,
            arguments: &arguments,
        };
        let (text, page) = (text(&bisect), page(&bisect).unwrap());
        fits(&text);
        stands_alone(&page);
        assert!(!page.contains("<i>"));
        let json: Value = serde_json::from_str(&bisect.json().unwrap()).unwrap();
        assert!(json["answer"].is_string());
        (text, page)
    }
}

fn found(before: &Version, after: &Version, suspects: &[Version]) -> FoundStep {
    FoundStep {
        before: before.clone(),
        after: after.clone(),
        suspects: suspects.to_vec(),
        case: of(1.74),
        others: vec![of(1.2)],
        moved: Vec::new(),
    }
}

#[test]
fn a_release_that_was_found() {
    let row = releases();
    let mut step = found(&row[1], &row[2], &[]);
    step.moved = ["jax", "jaxlib"]
        .map(|name| format!("{name} 0.5.0 → 0.5.1"))
        .into();
    let ending = Ending::Found(Box::new(step));
    let ratios = [(4, Some(1.72)), (3, None), (2, Some(1.74)), (1, Some(0.98))];
    let (text, page) = Scene::of(row, &ratios, ending).shown();
    insta::assert_snapshot!(text);
    assert!(page.contains("&lt;i&gt;"));
}

#[test]
fn a_version_that_gave_back_a_part_is_not_called_good_again() {
    let row = releases();
    let ending = Ending::Found(Box::new(found(&row[3], &row[4], &[])));
    let ratios = [(4, Some(1.22)), (2, Some(1.74)), (3, Some(1.74))];
    let mut scene = Scene::of(row, &ratios, ending);
    scene.towards = Towards::Fixed;
    scene.searched.metric = Metric::CpuTime;
    let (text, page) = scene.shown();
    assert!(text.starts_with("PARTLY BETTER"), "{text}");
    let text = text.split_whitespace().joined(" ");
    for shown in [text, page] {
        for words in [
            "and is still 22.0 % slower than jax 0.4.38",
            "by processor time",
        ] {
            assert!(shown.contains(words), "{shown}");
        }
    }
    scene.searched.tried = tried(&[(4, Some(1.0)), (2, Some(1.74)), (3, Some(1.74))]);
    let (text, _) = scene.shown();
    let good = "jax 0.5.3 is the first version that is good again";
    assert!(text.contains(good), "{text}");
}

#[test]
fn answers_that_name_no_version() {
    let row = releases();
    let one_of = found(&row[1], &row[4], &row[2..]);
    let stretch = |low: usize, ratio| Stretch {
        low: row[low].clone(),
        high: row[low + 2].clone(),
        ratio: Ratio(ratio),
    };
    let no_change = || Ending::NoDifference {
        case: Some(of(1.004)),
        looked_at: vec![row[2].clone(), row[4].clone()],
    };
    let spread = Ending::Spread {
        case: Some(of(1.0).case),
        parts: vec![stretch(0, 1.021), stretch(2, 1.019)],
    };
    let no_end = Ending::NoEnd {
        end: row[0].clone(),
        reason: "it does not import".to_owned(),
    };
    let mut all = String::new();
    for (ending, ratios) in [
        (
            Ending::Found(Box::new(one_of)),
            &[(4, Some(1.7)), (2, None), (3, None), (1, Some(1.0))][..],
        ),
        (no_change(), &[(4, Some(1.004)), (2, Some(1.01))]),
        (spread, &[(4, Some(1.06)), (2, Some(1.02))]),
        (no_end, &[]),
    ] {
        let (text, _) = Scene::of(row.clone(), ratios, ending).shown();
        all += &format!("{text}\n");
    }
    let ratios = [(4, Some(1.04)), (2, Some(1.01))];
    let mut scene = Scene::of(row.clone(), &ratios, no_change());
    let reading = scene.searched.tried[0].cases[0].metric.as_mut().unwrap();
    reading.change.word = Word::Inconclusive;
    all += &scene.shown().0;
    insta::assert_snapshot!(all);
}
