//! What the page must be, whatever it shows.

use crate::fixture::{self, Scene};
use crate::{Format, render};
use regatta_core::suite::structural::{Action, Kind};
use regatta_judge::judgement::{Direction, Stage, StructuralChange, Word};

fn page(scene: &Scene) -> String {
    render(Format::Html, &scene.report())
        .unwrap()
        .remove(0)
        .text
}

fn scenes() -> [(&'static str, Scene); 6] {
    [
        ("passed", fixture::passed()),
        ("failed", fixture::failed()),
        ("incomplete", fixture::incomplete()),
        ("refused", fixture::refused()),
        ("large", fixture::large(500)),
        ("empty", fixture::empty()),
    ]
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#x27;")
        .replace('/', "&#x2f;")
}

#[test]
fn every_case_is_on_the_page_and_nothing_is_fetched() {
    for (name, scene) in scenes() {
        let page = page(&scene);
        for outside in ["http://", "https://", "src=", "@import", "url("] {
            assert!(!page.contains(outside), "{name} has {outside}");
        }
        let ids: Vec<String> = scene
            .judgement
            .rows
            .iter()
            .map(|row| row.case.0.clone())
            .collect();
        assert_eq!(figures(&page), ids, "{name}");
        for reason in &scene.judgement.verdict.reasons {
            assert!(page.contains(&escaped(reason)), "{name} lacks {reason}");
        }
    }
}

#[test]
fn what_comes_from_outside_is_text() {
    let page = page(&fixture::incomplete());
    assert!(!page.contains("<script>alert"));
    assert!(page.contains("&lt;script&gt;alert") && page.contains("u003cscript>alert"));
    assert!(!page.contains("<b>'id'"));
    assert!(!page.contains("</pre> the worker"));
    assert!(!page.contains('\u{1b}') && !page.contains('\u{202e}'));
    assert_eq!(page.matches("</html>").count(), 1);
}

#[test]
fn what_failed_is_shown_with_its_cause_and_its_figure() {
    let page = page(&fixture::failed());
    for needed in [
        "102.5x slower",
        "<b>less-parallel</b>",
        "Time against num_splits_key",
        "auto became 1",
        "Head over base, every case",
        "regatta run quick --filter torch&#x2f;efficient:s10000,d32,bwd",
        "1 of 2 expectations is broken",
    ] {
        assert!(page.contains(needed), "lacks {needed}");
    }
}

#[test]
fn a_refused_comparison_does_not_read_as_no_change() {
    let page = page(&fixture::refused());
    assert!(page.contains("The times were not compared."));
    assert!(page.contains("NVIDIA H100 80GB HBM3"));
}

#[test]
fn a_page_of_five_hundred_cases_opens_on_a_phone() {
    let page = page(&fixture::large(500));
    assert!(page.len() < 5_000_000, "{} bytes", page.len());
}

/// What the script of a page draws cases of, and the size of everything else.
fn data(page: &str) -> (serde_json::Value, usize, usize) {
    let (_, data) = page.split_once(" id=\"data\">").unwrap();
    let (data, _) = data.split_once("</script>").unwrap();
    let document = serde_json::from_str(data).unwrap();
    (document, data.len(), page.len() - data.len())
}

/// The ids in it, put together as the script does.
fn figures(page: &str) -> Vec<String> {
    let (document, ..) = data(page);
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
fn a_page_of_many_cases_has_a_largest_size_and_forgets_none() {
    let scene = fixture::large(31_000);
    let page = page(&scene);
    let (document, listed, rest) = data(&page);
    // What does not grow with the cases, and what does: below 16 MB for 100,000 of them.
    assert!(rest < 300_000, "{rest} bytes");
    assert!(listed < 155 * 31_000, "{listed} bytes");
    let rows = &scene.judgement.rows;
    let ids: Vec<&str> = rows.iter().map(|row| &*row.case.0).collect();
    assert_eq!(figures(&page), ids);
    let details = document["details"].as_array().unwrap().iter();
    let opened = details.filter(|of| of.is_object()).count();
    let regressed = rows.iter().filter(|row| row.word == Word::Regressed);
    let regressed = regressed.count();
    assert_eq!(opened, regressed, "those to act upon");
    assert!(page.contains(&format!("{opened} cases can be opened")));
    assert!(page.contains(&format!("And {} more", regressed - 5)));
}

#[test]
fn ten_thousand_cases_can_all_be_opened() {
    let page = page(&fixture::large(9_000));
    let (document, ..) = data(&page);
    let mut details = document["details"].as_array().unwrap().iter();
    assert!(details.all(|of| of["samples"].is_array() && of["head"].is_u64()));
    assert!(page.len() < 800 * 9_000, "{} bytes", page.len());
    assert_eq!(
        document["calls"].as_array().unwrap().len(),
        1,
        "all launch alike"
    );
}

#[test]
fn ids_in_data_end_no_element() {
    let mut scene = fixture::large(1_200);
    for row in &mut scene.judgement.rows {
        row.case.0 += "</script><b>µ";
    }
    let page = page(&scene);
    assert!(!page.contains("</script><b>"));
    assert!(figures(&page)[7].ends_with("</script><b>µ"));
}

#[test]
fn the_worst_comes_first_and_removed_ones_late() {
    let mut scene = fixture::failed();
    let same = scene.judgement.rows.iter_mut();
    let mut same = same.filter(|row| row.word == Word::Same);
    same.next().unwrap().word = Word::Removed;
    let (document, ..) = data(&page(&scene));
    let words: Vec<Word> = document["worst"]
        .as_array()
        .unwrap()
        .iter()
        .map(|place| scene.judgement.rows[place.as_u64().unwrap() as usize].word)
        .collect();
    let after: Vec<Word> = words[2..].to_vec();
    assert_eq!(words[..2], [Word::Regressed; 2]);
    assert_eq!(after.first(), Some(&Word::NotMeasured));
    assert_eq!(after.last(), Some(&Word::Removed));
    let first = document["worst"][0].as_u64().unwrap() as usize;
    assert_eq!(
        scene.judgement.rows[first].case.0,
        "torch/efficient:s10000,d32,bwd"
    );
}

#[test]
fn a_broken_expectation_is_shown_once_and_no_section_is_empty() {
    let told = page(&fixture::failed());
    let name = "automatic splits as good as the best explicit ones";
    let (body, _) = told.split_once("id=\"measured\"").unwrap();
    assert_eq!(body.matches(name).count(), 1);
    let told = page(&fixture::passed());
    assert!(!told.contains("id=\"changes\"") && !told.contains("id=\"expectations\""));
    assert!(!told.contains("href=\"#changes\""));
}

#[test]
fn words_that_are_not_alike_have_signs_that_are_not() {
    let words = [
        Word::Regressed,
        Word::Improved,
        Word::Same,
        Word::Inconclusive,
        Word::NotMeasured,
    ];
    let signs: std::collections::BTreeSet<&str> = words.map(super::context::sign).into();
    assert_eq!(signs.len(), words.len());
}

/// The colours of a rule's variables, in the light page or the dark one.
fn colours(sheet: &str, dark: bool) -> std::collections::BTreeMap<String, String> {
    let blocks = sheet.split(":root {").skip(1);
    let block = blocks.take(1 + usize::from(dark)).last().unwrap();
    let (block, _) = block.split_once('}').unwrap();
    let pairs = block.split(';').filter_map(|pair| pair.split_once(':'));
    let pairs = pairs.filter(|(name, _)| name.trim().starts_with("--"));
    pairs
        .map(|(name, colour)| (name.trim().to_owned(), colour.trim().to_owned()))
        .collect()
}

#[test]
fn what_a_timeline_tells_apart_has_colours_of_its_own() {
    let sheet = include_str!("timeline.css");
    for dark in [false, true] {
        let all = colours(include_str!("style.css"), dark);
        let kinds = colours(sheet, dark);
        let mut seen: Vec<&String> = kinds.values().collect();
        assert_eq!(seen.len(), 7, "{kinds:?}");
        for class in [".kx", ".kcopy", ".kset", ".khost", ".kidle"] {
            let (_, rule) = sheet.split_once(&format!("{class}{{fill:var(")).unwrap();
            let (name, _) = rule.split_once(')').unwrap();
            seen.push(&all[name]);
        }
        let distinct: std::collections::BTreeSet<&&String> = seen.iter().collect();
        assert_eq!(distinct.len(), seen.len(), "{seen:?}");
    }
}

/// Writes every fixture's page for a look in a browser, into the directory that
/// `REGATTA_PAGES` names: `REGATTA_PAGES=DIR cargo test --lib pages -- --ignored`.
#[test]
#[ignore = "writes files for people to look at"]
fn pages() {
    let dir = std::env::var("REGATTA_PAGES").expect("REGATTA_PAGES names a directory");
    for (name, scene) in scenes() {
        let path = std::path::Path::new(&dir).join(format!("{name}.html"));
        let page = page(&scene);
        println!("{name}: {} bytes", page.len());
        crate::files::write(&path, &page).unwrap();
    }
}

#[test]
fn conditions_around_the_samples_are_facts_of_the_case() {
    let mut scene = fixture::failed();
    let quiet = page(&scene);
    fixture::disturb(&mut scene.head);
    let page = page(&scene);
    for fact in [
        "clocks held back",
        "other processes on the device",
        "the call waits for the device",
        "(software power cap)",
    ] {
        assert!(page.contains(fact), "no {fact}");
        assert!(!quiet.contains(fact), "{fact} where nothing happened");
    }
    assert!(quiet.contains("one call"), "what a sample is");
}

#[test]
fn a_ratio_is_coloured_by_its_own_direction() {
    let mut scene = fixture::failed();
    let mut rows = scene.judgement.rows.iter_mut();
    let faster = rows.find(|row| row.word == Word::Improved).unwrap();
    faster.structure = Some(vec![StructuralChange {
        kind: Kind::Fill,
        direction: Direction::Worse,
        name: "fmha".to_owned(),
        before: "157x1x1".to_owned(),
        after: "1x1x1".to_owned(),
        action: Action::Fail,
    }]);
    let page = page(&scene);
    let (_, group) = page.split_once("Structure got worse").unwrap();
    let (article, _) = group.split_once("</article>").unwrap();
    assert!(article.contains("change bad"), "{article}");
    assert!(article.contains("<b class=\"good\">-"), "{article}");
    assert!(article.contains("class=\"whisker good"), "{article}");
    // The case that it stands in colours no figure.
    for ancestor in [".bad .", ".good .", ".bad b", ".good b"] {
        assert!(!page.contains(ancestor), "{ancestor}");
    }
}

#[test]
fn what_fresh_invocations_did_not_decide_is_not_confirmed() {
    let mut scene = fixture::failed();
    for row in &mut scene.judgement.rows {
        row.word = Word::Inconclusive;
        if let Some(change) = &mut row.change {
            change.stage = Stage::Confirm;
        }
    }
    let page = page(&scene);
    assert!(page.contains("fresh invocations did not decide"));
    assert!(!page.contains("confirmed by fresh"), "nothing was");
}
