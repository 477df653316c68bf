//! Properties that every page must have.

use super::*;
use crate::fixture::{self, Scene, stands_alone};
use regatta_judge::judgement::Word;

/// The page, and what its script draws cases of.
fn page_of(scene: &Scene, limits: PageLimits) -> (String, serde_json::Value) {
    let page = filled(&scene.report(), limits).unwrap();
    let document = serde_json::from_str(data(&page)).unwrap();
    (page, document)
}

fn page(scene: &Scene) -> String {
    page_of(scene, LIMITS).0
}

fn data(page: &str) -> &str {
    let (_, data) = page.split_once(" id=\"data\">").unwrap();
    data.split_once("</script>").unwrap().0
}

/// The ids in it, put together as the script does.
fn ids(document: &serde_json::Value) -> Vec<String> {
    let mut before = Vec::new();
    let ids = document["ids"].as_array().unwrap().iter();
    ids.map(|id| {
        before.truncate(id[0].as_u64().unwrap() as usize);
        before.extend(id[1].as_str().unwrap().encode_utf16());
        String::from_utf16(&before).unwrap()
    })
    .collect()
}

#[test]
fn every_case_is_on_the_page_and_nothing_is_fetched() {
    for scene in [
        fixture::passed(),
        fixture::failed(),
        fixture::incomplete(),
        fixture::refused(),
        fixture::empty(),
    ] {
        let (page, document) = page_of(&scene, LIMITS);
        stands_alone(&page);
        let rows = scene.judgement.rows.iter();
        assert!(
            rows.map(|row| &*row.case.0).eq(ids(&document)),
            "{document}"
        );
        for reason in &scene.judgement.verdict.reasons {
            let reason = reason.replace('/', "&#x2f;");
            assert!(page.contains(&reason), "lacks {reason}");
        }
    }
}

