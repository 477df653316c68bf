//! `regatta trace` and `regatta diff` of traces, on recordings written by a shell script
//! in place of a program on a GPU.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::Place;

const PROCESS: &str = r#"{"kind":"process","pid":7,"ppid":1,"argv":["train"],"start":5,"cupti":"13.0","devices":[{"ordinal":0,"name":"NVIDIA H200","sms":132,"capability":"9.0"}]}"#;

/// A recording of ten steps of one kernel with so many blocks, `ns` long each.
fn recording(name: &str, blocks: u32, ns: u64) -> String {
    let name = serde_json::to_string(name).unwrap();
    let mut text = format!("{PROCESS}\n{{\"kind\":\"name\",\"id\":1,\"name\":{name}}}\n");
    for step in 0..10 {
        let start = 1_000_000 + step * (ns + 10_000);
        text += &format!(
            "{{\"kind\":\"copy\",\"direction\":\"HtoD\",\"bytes\":64,\"start_ns\":{},\"end_ns\":{},\"stream\":7,\"device\":0}}\n",
            start - 5_000,
            start - 4_000,
        );
        text += &format!(
            "{{\"kind\":\"kernel\",\"name\":1,\"start_ns\":{start},\"end_ns\":{},\"grid\":[{blocks},1,1],\"block\":[128,1,1],\"registers\":168,\"shared_bytes\":65536,\"local_bytes\":0,\"stream\":7,\"device\":0,\"launched_ns\":{},\"launch_ns\":3000}}\n",
            start + ns,
            start - 9_000,
        );
    }
    text + "{\"kind\":\"end\",\"at\":99999999999}\n"
}

/// A place with recordings, each a program's.
fn place() -> Place {
    let place = Place::new();
    place.write(
        "auto.jsonl",
        &recording("flash_bwd(Params)", 157, 2_600_000),
    );
    place.write("one.jsonl", &recording("flash_bwd(Params)", 1, 268_000_000));
    place
}

/// What stands in for a program that used a GPU.
fn copies(name: &str) -> String {
    format!("cp {name}.jsonl \"$REGATTA_TRACE/7-5.jsonl\"")
}

#[test]
fn two_traces_and_why_they_differ() {
    let place = place();
    for name in ["auto", "one"] {
        let out = format!("{name}.trace");
        let (stdout, stderr) = exits!(
            place,
            0,
            ["trace", "--out", &out, "--", "sh", "-c", &copies(name)]
        );
        assert!(
            stdout.contains("10 repetitions of 2 operations"),
            "{stdout}"
        );
        assert!(!stdout.contains('\u{1b}'), "no colour in a pipe");
        let stands_out = stdout.contains("few-blocks: grid 1x1x1 of flash_bwd, 1 of 132 SMs");
        assert_eq!(stands_out, name == "one", "{stdout}");
        assert!(stderr.contains(&out), "{stderr}");
    }
    let (stdout, _) = exits!(place, 1, ["diff", "auto.trace", "one.trace"]);
    let why = stdout.split("Why").nth(1).unwrap();
    assert!(
        why.trim_start()
            .starts_with("less-parallel: grid 157x1x1 → 1x1x1"),
        "{stdout}"
    );
    let words: Vec<&str> = why.split_whitespace().collect();
    assert!(words.join(" ").contains("1 of 132 SMs"), "{stdout}");
    exits!(place, 0, ["diff", "auto.trace", "auto.trace"]);
    let (stdout, _) = exits!(place, 1, ["diff", "--json", "auto.trace", "one.trace"]);
    let answer: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(answer["findings"][0]["cause"], "less-parallel");
    exits!(place, 2, ["diff", "auto.trace", "auto.jsonl"]);
    let (_, stderr) = exits!(
        place,
        1,
        [
            "diff",
            "auto.trace",
            "one.trace",
            "--output",
            "html=diff.html"
        ]
    );
    assert!(stderr.contains("report: diff.html"), "{stderr}");
    let page = fs::read_to_string(place.path().join("diff.html")).unwrap();
    assert!(page.contains("<b>less-parallel</b>: grid 157x1x1"));
    assert_eq!(page.matches("<svg").count(), 2, "both timelines");
    let (_, stderr) = exits!(
        place,
        2,
        [
            "diff",
            "auto.trace",
            "one.trace",
            "--output",
            "markdown=d.md"
        ]
    );
    assert!(stderr.contains("is written as html"), "{stderr}");
    exits!(
        place,
        0,
        ["report", "one.trace", "--output", "html=one.html"]
    );
    assert!(
        fs::read_to_string(place.path().join("one.html"))
            .unwrap()
            .contains("<svg")
    );
}

