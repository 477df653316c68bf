//! Faults of known kinds, each named by its right cause first, with what accounts for it; and
//! changes that harm nothing, which fail nothing.

mod structure;

use crate::common::{Place, fake_worker};
use serde_json::Value;

/// A suite of one case, with a baseline of it.
fn place(more: &str) -> Place {
    timed_by("", more)
}

/// The same, with a worker that says this of its clock.
fn timed_by(clock: &str, more: &str) -> Place {
    let place = Place::new();
    let clock = match clock {
        "" => String::new(),
        clock => format!(", \"--clock\", {clock:?}"),
    };
    let worker = fake_worker();
    let suite = format!(
        "schema = 1\ndescription = \"one case\"\n\
         [measure]\ninvocations = 5\nsamples = 10\n\
         [policy]\nfloor = 0.02\nconfirm = 5\n\
         [workers.fake]\ncommand = [{:?}{clock}]\n\
         [[sweep]]\nvariants = [\"fake/gpu\"]\nseq = 32\nhead_dim = 16\n{more}",
        worker.display().to_string()
    );
    place.write("s.toml", &suite);
    exits!(place, 0, ["run", "./s.toml"]);
    exits!(place, 0, ["baseline", "save", "s"]);
    place
}

fn judged(place: &Place, fault: &str, more: &[&str]) -> (i32, Value) {
    let set = format!("fake/gpu.fault={fault}");
    let args = [&["gate", "./s.toml", "--json", "--set", &set], more].concat();
    let (code, stdout, stderr) = place.ran(&args);
    let value = serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{fault}: {stderr}"));
    (code, value)
}

/// The account of a first call is in the sentence that warns of it.
#[test]
fn a_first_call_says_where_its_time_went() {
    let place = place("");
    let (code, judgement) = judged(&place, "compiles", &[]);
    assert_eq!(code, 0, "it warns: {judgement:#}");
    let metrics = judgement["rows"][0]["metrics"].as_array().unwrap();
    let first = metrics.iter().find(|of| of["metric"] == "first-call");
    let account = &first.unwrap_or_else(|| panic!("{judgement:#}"))["account"];
    assert_eq!(account["change_ns"], 21e6, "{account}");
    assert_eq!(account["lines"][0]["name"], "compiling", "{account}");
    assert_eq!(account["lines"][0]["growth_ns"], 20e6, "{account}");
    assert_eq!(account["unexplained_ns"], 1e6, "{account}");
    let set = ["gate", "./s.toml", "--set", "fake/gpu.fault=compiles"];
    let (stdout, _) = exits!(place, 0, set);
    let told = stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let words = "first call +21.0 ms = compiling 1 → 4 +20.0, not explained +1.0";
    assert!(told.contains(words), "{stdout}");
    let page = std::fs::read_to_string(place.path().join("reports/s/index.html")).unwrap();
    let table = "<caption>first call +21.0 ms is</caption><tbody><tr><td>compiling 1 → 4</td>";
    assert!(page.contains(table), "the page has a row a line");
}

#[test]
fn more_memory_is_told_by_the_sizes_of_what_is_allocated() {
    let place = place("");
    let (code, judgement) = judged(&place, "memory", &["--structure-only"]);
    assert_eq!(code, 0, "it warns: {judgement:#}");
    let account = &judgement["rows"][0]["memory"];
    assert_eq!(account["change_bytes"], 2048, "{judgement:#}");
    assert_eq!(account["unexplained_bytes"], 0, "{account}");
    let set = "fake/gpu.fault=memory";
    let args = ["gate", "./s.toml", "--structure-only", "--set", set];
    let (stdout, _) = exits!(place, 0, args);
    for words in [
        "memory 1000 B → 2.98 KiB of workspace_bytes",
        "memory +2.00 KiB = 1 x 2.00 KiB added",
    ] {
        assert!(stdout.contains(words), "{stdout}");
    }
    // A worker that tells no sizes is as before.
    let (_, judgement) = judged(&place, "workspace", &["--structure-only"]);
    assert_eq!(judgement["rows"][0]["structure"], serde_json::json!([]));
}

/// What is told adds up, and is told in text as in JSON.
#[test]
fn an_account_is_the_change_and_is_told() {
    let place = Place::with_baseline(&["fake/gpu"], &[], "");
    let (code, judgement) = judged(&place, "clone", &[]);
    assert_eq!(code, 1);
    let row = &judgement["rows"][0];
    let account = &row["account"];
    let number = |value: &Value| value.as_f64().unwrap();
    let lines = account["lines"].as_array().unwrap();
    let sum: f64 = lines.iter().map(|line| number(&line["growth_ns"])).sum();
    let all = sum + number(&account["unexplained_ns"]);
    assert!(
        (all - number(&account["change_ns"])).abs() < 1e-3,
        "{account:#}"
    );
    let added = lines.iter().find(|line| line["item"] == "added").unwrap();
    // It takes 1.3 µs, for 1 µs of which the copy from the host runs beside it.
    assert_eq!(number(&added["growth_ns"]), 800.0, "{account:#}");
    assert!(number(&row["findings"][0]["share"]) > 0.5, "{row:#}");
    let clone = "fake/gpu.fault=clone";
    let (stdout, _) = exits!(
        place,
        1,
        ["gate", "./s.toml", "--set", clone, "--fresh", "--all"]
    );
    let told = stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        told.contains("µs = copy kernel direct_copy_kernel added +0.80"),
        "{stdout}"
    );
    let page = std::fs::read_to_string(place.path().join("reports/s/index.html")).unwrap();
    assert!(
        page.contains("direct_copy_kernel added"),
        "the page tells it too"
    );
    let cases = ["diff", "s", "reports/s", "--output", "csv=csv"];
    exits!(place, 1, cases);
    let cases = std::fs::read_to_string(place.path().join("csv/cases.csv")).unwrap();
    assert!(cases.contains("added +0.80"), "{cases}");
}
