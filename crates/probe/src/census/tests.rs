//! CUPTI records that are built by hand. They are read by CUPTI's own reader if `REGATTA_TEST_CUDA`
//! names a CUDA toolkit, and linked without it.

use super::calls::CallCount;
use super::cupti::{Cupti, kind};
use super::json::operation;
use super::operation::{DeviceInfo, Linker};

use super::record;
use serde_json::{Value, json as value};
use std::ffi::{CStr, c_int};
use std::path::Path;
use std::ptr;

/// Sizes of the records of CUPTI 13.0, of which this code only uses a prefix.
const KERNEL_BYTES: usize = 216;
const COPY_BYTES: usize = 96;
const FILL_BYTES: usize = 88;
const CALL_BYTES: usize = 40;
const DEVICE_BYTES: usize = 184;
const MARK_BYTES: usize = 56;

fn put<T: Copy>(record: &mut [u8], at: usize, value: T) {
    assert!(at + size_of::<T>() <= record.len());
    // SAFETY: within the record, as just checked.
    unsafe {
        record
            .as_mut_ptr()
            .add(at)
            .cast::<T>()
            .write_unaligned(value)
    };
}

/// The offsets are those in `CUpti_ActivityKernel10` with a C compiler.
fn kernel(name: &'static CStr, correlation: u32, start: u64, end: u64) -> Vec<u8> {
    let mut record = vec![0; KERNEL_BYTES];
    put(&mut record, 0, kind::CONCURRENT_KERNEL);
    put(&mut record, 6, 232_u16);
    put(&mut record, 16, start);
    put(&mut record, 24, end);
    put(&mut record, 48, 7_u32);
    put(&mut record, 52, [157_i32, 2, 3]);
    put(&mut record, 64, [32_i32, 4, 1]);
    put(&mut record, 76, 16_i32);
    put(&mut record, 80, 53_504_i32);
    put(&mut record, 84, 8_u32);
    put(&mut record, 92, correlation);
    put(&mut record, 104, name.as_ptr());
    put(&mut record, 144, 42_u64);
    put(&mut record, 176, [2_u32, 1, 1]);
    record
}

/// A copy (`CUpti_ActivityMemcpy6`) or fill (`CUpti_ActivityMemset4`) of 64 bytes.
fn memory(kind: u32, bytes: usize, direction: u8, correlation: u32, start: u64) -> Vec<u8> {
    let mut record = vec![0; bytes];
    put(&mut record, 0, kind);
    put(&mut record, 4, direction);
    put(&mut record, 8, 64_u64);
    put(&mut record, 16, start);
    put(&mut record, 24, start + 10);
    put(&mut record, 40, 9_u32);
    put(&mut record, 44, correlation);
    record
}

fn call(kind: u32, id: u32, correlation: u32, start: u64, end: u64) -> Vec<u8> {
    let mut record = vec![0; CALL_BYTES];
    put(&mut record, 0, kind);
    put(&mut record, 4, id);
    put(&mut record, 8, start);
    put(&mut record, 16, end);
    put(&mut record, 28, 11_u32);
    put(&mut record, 32, correlation);
    record
}

/// A `CUpti_ActivityMarker2` that begins a range, or ends one if it has no name.
fn mark(id: u32, at: u64, name: Option<&'static CStr>) -> Vec<u8> {
    let mut record = vec![0; MARK_BYTES];
    put(&mut record, 0, kind::MARKER);
    put(&mut record, 4, if name.is_some() { 2_u32 } else { 4 });
    put(&mut record, 8, at);
    put(&mut record, 16, id);
    put(&mut record, 28, 11_u32);
    put(&mut record, 40, name.map_or(ptr::null(), CStr::as_ptr));
    record
}

fn device() -> Vec<u8> {
    let mut record = vec![0; DEVICE_BYTES];
    put(&mut record, 0, kind::DEVICE);
    put(&mut record, 44, 132_u32);
    put(&mut record, 104, [9_u32, 0]);
    put(&mut record, 112, 1_u32);
    put(&mut record, 136, c"NVIDIA H200".as_ptr());
    record
}