#[test]
fn what_was_not_recorded_is_said() {
    let place = place();
    let (_, stderr) = exits!(place, 3, ["trace", "--", "/bin/true"]);
    assert!(
        stderr.contains("nothing was recorded: no process used a GPU"),
        "{stderr}"
    );
    assert!(!place.path().join("true.trace").exists());
    let started = format!("echo '{PROCESS}' > \"$REGATTA_TRACE/7-5.jsonl\"");
    let (_, stderr) = exits!(place, 3, ["trace", "--", "sh", "-c", &started]);
    assert!(stderr.contains("ran nothing on it"), "{stderr}");
    let (_, stderr) = exits!(place, 2, ["trace", "--", "./no-such-program"]);
    assert!(
        stderr.contains("cannot start ./no-such-program"),
        "{stderr}"
    );
}

#[test]
fn the_exit_code_is_the_programs_when_it_fails() {
    let place = place();
    let fails = format!("{}; exit 41", copies("auto"));
    let (stdout, _) = exits!(
        place,
        41,
        ["trace", "--out", "a.trace", "--", "sh", "-c", &fails]
    );
    let words: Vec<&str> = stdout.split_whitespace().collect();
    assert!(
        words.join(" ").contains("it ended with exit code 41"),
        "{stdout}"
    );
    exits!(place, 7, ["trace", "--", "sh", "-c", "exit 7"]);
}

#[test]
fn nothing_is_overwritten_and_nobody_pushed_aside() {
    let place = place();
    let script = copies("auto");
    exits!(
        place,
        0,
        ["trace", "--out", "a.trace", "--", "sh", "-c", &script]
    );
    let again = ["trace", "--out", "a.trace", "--", "sh", "-c", "touch ran"];
    let (code, _, stderr) = place.ran(&again);
    assert_eq!(code, 2);
    assert!(stderr.contains("--replace"), "{stderr}");
    assert!(
        !place.path().join("ran").exists(),
        "found out before it ran"
    );
    exits!(
        place,
        0,
        [
            "trace",
            "--out",
            "a.trace",
            "--replace",
            "--",
            "sh",
            "-c",
            &script
        ]
    );
    exits!(
        place,
        2,
        [
            "trace",
            "--out",
            "auto.jsonl",
            "--replace",
            "--",
            "sh",
            "-c",
            &script
        ]
    );
    let held = place
        .regatta(&["trace", "--", "true"])
        .env("CUDA_INJECTION64_PATH", "/x")
        .output();
    let held = held.unwrap();
    assert_eq!(held.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&held.stderr).contains("unset it"));
}

#[test]
fn json_has_standard_output_to_itself_and_limits_are_told() {
    let place = place();
    let script = format!("echo from the program; {}", copies("auto"));
    let args = [
        "trace", "--json", "--limit", "6", "--out", "a.trace", "--", "sh", "-c", &script,
    ];
    let (stdout, stderr) = exits!(
        place,
        0,
        [
            args[0], args[1], args[2], args[3], args[4], args[5], args[6], args[7], args[8],
            args[9]
        ]
    );
    let answer: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(answer["whole"]["operations"], 6);
    assert!(stderr.contains("from the program"));
    let (stdout, _) = exits!(place, 0, ["report", "a.trace"]);
    assert!(
        stdout.contains("the earliest 14 operations were left out"),
        "{stdout}"
    );
}

