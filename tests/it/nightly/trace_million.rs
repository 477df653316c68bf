//! A program of a million operations: its trace, its page, its diff. Takes a minute, so it is
//! run by `cargo test -- --ignored nightly --nocapture`.

use std::fmt::Write;
use std::fs;
use std::time::Instant;

use crate::common::Place;

const OPERATIONS: u64 = 1_000_000;

/// The most bytes of a trace's page.
const PAGE: u64 = 10_000_000;

/// A recording of so many kernels, of which `which` names each by its place.
fn recording(kernels: u64, which: impl Fn(u64) -> (u64, u64)) -> String {
    let mut text = r#"{"kind":"process","pid":7,"ppid":1,"argv":["train"],"start":5,"devices":[{"ordinal":0,"name":"NVIDIA H200","sms":132,"capability":"9.0"}]}"#.to_owned();
    text.push('\n');
    for id in 0..kernels {
        let name = format!("kernel_{id}<float, 128, 4, cutlass::layout::RowMajor>(Params)");
        writeln!(text, r#"{{"kind":"name","id":{id},"name":"{name}"}}"#).unwrap();
    }
    for place in 0..OPERATIONS {
        let (name, grid) = which(place);
        let start = 1_000_000 + 4_000 * place;
        let (end, launched) = (start + 3_000 + 100 * (name % 9), start - 6_000);
        writeln!(
            text,
            r#"{{"kind":"kernel","name":{name},"start_ns":{start},"end_ns":{end},"grid":[{grid},1,1],"block":[128,1,1],"registers":168,"shared_bytes":65536,"local_bytes":0,"stream":7,"device":0,"launched_ns":{launched},"launch_ns":3000}}"#
        )
        .unwrap();
    }
    text + "{\"kind\":\"end\",\"at\":99999999999}\n"
}

/// Traces, reports and compares it, and gives the size of the page.
fn page_of(text: &str, repeats: bool) -> u64 {
    let place = Place::new();
    place.write("raw.jsonl", text);
    let copies = "cp raw.jsonl \"$REGATTA_TRACE/7-5.jsonl\"";
    let (stdout, _) = exits!(
        place,
        0,
        ["trace", "--out", "a.trace", "--", "sh", "-c", copies]
    );
    assert_eq!(stdout.contains("Steady state"), repeats, "{stdout}");
    let begun = Instant::now();
    exits!(place, 0, ["report", "a.trace", "--output", "html=a.html"]);
    let report = begun.elapsed();
    exits!(place, 0, ["diff", "a.trace", "a.trace"]);
    let page = fs::metadata(place.path().join("a.html")).unwrap().len();
    println!(
        "report {report:.1?}, diff {:.1?}, page {page} bytes",
        begun.elapsed() - report
    );
    page
}

#[test]
#[ignore = "takes a minute"]
fn pages_of_a_million_operations_are_small() {
    let steps = recording(23, |place| {
        let at = place % 437;
        let kernel = match at {
            0 => 0,
            1..=216 => 1 + (at - 1) % 9,
            217 => 10,
            218..=433 => 11 + (at - 218) % 9,
            last => 20 + last - 434,
        };
        (kernel, 157)
    });
    assert!(page_of(&steps, true) <= PAGE);
    // A multiplicative congruence: in no order, and the same each time.
    let any = recording(20_000, |place| {
        let mixed = place.wrapping_mul(6_364_136_223_846_793_005) >> 33;
        (mixed % 20_000, 1 + mixed % 5_000)
    });
    assert!(page_of(&any, false) <= PAGE);
}
