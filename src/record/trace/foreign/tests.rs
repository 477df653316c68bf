//! The files here are made by hand after traces that the tools wrote.

use super::*;
use crate::machine::Work;

fn read(source: Source, text: &str) -> Recording {
    source.read(text.as_bytes(), "a.json", 1_000).unwrap()
}

fn refused(source: Source, text: &str) -> String {
    source.read(text.as_bytes(), "a.json", 1_000).unwrap_err()
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
  {"ph": "X", "cat": "cpu_op", "name": "aten::attention", "pid": 51, "tid": 52,
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
    assert_eq!(Source::of(KINETO.as_bytes()), Some(Source::Kineto));
    let recording = read(Source::Kineto, KINETO);
    assert_eq!(recording.damage, []);
    let [set, kernel, copy] = &recording.operations[..] else {
        panic!("{:?}", recording.operations);
    };
    // In nanoseconds, and of the runtime's call, which is around the driver's.
    assert_eq!((kernel.start_ns, kernel.end_ns), (30_250, 34_251));
    assert_eq!(
        (kernel.launched_ns, kernel.launch_ns),
        (Some(15_000), Some(3_000))
    );
    assert_eq!(kernel.operator.as_deref(), Some("forward/aten::attention"));
    let launch = kernel.kernel().unwrap();
    assert_eq!((launch.grid, launch.block), ([157, 1, 1], [128, 1, 1]));
    assert_eq!(
        (launch.registers, launch.shared_bytes),
        (Some(168), Some(65_536))
    );
    // What is not told is not known.
    assert_eq!((launch.local_bytes, launch.cluster), (None, None));
    assert_eq!((copy.launched_ns, copy.operator.as_deref()), (None, None));
    let copied = Work::Copy {
        direction: "DtoH".to_owned(),
        bytes: Some(4),
    };
    assert_eq!(
        (&copy.work, &set.work),
        (&copied, &Work::Set { bytes: None })
    );
    let [process] = &recording.processes[..] else {
        panic!("{:?}", recording.processes);
    };
    assert_eq!((process.pid, process.calls.len()), (51, 0));
    assert_eq!(recording.sms(kernel), Some(132));
}

#[test]
fn traces_of_older_pytorch_are_read() {
    let text = r#"{"schemaVersion": 1, "computeProperties": [{"id": 0, "name": "V100",
        "major": 7, "minor": 0, "multiProcessorCount": 80}], "traceEvents": [
        {"ph": "X", "cat": "Operator", "name": "aten::mm", "pid": 9, "tid": "9",
         "ts": 1623142623529080, "dur": 20, "args": {"Device": 9, "External id": 2}},
        {"ph": "X", "cat": "Runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": "9",
         "ts": 1623142623529088, "dur": 2, "args": {"cbid": 211, "correlation": 5}},
        {"ph": "X", "cat": "Kernel", "name": "gemm", "pid": 0, "tid": "stream 7",
         "ts": 1623142623529248, "dur": 7, "args": {"device": 0, "stream": 7, "correlation": 5,
         "registers per thread": 0, "shared memory": 0, "grid": [5, 1, 1], "block": [32, 1, 1]}}]}"#;
    let recording = read(Source::Kineto, text);
    let kernel = &recording.operations[0];
    assert_eq!(kernel.start_ns, 1_623_142_623_529_248_000);
    assert_eq!(kernel.launched_ns, Some(1_623_142_623_529_088_000));
    assert_eq!(
        (kernel.operator.as_deref(), kernel.stream),
        (Some("aten::mm"), Some(7))
    );
    let launch = kernel.kernel().unwrap();
    // No kernel has no register; one may have no shared memory.
    assert_eq!((launch.registers, launch.shared_bytes), (None, Some(0)));
    assert_eq!(recording.sms(kernel), Some(80));
}

