//! The report page in a real browser: headless Chromium opens copies of pages with a script in
//! them that opens, filters, sorts and measures, at two widths. One page in each run, the others
//! in the nightly one.
//!
//! The nightly tests ask axe-core, whose `axe.min.js` `REGATTA_AXE` names, and any violation fails. How long
//! things take is printed, and nothing is made of it.

#[path = "../many/runs.rs"]
#[allow(dead_code, reason = "the benchmark uses more of it")]
mod runs;

mod browser;
mod hostile;

use std::path::{Path, PathBuf};

use browser::{Ask, Browser, Found};
use runs::Which;
use serde_json::json;

/// A telephone and a desk.
const WIDTHS: [u32; 2] = [390, 1440];

/// The page that regatta writes when it is started so.
fn page(folder: &Path, words: &[&str]) -> PathBuf {
    let page = folder.join("page.html");
    let mut command = std::process::Command::new(Path::new(env!("CARGO_BIN_EXE_regatta")));
    let output = command
        .args(words)
        .arg("--output")
        .arg(format!("html={}", page.display()))
        .current_dir(folder)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(page.exists(), "{words:?} wrote no page: {errors}");
    page
}

fn made(folder: &Path, cases: usize) -> PathBuf {
    runs::write(&folder.join("base"), cases, Which::Base);
    runs::write(&folder.join("head"), cases, Which::Head);
    page(folder, &["diff", "base", "head"])
}

/// The conditions on any page, at any width.
fn holds(name: &str, found: &Found) {
    let context = format!("{name} at {}: {}", found.width, found.text);
    let at = |pointer: &str| found.json.pointer(pointer);
    let begins =
        |pointer, start| at(pointer).is_some_and(|text| text.as_str().unwrap().starts_with(start));
    for yes in [
        "expanded",
        "filled",
        "verdictsInView",
        "names",
        "escaped",
        "filtered",
        "filteredAll",
        "linked",
        "links",
    ] {
        assert_eq!(found.json[yes], true, "{yes}: {context}");
    }
    for (pointer, expected) in [
        ("/errors", json!([])),
        ("/opened", found.json["rows"].clone()),
        ("/closed", json!(0)),
        ("/injected", json!(false)),
        ("/unsorted", json!([])),
        ("/ariaSorts", json!(1)),
        ("/ariaOnButtons", json!(0)),
        ("/scopes", json!(0)),
        ("/chip/all", json!(true)),
        ("/chip/pressed", json!("true")),
        ("/reset/hash", json!("")),
    ] {
        assert_eq!(at(pointer), Some(&expected), "{pointer}: {context}");
    }
    assert!(found.number("opened") > 0, "{context}");
    assert!(
        found.number("openTable") <= found.number("closedTable"),
        "{context}"
    );
    assert!(begins("/hash", "#q="), "{context}");
    for which in ["overflow", "sweepOverflow", "roofOverflow"] {
        let Some(measured) = found.json.get(which) else {
            continue;
        };
        assert_eq!(measured["innerWidth"], found.width, "{context}");
        let wide = measured["scrollWidth"].as_u64().unwrap();
        assert!(wide <= u64::from(found.width), "{context}");
    }
    if let Some(all) = at("/facet/all") {
        assert!(*all == true && begins("/facet/hash", "#at."), "{context}");
    }
    if let Some(plotted) = found.json.get("plotted") {
        assert!(begins("/plotted/hash", "#q=d&plot=FLOP"), "{context}");
        assert_eq!(plotted["kept"], true, "{context}");
        assert_eq!(plotted["focused"], "cases", "{context}");
        let unplotted = found.json["unplotted"].as_str().unwrap();
        assert!(
            unplotted.starts_with("#q=d") && !unplotted.contains("plot"),
            "{context}"
        );
        assert_eq!(found.json["followed"], "FLOP/s", "{context}");
    }
    let mut sections = found.json["sections"].as_array().unwrap().iter();
    assert!(
        sections.all(|full| *full == true),
        "an empty section: {context}"
    );
    let signs = found.list("signs");
    let distinct: std::collections::BTreeSet<&String> = signs.iter().collect();
    assert_eq!(distinct.len(), signs.len(), "{context}");
}

/// Asserts that axe-core looked at a page, and that nothing violates its rules.
fn accessible(name: &str, found: &Found) {
    let axe = &found.json["axe"];
    let rules = axe["asked"].as_u64().unwrap_or(0);
    assert!(rules > 20, "{name}: axe-core looked at {rules} rules");
    let violations = &axe["violations"];
    let at = found.width;
    assert_eq!(violations, &json!([]), "{name} at {at}: {violations:#}");
}

#[test]
#[ignore = "needs Chromium"]
fn two_thousand_cases_with_a_base() {
    let browser = Browser::found();
    let folder = tempfile::tempdir().unwrap();
    let page = made(folder.path(), 2_000);
    let bytes = std::fs::metadata(&page).unwrap().len();
    assert!(bytes <= 2_000_000, "{bytes} bytes");
    for probe in browser.asks(&page, &WIDTHS, Ask::default()) {
        holds("2,000 cases", &probe);
        // The browser's clock stands still once a page is there: the first says how long.
        if probe.width == WIDTHS[0] {
            let (ready, times) = (probe.number("interactive"), &probe.json["times"]);
            println!("2,000 cases: {ready} ms to interactive, {times}");
        }
        assert!(probe.number("nodes") < 12_000, "{}", probe.text);
        assert_eq!(probe.number("cases"), 2_000);
        // All but one of the first page's were measured.
        assert!(probe.number("figures") >= 90, "{}", probe.text);
        let words = probe.list("words");
        let regressed = |word: &String| word.ends_with("regressed");
        assert!(words[0].ends_with("error"), "{}", words[0]);
        assert!(words[1..3].iter().all(regressed) && !words[3..].iter().any(regressed));
        let details = probe.json["details"].as_str().unwrap();
        assert!(details.contains("less-parallel"));
        assert_eq!(probe.json["sweep"]["canvas"], 1, "{}", probe.text);
        assert_eq!(probe.json["sweep"]["axes"][0], "seq", "{}", probe.text);
        assert_eq!(probe.json["sweep"]["uncoloured"], 0, "{}", probe.text);
    }
}

