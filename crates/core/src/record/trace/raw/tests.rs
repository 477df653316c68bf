use super::*;

const PROCESS: &str = r#"{"kind":"process","pid":7,"ppid":1,"argv":["a"],"start":5,"cupti":"13.0","devices":[{"ordinal":0,"name":"NVIDIA H200","sms":132,"capability":"9.0"}]}"#;
const NAME: &str = r#"{"kind":"name","id":3,"name":"flash"}"#;

fn kernel(name: u32, start: u64) -> String {
    let end = start + 10;
    format!(
        r#"{{"kind":"kernel","name":{name},"start_ns":{start},"end_ns":{end},"grid":[2,3,1],"block":[128,1,1],"registers":64,"shared_bytes":48,"local_bytes":0,"stream":7,"device":0,"launched_ns":{},"launch_ns":4}}"#,
        start - 1
    )
}

fn reading(files: &[(&str, &str)], limit: usize) -> Recording {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    read(folder.path(), limit).unwrap()
}

#[test]
fn everything_in_the_contract_is_read() {
    let text = [
        PROCESS,
        NAME,
        r#"{"kind":"operator","id":1,"name":"step/aten::copy_"}"#,
        &kernel(3, 100),
        r#"{"kind":"copy","direction":"HtoD","bytes":64,"start_ns":90,"end_ns":95,"stream":7,"device":0,"operator":1}"#,
        r#"{"kind":"set","bytes":8,"start_ns":98,"end_ns":99,"stream":7,"device":0,"operator":9}"#,
        r#"{"bytes":8,"start_ns":96,"end_ns":97,"stream":7,"device":0,"kind":"set"}"#,
        r#"{"kind":"calls","at":120,"counts":{"launches":1},"ns":{"launches":900}}"#,
        r#"{"kind":"moments","of":{}}"#,
        r#"{"kind":"moments","of":{"frees":[110,104],"allocations":[101]}}"#,
        r#"{"kind":"moments","of":{"frees":[90]}}"#,
        r#"{"kind":"dropped","records":2}"#,
        r#"{"kind":"dropped","records":3}"#,
        r#"{"kind":"device","ordinal":1,"name":"other","sms":8,"capability":"8.0"}"#,
        r#"{"kind":"end","at":130}"#,
    ]
    .join("\n");
    let recording = reading(&[("7-5.jsonl", &text), ("notes.txt", "x")], 100);
    assert_eq!(recording.damage, []);
    let process = &recording.processes[0];
    assert_eq!((process.pid, process.dropped, process.ended), (7, 5, true));
    assert_eq!(process.devices.len(), 2);
    assert_eq!(process.calls["launches"], 1);
    let moments = process.moments.as_ref().unwrap();
    assert_eq!(moments.of["frees"], [90, 104, 110], "in order");
    assert_eq!(&moments.of["allocations"][..], &[101][..]);
    assert_eq!(moments.since, 0);
    let kinds: Vec<u64> = recording.operations.iter().map(|o| o.start_ns).collect();
    assert_eq!(kinds, [90, 96, 98, 100], "by start");
    let operators = recording.operations.iter().map(|o| o.operator.as_deref());
    let operators: Vec<Option<&str>> = operators.collect();
    let untold = [None; 3];
    assert_eq!(operators[0], Some("step/aten::copy_"));
    assert_eq!(operators[1..], untold, "none, and one that was never named");
    let last = &recording.operations[3];
    let kernel = last.kernel().unwrap();
    assert_eq!(recording.name(kernel), "flash");
    assert_eq!(kernel.blocks(), 6);
    assert_eq!(kernel.threads(), 768);
    assert_eq!(kernel.shared_bytes, Some(48));
    assert_eq!(last.ns(), 10);
    assert_eq!(last.launched_ns, Some(99));
    assert_eq!(last.launch_ns, Some(4));
    assert_eq!(recording.sms(last), Some(132));
}

#[test]
fn bad_lines_are_named_and_the_others_kept() {
    let text = [
        PROCESS,
        "nonsense",
        &kernel(9, 100),
        r#"{"kind":"hologram"}"#,
        r#"{"kind":"set","bytes":8,"start_ns":96,"end_ns":95,"stream":7,"device":0}"#,
        PROCESS,
        "{\"kind\":\"name\",\"id\":3,\"na",
    ]
    .join("\n");
    let recording = reading(&[("7-5.jsonl", &text)], 100);
    assert_eq!(recording.operations.len(), 1);
    assert!(!recording.processes[0].ended);
    let damage: Vec<(usize, &str)> = recording
        .damage
        .iter()
        .map(|(_, d)| (d.line, d.problem.split(':').next().unwrap()))
        .collect();
    assert_eq!(
        damage,
        [
            (2, "it holds something unknown"),
            (4, "it holds something unknown"),
            (5, "its times make no sense"),
            (6, "a second first line"),
            (7, "it is cut off"),
        ]
    );
    let kernel = recording.operations[0].kernel().unwrap();
    assert_eq!(recording.name(kernel), "(kernel 9 without a name)");
}

#[test]
fn two_processes_share_names_and_a_line_of_time() {
    let second = PROCESS
        .replace("\"pid\":7", "\"pid\":6")
        .replace("\"start\":5", "\"start\":9");
    let files = [
        (
            "6-9.jsonl",
            [
                second.as_str(),
                r#"{"kind":"name","id":0,"name":"flash"}"#,
                &kernel(0, 50),
            ]
            .join("\n"),
        ),
        (
            "7-5.jsonl",
            [PROCESS, NAME, &kernel(3, 40), &kernel(3, 60)].join("\n"),
        ),
    ];
    let files: Vec<(&str, &str)> = files.iter().map(|(n, t)| (*n, t.as_str())).collect();
    let recording = reading(&files, 100);
    let pids: Vec<u32> = recording.processes.iter().map(|p| p.pid).collect();
    assert_eq!(pids, [7, 6], "the first to start is the first");
    assert_eq!(recording.names, ["flash"]);
    let whose: Vec<u32> = recording.operations.iter().map(|o| o.process).collect();
    assert_eq!(whose, [0, 1, 0]);
}

#[test]
fn of_many_operations_the_last_are_kept() {
    let mut text = format!("{PROCESS}\n{NAME}\n");
    for number in 0..100_000 {
        text += &kernel(3, 10 + 20 * number);
        text += "\n";
    }
    let recording = reading(&[("7-5.jsonl", &text)], 1000);
    assert_eq!(recording.operations.len(), 1000);
    assert!(recording.operations.capacity() < 5000);
    assert_eq!(recording.left_out, 99_000);
    assert_eq!(recording.operations[999].start_ns, 10 + 20 * 99_999);
}