#[test]
fn what_is_no_trace_of_kineto_is_refused_with_the_place() {
    let cut = &KINETO[..KINETO.len() / 2];
    assert!(refused(Source::Kineto, cut).contains("it is cut off"));
    for (text, problem) in [
        ("", "cut off"),
        ("[]", "an object with traceEvents"),
        (r#"{"schemaVersion": 1}"#, "there is no traceEvents"),
        (r#"{"traceEvents": 3}"#, "a list of events at line 1"),
        (r#"{"traceEvents": [3]}"#, "line 1"),
        (r#"{"traceEvents": []} {}"#, "trailing"),
    ] {
        let told = refused(Source::Kineto, text);
        assert!(told.contains(problem), "{text}: {told}");
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
    let recording = read(Source::Kineto, text);
    assert_eq!(recording.operations.len(), 1);
    let found = &recording.operations[0];
    assert_eq!((found.device, found.stream), (3, Some(8)));
    let told: Vec<(usize, &str)> = recording
        .damage
        .iter()
        .map(|(_, damage)| (damage.line, damage.problem.as_str()))
        .collect();
    assert_eq!(told.len(), 4, "{told:?}");
    assert_eq!(told[0], (1, "a kernel without its grid"));
}

const NSYS: &str = "
NOTICE: Existing SQLite export found: x.sqlite
Processing [x.sqlite] with [cuda_gpu_trace.py]...
Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes (MB),Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name
1134711990,661398,123,,,,,,,,,,4.194,6337.593,Pinned,Device,NVIDIA H200 (1),1,,13,[CUDA memcpy Host-to-Device]
1136125733,7072,128,4096,1,1,256,1,1,16,0.000,0.025,,,,,NVIDIA H200 (1),1,,13,\"bench::<unnamed>::saxpy(float, const float *)\"
1136151973,500,130,,,,,,,,,,0.004,7.9,Device,,NVIDIA H200 (1),1,,14,[CUDA memset]

";

#[test]
fn a_table_of_nsys_is_read_behind_its_notices() {
    assert_eq!(Source::of(NSYS.as_bytes()), Some(Source::Nsys));
    let recording = read(Source::Nsys, NSYS);
    assert_eq!(recording.damage, []);
    let [copy, kernel, set] = &recording.operations[..] else {
        panic!("{:?}", recording.operations);
    };
    assert_eq!((kernel.start_ns, kernel.ns()), (1_136_125_733, 7_072));
    assert_eq!(
        (kernel.device, kernel.stream, kernel.launched_ns),
        (1, Some(13), None)
    );
    let launch = kernel.kernel().unwrap();
    assert_eq!(
        recording.name(launch),
        "bench::<unnamed>::saxpy(float, const float *)"
    );
    assert_eq!((launch.grid, launch.registers), ([4096, 1, 1], Some(16)));
    // Rounded to kilobytes there.
    assert_eq!(
        (launch.shared_bytes, copy.bytes(), set.bytes()),
        (None, None, None)
    );
    assert!(matches!(&copy.work, Work::Copy { direction, .. } if direction == "HtoD"));
    assert_eq!(set.work, Work::Set { bytes: None });
    let device = recording.device(kernel).unwrap();
    assert_eq!((device.name.as_str(), device.sms), ("NVIDIA H200", 0));
    assert_eq!(recording.sms(kernel), None);
}

#[test]
fn units_of_nsys_are_its_columns() {
    let text = "Start (us),Duration (ms),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (B),DymSMem (B),Bytes (B),Device,Strm,Name\n\
                5.5,0.25,1,2,1,1,32,1,1,8,16,1024,,GPU,7,k\n\
                300,0.25,1,,,,,,,,,,640,GPU,7,[CUDA memcpy DtoD]\n\
                x,0.25,1,,,,,,,,,,640,GPU,7,[CUDA memcpy DtoD]\n\
                700,0.25,1,,,,,,,,,,,GPU,7,k\n";
    let recording = read(Source::Nsys, text);
    let [kernel, copy] = &recording.operations[..] else {
        panic!("{:?}", recording.operations);
    };
    assert_eq!((kernel.start_ns, kernel.ns()), (5_500, 250_000));
    assert_eq!(kernel.kernel().unwrap().shared_bytes, Some(1_040));
    assert_eq!(copy.bytes(), Some(640));
    let lines: Vec<usize> = recording
        .damage
        .iter()
        .map(|(_, damage)| damage.line)
        .collect();
    assert_eq!(lines, [4, 5], "{:?}", recording.damage);
    assert!(refused(Source::Nsys, "a,b\n").contains("no line names the columns"));
    let days = text.replace("Start (us)", "Start (days)");
    assert!(refused(Source::Nsys, &days).contains("in days"));
}

#[test]
fn other_files_are_of_nobody() {
    for text in [
        "",
        "{}",
        "{\"kind\":\"trace\"}",
        "Name,Start\n",
        "\u{1f}\u{8b}",
    ] {
        assert_eq!(Source::of(text.as_bytes()), None, "{text}");
    }
}