#[test]
fn damage_and_hostile_names_are_shown_as_text() {
    let place = place();
    let mut text = recording("\u{1b}[31mevil<script>\u{202e}\n(int)", 1, 1_000);
    text.truncate(text.len() - 60);
    place.write("evil.jsonl", &text);
    let args = [
        "trace",
        "--output",
        "html=p.html",
        "--out",
        "e.trace",
        "--",
        "sh",
        "-c",
    ];
    let script = copies("evil");
    let (stdout, _) = exits!(
        place,
        0,
        [
            args[0], args[1], args[2], args[3], args[4], args[5], args[6], args[7], &script
        ]
    );
    assert!(
        stdout.contains("evil<script>") && !stdout.contains('\u{1b}'),
        "{stdout}"
    );
    assert!(stdout.contains("did not end by itself"), "{stdout}");
    assert!(stdout.contains("cut off"), "{stdout}");
    let page = fs::read_to_string(place.path().join("p.html")).unwrap();
    assert!(!page.contains("<script>"), "names are text");
}

#[test]
fn a_stopped_program_keeps_what_it_recorded() {
    let place = place();
    let script = format!("{}; touch ready; exec sleep 1000", copies("auto"));
    let words = ["trace", "--out", "a.trace", "--", "sh", "-c", &script];
    let mut child = place.started(&words);
    let deadline = Instant::now() + Duration::from_secs(60);
    while !place.path().join("ready").exists() {
        assert!(Instant::now() < deadline, "the program did not start");
        thread::sleep(Duration::from_millis(10));
    }
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
    let (stdout, _) = exits!(place, 0, ["report", "a.trace"]);
    assert!(stdout.contains("signal SIGTERM"), "{stdout}");
}

/// What stands in for a program that is run several times: its kernel takes so many nanoseconds
/// in each.
fn in_turn(place: &Place, name: &str, each: &[u64]) -> String {
    for (number, ns) in each.iter().enumerate() {
        let text = recording("flash_bwd(Params)", 157, *ns);
        place.write(&format!("{name}{}.jsonl", number + 1), &text);
    }
    format!(
        "n=$(cat {name}.n 2>/dev/null || echo 0); n=$((n + 1)); echo $n > {name}.n; \
         cp {name}$n.jsonl \"$REGATTA_TRACE/7-5.jsonl\""
    )
}

