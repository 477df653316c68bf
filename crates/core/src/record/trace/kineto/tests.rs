//! The files here are made by hand after traces that PyTorch wrote.

use super::*;

fn recorded(text: &str) -> Recording {
    read(text.as_bytes(), "a.json", 1_000).unwrap()
}

fn refused(text: &str) -> String {
    read(text.as_bytes(), "a.json", 1_000).unwrap_err()
}

const KINETO: &str = r#"
{
  "schemaVersion": 1,
  "deviceProperties": [
    {"id": 0, "name": "NVIDIA H100", "totalGlobalMem": 102085492736, "computeMajor": 9,
     "computeMinor": 0, "warpSize": 32, "numSms": 132}
  ],
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": 1775078550000000000,
  "traceEvents": [
  {"name": "process_name", "ph": "M", "ts": 88.755, "pid": 51, "tid": 0, "args": {"name": "p"}},
  {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "pid": 51, "tid": 52,
   "ts": 10.0, "dur": 90.0, "args": {"External id": 9}},
  {"ph": "X", "cat": "user_annotation", "name": "forward", "pid": 51, "tid": 52,
   "ts": 10.5, "dur": 60.0, "args": {"External id": 9}},
  {"ph": "X", "cat": "kernel", "name": "flash_fwd", "pid": 0, "tid": 7,
   "ts": 30.25, "dur": 4.001,
   "args": {"queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": 11,
    "registers per thread": 168, "shared memory": 65536, "blocks per SM": 1.2,
    "warps per SM": 4.7, "grid": [157, 1, 1], "block": [128, 1, 1],
    "est. achieved occupancy %": 8}},
  {"ph": "X", "cat": "cpu_op", "name": "aten::linear", "pid": 51, "tid": 52,
   "ts": 12, "dur": 20, "args": {"External id": 10, "Call stack": "a/b.py(3): f"}},
  {"ph": "X", "cat": "cuda_driver", "name": "cuLaunchKernel", "pid": 51, "tid": 52,
   "ts": 15.5, "dur": 2, "args": {"cbid": 307, "correlation": 11}},
  {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 51, "tid": 52,
   "ts": 15, "dur": 3, "args": {"cbid": 211, "correlation": 11}},
  {"ph": "f", "id": 11, "pid": 0, "tid": 7, "ts": 30.25, "cat": "ac2g", "name": "ac2g", "bp": "e"},
  {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy DtoH (Device -> Pinned)", "pid": 0, "tid": 7,
   "ts": 40, "dur": 1, "args": {"device": 0, "stream": 7, "correlation": 12, "bytes": 4,
    "memory bandwidth (GB/s)": "N/A"}},
  {"ph": "X", "cat": "gpu_memset", "name": "Memset (Device)", "pid": 0, "tid": 7,
   "ts": 20, "dur": 1, "args": {"device": 0, "stream": 7, "correlation": 13}},
  {"ph": "X", "cat": "Trace", "ts": 1, "dur": 3, "pid": "Spans", "tid": "PyTorch Profiler",
   "name": "PyTorch Profiler (0)", "args": {"Op count": 4}},
  {"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": 88.055}
  ],
  "traceName": "a.json"
}"#;

#[test]
fn operations_of_kineto_have_their_launches_and_operators() {
    assert!(is(KINETO.as_bytes()).unwrap());
    let recording = recorded(KINETO);
    assert_eq!(recording.damage, []);
    let [set, kernel, copy] = &recording.operations[..] else {
        panic!("{:?}", recording.operations);
    };
    // In nanoseconds, and of the runtime's call, which is around the driver's.
    assert_eq!((kernel.start_ns, kernel.end_ns), (30_250, 34_251));
    assert_eq!(kernel.launched_ns, Some(15_000));
    assert_eq!(kernel.launch_ns, Some(3_000));
    assert_eq!(kernel.operator.as_deref(), Some("forward/aten::linear"));
    let launch = kernel.kernel().unwrap();
    assert_eq!((launch.grid, launch.block), ([157, 1, 1], [128, 1, 1]));
    assert_eq!(launch.registers, Some(168));
    assert_eq!(launch.shared_bytes, Some(65_536));
    // Missing members stay unknown.
    assert_eq!((launch.local_bytes, launch.cluster), (None, None));
    assert_eq!((copy.launched_ns, copy.operator.as_deref()), (None, None));
    let copied = Work::Copy {
        direction: "DtoH".to_owned(),
        bytes: Some(4),
    };
    assert_eq!(&copy.work, &copied);
    assert_eq!(&set.work, &Work::Set { bytes: None });
    let [process] = &recording.processes[..] else {
        panic!("{:?}", recording.processes);
    };
    assert_eq!((process.pid, process.calls.len()), (51, 0));
    assert_eq!(recording.sms(kernel), Some(132));
}

#[test]
fn what_is_no_trace_of_kineto_is_refused_with_the_place() {
    let cut = &KINETO[..KINETO.len() / 2];
    assert!(refused(cut).contains("it is cut off"));
    for (text, problem) in [
        ("", "cut off"),
        ("[]", "an object with traceEvents"),
        (r#"{"schemaVersion": 1}"#, "missing field `traceEvents`"),
        (r#"{"traceEvents": 3}"#, "a list of events at line 1"),
        (r#"{"traceEvents": [3]}"#, "line 1"),
        (r#"{"traceEvents": []} {}"#, "trailing"),
    ] {
        let message = refused(text);
        assert!(message.contains(problem), "{text}: {message}");
    }
}

#[test]
fn single_events_that_make_no_sense_are_named() {
    let text = r#"{"traceEvents": [
        {"ph": "X", "cat": "kernel", "name": "a", "ts": 5, "dur": 1, "args": {"block": [1, 1, 1]}},
        {"ph": "X", "cat": "kernel", "name": "a", "dur": 1},
        {"ph": "X", "cat": "gpu_memset", "ts": -5, "dur": 1, "args": null},
        {"ph": "X", "cat": "gpu_memset", "ts": 1e300, "dur": 1},
        {"ph": "X", "cat": 7, "ts": {}, "dur": []},
        {"ph": "X", "cat": "gpu_memset", "name": "b", "ts": 5, "dur": 1, "pid": 3, "tid": 8}]}"#;
    let recording = recorded(text);
    assert_eq!(recording.operations.len(), 1);
    let operation = &recording.operations[0];
    assert_eq!((operation.device, operation.stream), (3, Some(8)));
    let damage: Vec<(usize, &str)> = recording
        .damage
        .iter()
        .map(|(_, damage)| (damage.line, damage.problem.as_str()))
        .collect();
    assert_eq!(damage.len(), 4, "{damage:?}");
    assert_eq!(damage[0], (1, "a kernel without its grid"));
}
