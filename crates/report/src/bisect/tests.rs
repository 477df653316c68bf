//! Answers of every kind, as they are shown.

use serde_json::{Value, json};

use super::*;
use crate::fixture::{fits, stands_alone};
use regatta_core::record::header::TurnSide;
use regatta_measure::versions::bisect::{Stretch, TriedOutcome};
use regatta_measure::versions::releases::moved;

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn of(ratio: f64) -> CaseReading {
    let slower = ratio > 1.05;
    let word = if slower { Word::Regressed } else { Word::Same };
    read(json!({
        "case": "jax/sdpa:b1,h8,s512,d64,f32,causal,both",
        "reading": { "ratio": ratio, "low": 0.98 * ratio, "high": 1.02 * ratio, "word": word },
        "base_ns": 31.1e6, "head_ns": 31.1e6 * ratio, "sees": 0.031,
        "cause": slower.then_some("workspace: 25182208 → 44040192 bytes"),
    }))
}

fn releases() -> Vec<Version> {
    let numbers = ["0.4.38", "0.5.0", "0.5.1", "0.5.2", "0.5.3"];
    let version =
        |number| json!({ "spec": format!("pypi:jax=={number}"), "name": format!("jax {number}") });
    read(numbers.map(version).into_iter().collect())
}

/// The versions at these places, compared with the first; `None` where one cannot be used.
fn tried(row: &[Version], ratios: &[(usize, Option<f64>)]) -> Vec<Tried> {
    let outcome = |ratio| match ratio {
        Some(ratio) => TriedOutcome::Measured {
            cases: vec![of(ratio)],
        },
        None => TriedOutcome::Unusable {
            side: TurnSide::Head,
            reason: "ERROR: No matching distribution found for jaxlib==0.5.2 <i>".to_owned(),
        },
    };
    let tried = ratios.iter().map(|&(at, ratio)| Tried {
        base: row[0].spec.clone(),
        head: row[at].spec.clone(),
        outcome: outcome(ratio),
    });
    tried.collect()
}

struct Scene {
    question: BisectQuestion,
    row: Vec<Version>,
    tried: Vec<Tried>,
    ending: Ending,
    moved: Vec<MovedPackage>,
}

impl Scene {
    fn of(row: Vec<Version>, ratios: &[(usize, Option<f64>)], ending: Ending) -> Scene {
        Scene {
            question: read(json!({
                "suite": "jax-sdpa", "plan": "", "good": row[0].spec,
                "bad": row[row.len() - 1].spec, "towards": Towards::Bad, "row": [],
                "tool": "",
            })),
            tried: tried(&row, ratios),
            row,
            ending,
            moved: Vec::new(),
        }
    }

    /// What is shown, checked for what all of it has in common.
    fn shown(&self) -> (String, String) {
        let suite = ["jax-sdpa".to_owned(), "-f".to_owned(), "a b".to_owned()];
        let bisect = Bisect {
            question: &self.question,
            row: &self.row,
            tried: &self.tried,
            ending: &self.ending,
            moved: &self.moved,
            suite: &suite,
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
    }
}

#[test]
fn a_release_that_was_found() {
    let row = releases();
    let ending = Ending::Found(Box::new(found(&row[1], &row[2], &[])));
    let ratios = [(4, Some(1.72)), (3, None), (2, Some(1.74)), (1, Some(0.98))];
    let mut scene = Scene::of(row, &ratios, ending);
    scene.moved = moved("jax==0.5.0\njaxlib==0.5.0\n", "jax==0.5.1\njaxlib==0.5.1\n");
    let (text, page) = scene.shown();
    insta::assert_snapshot!(text);
    assert!(page.contains("&lt;i&gt;"));
}

#[test]
fn a_version_that_gave_back_a_part_is_not_called_good_again() {
    let row = releases();
    let ending = Ending::Found(Box::new(found(&row[3], &row[4], &[])));
    let ratios = [(4, Some(1.22)), (2, Some(1.74)), (3, Some(1.74))];
    let mut scene = Scene::of(row, &ratios, ending);
    scene.question.towards = Towards::Fixed;
    scene.question.processor = true;
    let (text, page) = scene.shown();
    assert!(text.starts_with("PARTLY BETTER"), "{text}");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for shown in [text, page] {
        for words in [
            "and is still 22.0 % slower than jax 0.4.38",
            "by processor time",
        ] {
            assert!(shown.contains(words), "{shown}");
        }
    }
    scene.tried = tried(
        &scene.row,
        &[(4, Some(1.0)), (2, Some(1.74)), (3, Some(1.74))],
    );
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
    let no_difference = Ending::NoDifference {
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
        (no_difference, &[(4, Some(1.004)), (2, Some(1.01))]),
        (spread, &[(4, Some(1.06)), (2, Some(1.02))]),
        (no_end, &[]),
    ] {
        assert!(!ending.names_one());
        let (text, _) = Scene::of(row.clone(), ratios, ending).shown();
        all += &format!("{text}\n");
    }
    insta::assert_snapshot!(all);
}