#[test]
fn five_runs_a_side_are_judged_by_the_rule() {
    let place = Place::new();
    let traced = |name: &str, each: &[u64]| {
        let script = in_turn(&place, name, each);
        let (runs, out) = (each.len().to_string(), format!("{name}.trace"));
        let (_, stderr) = exits!(
            place,
            0,
            [
                "trace", "--runs", &runs, "--out", &out, "--", "sh", "-c", &script
            ]
        );
        let several = each.len() > 1;
        assert_eq!(stderr.contains("run 1 of"), several, "{stderr}");
    };
    traced(
        "base",
        &[2_600_000, 2_603_000, 2_606_000, 2_601_000, 2_602_000],
    );
    traced(
        "again",
        &[2_604_000, 2_602_000, 2_599_000, 2_605_000, 2_600_000],
    );
    // Five per cent slower: half of what one run a side is let pass.
    traced(
        "slow",
        &[2_730_000, 2_733_000, 2_736_000, 2_731_000, 2_734_000],
    );
    traced(
        "noisy",
        &[2_500_000, 3_000_000, 2_600_000, 2_800_000, 2_700_000],
    );
    exits!(place, 0, ["diff", "base.trace", "again.trace"]);
    let (stdout, _) = exits!(place, 1, ["diff", "base.trace", "slow.trace"]);
    assert!(stdout.contains("the device works 5.0 % slower"), "{stdout}");
    assert!(stdout.contains("5 and 5 runs"), "{stdout}");
    exits!(
        place,
        0,
        ["diff", "base.trace", "slow.trace", "--threshold", "0.1"]
    );
    let (stdout, _) = exits!(place, 3, ["diff", "base.trace", "noisy.trace"]);
    assert!(stdout.contains("INCONCLUSIVE"), "{stdout}");
    assert!(stdout.contains("not decided: the device works"), "{stdout}");

    // The same of traces of one run each.
    for (number, ns) in [2_600_000u64, 2_603_000, 2_606_000, 2_601_000, 2_602_000]
        .iter()
        .enumerate()
    {
        traced(&format!("b{number}"), &[*ns]);
        traced(&format!("h{number}"), &[*ns + 130_000]);
    }
    exits!(place, 0, ["diff", "b0.trace", "h0.trace"]);
    let mut args = vec!["diff".to_owned(), "b0.trace".into(), "h0.trace".into()];
    for number in 1..5 {
        args.extend(["--base-run".to_owned(), format!("b{number}.trace")]);
        args.extend(["--head-run".to_owned(), format!("h{number}.trace")]);
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (code, stdout, _) = place.ran(&args);
    assert_eq!(code, 1, "{stdout}");
    let twice = ["diff", "b0.trace", "h0.trace", "--base-run", "./b0.trace"];
    let (code, _, stderr) = place.ran(&twice);
    assert!(code == 2 && stderr.contains("named twice"), "{stderr}");
}

#[test]
fn a_run_that_fails_is_the_last() {
    let place = place();
    let script = format!("echo ran >> runs; {}; exit 41", copies("auto"));
    let (_, stderr) = exits!(
        place,
        41,
        [
            "trace", "--runs", "3", "--out", "a.trace", "--", "sh", "-c", &script
        ]
    );
    assert!(stderr.contains("no further run follows"), "{stderr}");
    let runs = fs::read_to_string(place.path().join("runs")).unwrap();
    assert_eq!(runs.lines().count(), 1);
    exits!(place, 0, ["report", "a.trace"]);
}

#[test]
fn a_trace_is_written_for_perfetto() {
    let place = place();
    let script = copies("auto");
    exits!(
        place,
        0,
        ["trace", "--out", "a.trace", "--", "sh", "-c", &script]
    );
    let (stdout, stderr) = exits!(
        place,
        0,
        ["report", "a.trace", "--output", "perfetto=p.json"]
    );
    assert!(stdout.is_empty() && stderr.contains("p.json"), "{stderr}");
    let text = fs::read(place.path().join("p.json")).unwrap();
    let written: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let events = written["traceEvents"].as_array().unwrap();
    assert_eq!(
        events
            .iter()
            .filter(|event| event["cat"] == "kernel")
            .count(),
        10
    );
    let (stdout, _) = exits!(place, 0, ["report", "a.trace", "--output", "perfetto=-"]);
    assert_eq!(stdout.as_bytes(), text);
    let (_, stderr) = exits!(place, 2, ["report", "a.trace", "a.trace"]);
    assert!(
        stderr.contains("a.trace is a trace") && stderr.contains("`regatta diff BASE HEAD`"),
        "{stderr}"
    );
    for args in [
        ["history", "add", "a.trace"],
        ["baseline", "save", "a.trace"],
    ] {
        let args = [&args[..], &["a.trace"]].concat();
        let (_, stderr) = exits!(place, 2, args);
        assert!(stderr.contains("`regatta report TRACE`"), "{stderr}");
    }
    for args in [
        ["report", "auto.jsonl", "--output", "perfetto=p.json"],
        ["report", "a.trace", "--output", "perfetto=b.trace"],
        ["report", "a.trace", "--output", "perfetto=."],
    ] {
        exits!(place, 2, args);
    }
}