/// The records that a process leaves in a buffer: CUDA's device, a launch through both interfaces,
/// its kernel, a copy and a fill, and a kernel that never ended.
fn recording() -> Vec<Vec<u8>> {
    const LAUNCH: u32 = 211;
    const LAUNCH_EX: u32 = 652;
    const COPY_ASYNC: u32 = 41;
    vec![
        device(),
        call(kind::DRIVER, LAUNCH_EX, 5, 1_020, 1_080),
        call(kind::RUNTIME, LAUNCH, 5, 1_000, 1_100),
        mark(1, 950, Some(c"aten::mm, seq = 7")),
        mark(1, 1_150, None),
        kernel(c"_Z5flashPf", 5, 2_000, 3_000),
        memory(kind::MEMCPY, COPY_BYTES, 1, 6, 2_500),
        call(kind::RUNTIME, COPY_ASYNC, 6, 1_200, 1_300),
        memory(kind::MEMSET, FILL_BYTES, 0xFF, 77, 3_100),
        kernel(c"_Z5flashPf", 8, 4_000, 0),
    ]
}

/// The records in an array with the alignment that CUPTI uses.
fn aligned(records: &[Vec<u8>]) -> Vec<u64> {
    let bytes = records.concat();
    assert_eq!(bytes.len() % 8, 0);
    let words = bytes.chunks_exact(8);
    words
        .map(|word| u64::from_ne_bytes(word.try_into().unwrap()))
        .collect()
}

/// Reads records one after the other, each from its known start.
fn read_each(linker: &mut Linker, records: &[Vec<u8>]) {
    for bytes in records {
        let held = aligned(std::slice::from_ref(bytes));
        // SAFETY: the record has CUPTI's layout, and its names are static.
        if let Some(record) = unsafe { record::read(held.as_ptr().cast()) } {
            linker.add(record);
        }
    }
}

fn written(linker: &mut Linker) -> Vec<String> {
    linker
        .settle(true)
        .iter()
        .map(|one| operation(one, |id| id, |id| id))
        .collect()
}

const WRITTEN: [&str; 3] = [
    r#"{"kind":"kernel","name":0,"grid":[157, 2, 3],"block":[32, 4, 1],"cluster":[2,1,1],"registers":232,"shared_bytes":53520,"local_bytes":8,"graph":42,"start_ns":2000,"end_ns":3000,"stream":7,"device":0,"launched_ns":1000,"launch_ns":100,"operator":0}"#,
    r#"{"kind":"copy","direction":"HtoD","bytes":64,"start_ns":2500,"end_ns":2510,"stream":9,"device":0,"launched_ns":1200,"launch_ns":100}"#,
    r#"{"kind":"set","bytes":64,"start_ns":3100,"end_ns":3110,"stream":9,"device":0}"#,
];

fn holds_the_recording(linker: &mut Linker) {
    assert_eq!(written(linker), WRITTEN);
    assert_eq!(linker.ranges.operators(), ["aten::mm"]);
    assert_eq!(linker.incomplete, 1);
    let called = linker.counts.named().into_iter();
    let called: Vec<_> = called.filter(|(_, count)| count.calls > 0).collect();
    let once = CallCount { calls: 1, ns: 100 };
    assert_eq!(called, [("launches", once), ("copy_calls", once)]);
    let known = DeviceInfo {
        ordinal: 1,
        name: "NVIDIA H200".to_owned(),
        sms: 132,
        capability: (9, 0),
    };
    assert_eq!(linker.devices, [known]);
}

#[test]
fn records_become_operations_with_their_launches() {
    let mut linker = Linker::default();
    read_each(&mut linker, &recording());
    holds_the_recording(&mut linker);
}

/// The same through the pool of buffers and `cuptiActivityGetNextRecord`, which finds each record
/// by the size of the one before.
#[test]
#[ignore = "needs CUPTI"]
fn cuptis_own_reader_finds_the_same() {
    let library = library();
    let held = aligned(&recording());
    let valid = held.len() * 8;
    let (mut buffer, mut size, mut most) = (ptr::null_mut::<u8>(), 0, 1);
    // SAFETY: called in the way CUPTI does; the records fit into the buffer.
    unsafe {
        record::requested(&raw mut buffer, &raw mut size, &raw mut most);
        assert!(!buffer.is_null() && buffer.addr().is_multiple_of(8));
        assert_eq!((size, most), (record::BUFFER_BYTES, 0));
        assert!(valid <= size);
        ptr::copy_nonoverlapping(held.as_ptr().cast(), buffer, valid);
        record::completed(ptr::null_mut(), 0, buffer, size, valid);
    }
    let mut linker = Linker::default();
    let damaged = record::drain(library, |record| linker.add(record));
    assert_eq!(damaged, 0);
    holds_the_recording(&mut linker);
}

