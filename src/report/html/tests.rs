//! What the page must be, whatever it shows.

use crate::judge::judgement::{Direction, Stage, StructuralChange, Word};
use crate::report::fixture::{self, Scene};
use crate::report::{Format, render};
use crate::suite::structural::{Action, Kind};

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
        for row in &scene.judgement.rows {
            let id = format!(" data-id=\"{}\"", escaped(&row.case.0));
            assert!(page.contains(&id), "{name} lacks {id}");
        }
        for reason in &scene.judgement.verdict.reasons {
            assert!(page.contains(&escaped(reason)), "{name} lacks {reason}");
        }
    }
}

#[test]
fn what_comes_from_outside_is_text() {
    let page = page(&fixture::incomplete());
    assert!(!page.contains("<script>alert"));
    assert!(page.contains("&lt;script&gt;alert"));
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
        "Samples of cpu/flash:h8,s128,d64",
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

/// What the script of a page makes rows of, and the size of everything else.
fn data(page: &str) -> (&str, usize) {
    let (_, data) = page.split_once("id=\"rest\">").unwrap();
    let (data, _) = data.split_once("</script>").unwrap();
    (data, page.len() - data.len())
}

/// The ids in it, put together as the script does.
fn figures(page: &str) -> Vec<String> {
    let (data, _) = data(page);
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    let mut before = String::new();
    let rows = data["rows"].as_array().unwrap().iter();
    rows.map(|row| {
        let common = row[0].as_u64().unwrap() as usize;
        before = format!("{}{}", &before[..common], row[1].as_str().unwrap());
        before.clone()
    })
    .collect()
}

#[test]
fn a_page_of_many_cases_has_a_largest_size_and_forgets_none() {
    let scene = fixture::large(31_000);
    let page = page(&scene);
    // What does not grow with the cases, and what does: below 16 MB for 100,000 of them.
    let (listed, rest) = data(&page);
    assert!(rest < 6_000_000, "{rest} bytes");
    assert!(listed.len() < 100 * 31_000, "{} bytes", listed.len());
    let figures = figures(&page);
    let full = page.matches("<tbody id=").count();
    assert_eq!((full, figures.len()), (300, 30_700));
    let mut all: Vec<&str> = figures.iter().map(String::as_str).collect();
    let full = page.split(" data-id=\"").skip(1);
    let full: Vec<String> = full
        .map(|rest| rest.split('"').next().unwrap().replace("&#x2f;", "/"))
        .collect();
    all.extend(full.iter().map(String::as_str));
    all.sort_unstable();
    let mut ids: Vec<&str> = scene
        .judgement
        .rows
        .iter()
        .map(|row| &*row.case.0)
        .collect();
    ids.sort_unstable();
    assert_eq!(all, ids);
    assert!(page.contains("30700 more are figures in the table"));
    let regressed = scene.judgement.rows.iter();
    let regressed = regressed.filter(|row| row.word == Word::Regressed).count();
    assert!(page.contains(&format!("And {} more", regressed - 100)));
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
        crate::report::files::write(&path, &page).unwrap();
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