#[test]
fn nothing_is_new_on_the_page_of_a_run_alone() {
    let word = |scene: &Scene| page_of(scene, LIMITS).1["words"][0][0].clone();
    let mut scene = fixture::large(3);
    for row in &mut scene.judgement.rows {
        row.word = Word::New;
    }
    assert_eq!(word(&scene), "new");
    scene.judgement.base = None;
    assert_eq!(word(&scene), "measured");
    assert!(page(&scene).contains(r#"data-word="measured""#));
}

#[test]
fn what_failed_is_shown_once_with_its_cause_and_its_figure() {
    let failed = page(&fixture::failed());
    for needed in [
        "102.6x slower",
        "less-parallel: grid of fmha_",
        "Time against num_splits_key",
        "auto became 1",
        "regatta gate quick --baseline main --filter torch&#x2f;efficient:s10000,d32,bwd",
        "1 violated",
    ] {
        assert!(failed.contains(needed), "lacks {needed}");
    }
    let (body, _) = failed.split_once("id=\"cases\"").unwrap();
    let name = "automatic splits as good as the best explicit ones";
    assert_eq!(body.matches(name).count(), 1);
    let passed = page(&fixture::passed());
    for empty in ["id=\"changes\"", "id=\"expectations\"", "href=\"#changes\""] {
        assert!(!passed.contains(empty), "{empty}");
    }
    let refused = page(&fixture::refused());
    assert!(refused.contains("so their times were not compared."));
    assert!(refused.contains("NVIDIA H100 80GB HBM3"));
}

#[test]
fn a_page_of_many_cases_has_a_largest_size_and_forgets_none() {
    let scene = fixture::large(400);
    let limits = PageLimits {
        many: 399,
        in_full: 50,
        ..LIMITS
    };
    let (page, document) = page_of(&scene, limits);
    let rows = &scene.judgement.rows;
    let all = rows.iter().map(|row| &*row.case.0);
    assert!(all.eq(ids(&document)));
    let details = document["details"].as_array().unwrap().iter().zip(rows);
    let opened = details.filter(|(details, _)| details.is_object());
    let opened: Vec<Word> = opened.map(|(_, row)| row.word).collect();
    assert_eq!(opened, [Word::Regressed; 50], "those to act upon");
    assert!(page.contains("50 cases can be opened") && page.contains("and 95 more"));
    // The constant part, and the part that grows with the cases: below 16 MB for 100,000 of them.
    let (twice, _) = page_of(&fixture::large(800), limits);
    let (few, many) = (data(&page), data(&twice));
    let constant = page.len() - few.len();
    assert!(constant < 300_000, "{constant}");
    let more = many.len() - few.len();
    assert!(more < 155 * 400, "{more}");
}

#[test]
fn a_page_of_not_too_many_cases_opens_all_of_them() {
    let limits = PageLimits {
        samples: 300 * 8,
        ..LIMITS
    };
    let (page, document) = page_of(&fixture::large(300), limits);
    let mut details = document["details"].as_array().unwrap().iter();
    assert!(details.all(|details| details["samples"].is_array() && details["head"].is_u64()));
    assert!(data(&page).len() < 800 * 300, "{}", data(&page).len());
    let calls = document["calls"].as_array().unwrap();
    assert_eq!(calls.len(), 1, "all launch alike");
}

#[test]
fn ids_in_data_end_no_element() {
    let mut scene = fixture::large(12);
    for row in &mut scene.judgement.rows {
        row.case.0 = format!("{}</script><b>µ", row.case).into();
    }
    let (page, document) = page_of(&scene, LIMITS);
    assert!(!page.contains("</script><b>"));
    assert!(ids(&document)[7].ends_with("</script><b>µ"));
}

#[test]
fn the_worst_comes_first_and_skipped_ones_late() {
    let mut scene = fixture::failed();
    let mut rows = scene.judgement.rows.iter_mut();
    rows.rfind(|row| row.word == Word::Same).unwrap().word = Word::Skipped;
    let (_, document) = page_of(&scene, LIMITS);
    let places = document["worst"].as_array().unwrap().iter();
    let places = places.map(|place| place.as_u64().unwrap() as usize);
    let sorted: Vec<&Row> = places.map(|place| &scene.judgement.rows[place]).collect();
    let words: Vec<Word> = sorted.iter().map(|row| row.word).collect();
    let first = [Word::Error, Word::Regressed, Word::Regressed, Word::Missing];
    assert_eq!(words[..4], first);
    assert_eq!(words.last(), Some(&Word::Skipped));
    assert_eq!(*sorted[1].case.0, *"torch/efficient:s10000,d32,bwd");
}

#[test]
fn conditions_around_the_samples_are_facts_of_the_case() {
    let quiet = page(&fixture::failed());
    let mut scene = fixture::failed();
    fixture::disturb(&mut scene.head);
    let page = page(&scene);
    for fact in [
        "clocks held back",
        "other processes on the device",
        "invocations whose call waits for the device",
        "software power cap",
    ] {
        assert!(page.contains(fact), "no {fact}");
        assert!(!quiet.contains(fact), "{fact} where nothing happened");
    }
}

#[test]
fn what_got_worse_colours_no_time_that_did_not() {
    let mut scene = fixture::failed();
    let mut rows = scene.judgement.rows.iter_mut();
    let faster = rows.find(|row| row.word == Word::Improved).unwrap();
    faster.word = Word::Regressed;
    let case = faster.case.clone();
    let (page, document) = page_of(&scene, LIMITS);
    let place = scene.judgement.rows.iter().position(|row| row.case == case);
    assert_eq!(document["calm"], serde_json::json!([place.unwrap()]));
    // The case that it stands in colours no figure.
    for ancestor in [".bad .", ".good .", ".bad b", ".good b"] {
        assert!(!page.contains(ancestor), "{ancestor}");
    }
}

#[test]
fn text_between_backticks_is_code_and_a_single_one_stays() {
    let mut scene = fixture::failed();
    scene.judgement.notes = ["set `A<B` in `env`", "a ` alone"]
        .map(str::to_owned)
        .into();
    let page = page(&scene);
    assert!(page.contains("<li>set <code>A&lt;B</code> in <code>env</code></li>"));
    assert!(page.contains("<li>a ` alone</li>"));
}

#[test]
fn the_page_lists_every_demand_of_the_suite() {
    let mut scene = fixture::failed();
    let limit = r#"{"name": "one kernel", "case": {}, "metric": "launches", "at_most": 1}"#;
    let rules = &mut scene.head.header.rules;
    rules
        .expectations
        .push(serde_json::from_str(limit).unwrap());
    let page = page(&scene);
    assert!(page.contains("<b>one kernel</b>: at most 1<"), "{page}");
    let relation = "<b>automatic splits as good as the best explicit ones</b>: at most 1.10x<";
    assert!(page.contains(relation));
}