mod nightly {
    use super::*;

    /// The page of a run that is kept as a sample.
    fn sample(folder: &Path, name: &str) -> PathBuf {
        let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("reports/samples");
        let [run, base, head] = ["", "base", "head"].map(|side| samples.join(name).join(side));
        let [run, base, head] = [&run, &base, &head].map(|path| path.to_str().unwrap());
        if samples.join(name).join("base").exists() {
            page(folder, &["diff", base, head])
        } else {
            page(folder, &["report", run])
        }
    }

    #[test]
    #[ignore = "nightly: needs Chromium and axe-core"]
    fn runs_of_a_gpu() {
        let browser = Browser::found();
        for name in ["xformers-0.0.26", "providers", "compare-fla"] {
            let folder = tempfile::tempdir().unwrap();
            let page = sample(folder.path(), name);
            for dark in [false, true] {
                for probe in browser.asks(&page, &WIDTHS, Ask { dark, axe: true }) {
                    holds(name, &probe);
                    accessible(name, &probe);
                }
            }
        }
    }

    #[test]
    #[ignore = "nightly: needs Chromium and axe-core"]
    fn a_history() {
        let folder = tempfile::tempdir().unwrap();
        let history = folder.path().join("history/jax-nights");
        std::fs::create_dir_all(&history).unwrap();
        let name = "reports/samples/history-jax/amd-epyc-2c.jsonl";
        let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
        std::fs::copy(kept, history.join("amd-epyc-2c.jsonl")).unwrap();
        let page = page(folder.path(), &["history", "--since", "2020-01-01"]);
        for dark in [false, true] {
            for probe in Browser::found().asks(&page, &WIDTHS, Ask { dark, axe: true }) {
                let wide = probe.json["overflow"]["scrollWidth"].as_u64().unwrap();
                assert!(wide <= u64::from(probe.width), "{}", probe.text);
                assert_eq!(probe.json["errors"], json!([]), "{}", probe.text);
                accessible("a history", &probe);
            }
        }
    }

    #[test]
    #[ignore = "nightly: needs Chromium and axe-core"]
    #[should_panic(expected = "image-alt")]
    fn an_image_without_a_text_is_a_violation() {
        let folder = tempfile::tempdir().unwrap();
        let page = sample(folder.path(), "providers");
        let text = std::fs::read_to_string(&page).unwrap();
        let image = "<main><img src=\"data:,\">";
        assert!(text.contains("<main>"));
        std::fs::write(&page, text.replacen("<main>", image, 1)).unwrap();
        let ask = Ask {
            dark: false,
            axe: true,
        };
        accessible(
            "planted",
            &Browser::found().asks(&page, &WIDTHS[..1], ask)[0],
        );
    }

    #[test]
    #[ignore = "nightly: needs Chromium"]
    fn a_roof_that_was_measured() {
        let browser = Browser::found();
        let folder = tempfile::tempdir().unwrap();
        let page = sample(folder.path(), "roofline");
        for probe in browser.asks(&page, &WIDTHS, Ask::default()) {
            holds("roofline", &probe);
            let roof = &probe.json["roof"];
            assert_eq!(roof["y"], "FLOP/s", "{}", probe.text);
            assert_eq!(roof["legend"][1], "roof: 792 TFLOP/s, 4.25 TB/s");
            assert_eq!(roof["above"], json!([]), "{roof}");
            let details = probe.json["details"].as_str().unwrap();
            for part in [
                "share of the measured matrix product rate",
                " % of 792.3 TFLOP/s",
            ] {
                assert!(details.contains(part), "{details}");
            }
        }
    }

    #[test]
    #[ignore = "nightly: needs Chromium"]
    fn names_that_mean_harm() {
        let browser = Browser::found();
        let folder = tempfile::tempdir().unwrap();
        hostile::write(folder.path(), Which::Base);
        hostile::write(folder.path(), Which::Head);
        let page = page(folder.path(), &["diff", "base", "head"]);
        for probe in browser.asks(&page, &WIDTHS, Ask::default()) {
            holds("hostile texts", &probe);
        }
        hostile::rename(&page);
        for probe in browser.asks(&page, &WIDTHS, Ask::default()) {
            holds("hostile ids", &probe);
            let shown = probe.list("first").concat() + &probe.list("ids").concat();
            for name in hostile::SEEN {
                assert!(
                    shown.contains(name),
                    "{name:?} is not shown: {}",
                    probe.text
                );
            }
        }
    }

    #[test]
    #[ignore = "nightly: needs Chromium"]
    fn a_page_prints() {
        let browser = Browser::found();
        let folder = tempfile::tempdir().unwrap();
        let page = made(folder.path(), 60);
        let printed = browser.prints(&page, folder.path());
        assert!(printed.starts_with(b"%PDF") && printed.len() > 10_000);
    }
}