#[test]
fn a_launch_that_comes_late_is_waited_for_once() {
    let mut linker = Linker::default();
    let (early, late) = (kernel(c"k", 5, 10, 20), call(kind::DRIVER, 307, 5, 3, 8));
    read_each(&mut linker, &[early]);
    assert!(linker.settle(false).is_empty());
    read_each(&mut linker, &[late, kernel(c"k", 6, 30, 40)]);
    let settled = linker.settle(false);
    assert_eq!(settled.len(), 1);
    assert_eq!(settled[0].launch.map(|launch| launch.at), Some(3));
    let settled = linker.settle(false);
    assert_eq!((settled.len(), settled[0].launch), (1, None));
    assert!(linker.settle(true).is_empty());
}

#[test]
fn calls_are_told_one_by_one_but_for_those_that_are_operations() {
    const MALLOC: u32 = 20;
    const LAUNCH: u32 = 211;
    const EVENT_WAIT: u32 = 137;
    let mut linker = Linker::default();
    let made = |id, correlation, at| call(kind::RUNTIME, id, correlation, at, at + 2);
    let calls = [
        made(MALLOC, 1, 10),
        made(LAUNCH, 2, 20),
        made(EVENT_WAIT, 3, 30),
    ];
    read_each(&mut linker, &calls);
    linker.settle(true);
    let moments = [("allocations", 10), ("event_synchronisations", 30)];
    assert_eq!(linker.moments, moments);
    let named: Vec<&str> = linker
        .counts
        .named()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert!(
        moments.iter().all(|(name, _)| named.contains(name)),
        "{named:?}"
    );
}

/// The JSON that workers in other languages get.
#[test]
fn what_was_recorded_is_json() {
    const MALLOC: u32 = 20;
    let mut linker = Linker::default();
    let records = [
        call(kind::RUNTIME, MALLOC, 1, 3, 8),
        call(kind::DRIVER, 307, 5, 3, 8),
        kernel(c"softmax<\"a\">", 5, 10, 20),
        memory(kind::MEMCPY, COPY_BYTES, 1, 6, 30),
    ];
    read_each(&mut linker, &records);
    let moments = [
        ("begin", Some(1)),
        ("called", Some(2)),
        ("returned", None),
        ("end", Some(50)),
    ];
    let answer: Value = serde_json::from_str(&super::json(moments, linker, 3)).unwrap();
    assert_eq!(
        [
            &answer["begin"],
            &answer["called"],
            &answer["end"],
            &answer["dropped"]
        ],
        [1, 2, 50, 3]
    );
    assert!(answer.get("returned").is_none());
    assert_eq!(
        (
            &answer["counts"]["allocations"],
            &answer["ns"]["allocations"]
        ),
        (&value!(1), &value!(5))
    );
    let operations = answer["operations"].as_array().unwrap();
    assert_eq!(operations.len(), 2);
    assert_eq!(operations[0]["name"], "softmax<\"a\">");
    assert_eq!(operations[1]["direction"], "HtoD");
}

#[test]
fn the_c_interface_answers_misuse() {
    // SAFETY: null is permitted.
    let status: c_int = unsafe { super::regatta_probe_census_end(ptr::null_mut()) };
    assert_eq!(status, crate::error::WRONG_ORDER);
    assert_eq!(super::regatta_probe_census_returned(), crate::error::OK);
}

/// CUPTI of the toolkit in `REGATTA_TEST_CUDA`.
fn library() -> &'static Cupti {
    let root = std::env::var_os("REGATTA_TEST_CUDA").expect("it names a CUDA toolkit");
    let library = Cupti::open_in(&Path::new(&root).join("lib"));
    let library = library.expect("nvidia-cuda-cupti is in the toolkit");
    assert_eq!(library.version(), "13.0");
    assert!(library.now() > 0);
    Box::leak(Box::new(library))
}
