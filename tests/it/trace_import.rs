//! Traces of PyTorch's profiler, made by hand, reported and compared.

use std::process::Command;

use crate::common::Place;

/// A trace of PyTorch's profiler: ten steps of two kernels, `ns` and 5 µs long.
fn kineto(blocks: u32, us: u32) -> String {
    let mut events = Vec::new();
    for step in 0..10u32 {
        let start = 1_000 + step * (us + 20);
        for (at, name, dur, grid) in [
            (start, "flash_bwd", us, blocks),
            (start + us, "norm", 5, 132),
        ] {
            let id = 2 * step + u32::from(name == "norm") + 1;
            events.push(format!(
                r#"{{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 5,
                "tid": 5, "ts": {}, "dur": 3, "args": {{"correlation": {id}}}}},
                {{"ph": "X", "cat": "kernel", "name": "{name}", "pid": 0, "tid": 7, "ts": {at},
                "dur": {dur}, "args": {{"device": 0, "stream": 7, "correlation": {id},
                "registers per thread": 64, "shared memory": 0, "grid": [{grid}, 1, 1],
                "block": [128, 1, 1]}}}}"#,
                at - 9
            ));
        }
    }
    format!(
        r#"{{"schemaVersion": 1, "deviceProperties": [{{"id": 0, "name": "NVIDIA H200",
        "numSms": 132, "computeMajor": 9, "computeMinor": 0}}], "traceEvents": [{}]}}"#,
        events.join(",\n")
    )
}

#[test]
fn two_traces_of_pytorch_and_why_they_differ() {
    let place = Place::new();
    place.write("auto.json", &kineto(157, 100));
    place.write("one.json", &kineto(1, 400));
    let (stdout, _) = exits!(place, 0, ["report", "auto.json"]);
    assert!(
        stdout.contains("10 repetitions of 2 operations"),
        "{stdout}"
    );
    assert!(stdout.contains("Kineto"), "{stdout}");
    let (stdout, _) = exits!(place, 1, ["diff", "auto.json", "one.json"]);
    let words: Vec<&str> = stdout.split_whitespace().collect();
    let words = words.join(" ");
    assert!(
        words.contains("less-parallel: grid 157x1x1 → 1x1x1"),
        "{stdout}"
    );
    assert!(
        words.contains("+300.0 µs = flash_bwd (grid 157x1x1 → 1x1x1) +300"),
        "{stdout}"
    );
    exits!(
        place,
        0,
        ["diff", "auto.json", "auto.json", "--output", "html=d.html"]
    );
    exits!(
        place,
        0,
        ["report", "auto.json", "--output", "perfetto=p.json"]
    );
    // The same compressed, as PyTorch writes it for *.json.gz.
    let packed = Command::new("gzip")
        .args(["-k", "one.json"])
        .current_dir(place.path())
        .status();
    assert!(packed.unwrap().success());
    exits!(place, 1, ["diff", "auto.json", "one.json.gz"]);
}

#[test]
fn what_cannot_be_read_is_said() {
    let place = Place::new();
    let whole = kineto(157, 100);
    place.write("cut.json", &whole[..whole.len() / 2]);
    place.write("bad.json", "{\"traceEvents\": 3}");
    place.write("cpu.json", "{\"traceEvents\": []}");
    place.write("other.json", "{\"a\": 1}");
    for (file, problem) in [
        ("cut.json", "it is cut off"),
        ("bad.json", "a list of events at line 1"),
        ("cpu.json", "ProfilerActivity.CUDA"),
        ("other.json", ""),
        ("missing.json", ""),
    ] {
        let (_, stderr) = exits!(place, 2, ["report", file]);
        assert!(
            stderr.contains(file) && stderr.contains(problem),
            "{stderr}"
        );
    }
}
