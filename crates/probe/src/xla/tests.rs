//! A simulated XLA: call frames with the layout of `c_api.h`, and an API that returns a stream, or
//! an error with a message.

use super::ffi::*;
use super::*;
use crate::clock::{CacheState, StreamClock};
use crate::tests::mock::{ISSUE_NS, Mock};
use std::ffi::c_char;
use std::mem::offset_of;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

const STREAM: usize = 0x5eed;

unsafe extern "C" fn gives_a_stream(asked: *mut StreamGet) -> ErrorHandle {
    // SAFETY: called with a pointer to a live variable.
    unsafe { (*asked).stream = ptr::without_provenance_mut(STREAM) };
    null_mut()
}

/// The number of live errors, each of which must be freed once.
static ERRORS: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" fn gives_an_error(_: *mut StreamGet) -> ErrorHandle {
    ERRORS.fetch_add(1, Ordering::SeqCst);
    ptr::without_provenance_mut(1)
}

unsafe extern "C" fn message(asked: *mut ErrorMessage) {
    const WORDS: &[u8] = b"no stream here\0";
    // SAFETY: called with a pointer to a live variable.
    unsafe { (*asked).message = WORDS.as_ptr().cast::<c_char>() };
}

unsafe extern "C" fn destroy(_: *mut ErrorDestroy) {
    ERRORS.fetch_sub(1, Ordering::SeqCst);
}

fn version(major: c_int) -> ApiVersion {
    ApiVersion {
        struct_size: size_of::<ApiVersion>(),
        extension_start: null_mut(),
        major,
        minor: 3,
    }
}

fn api(stream_get: unsafe extern "C" fn(*mut StreamGet) -> ErrorHandle) -> XlaApi {
    XlaApi {
        struct_size: 8 * size_of::<XlaApi>(),
        extension_start: null_mut(),
        api_version: version(0),
        internal_api: ptr::null(),
        error_create: ptr::null(),
        error_get_message: Some(message),
        error_destroy: Some(destroy),
        handler_register: ptr::null(),
        stream_get: Some(stream_get),
    }
}

fn frame(api: &XlaApi) -> CallFrame {
    CallFrame {
        struct_size: 4 * size_of::<CallFrame>(),
        extension_start: null_mut(),
        api,
        context: null_mut(),
        stage: EXECUTE,
    }
}

fn marks() -> &'static Marks {
    Box::leak(Box::new(Marks::new()))
}

/// The numbers come from a C compiler with `c_api.h` of jaxlib 0.10.2 on x86-64.
#[test]
fn structs_lie_as_in_the_header() {
    assert_eq!(offset_of!(CallFrame, api), 16);
    assert_eq!(offset_of!(CallFrame, context), 24);
    assert_eq!(offset_of!(CallFrame, stage), 32);
    assert_eq!(offset_of!(Metadata, api_version), 8);
    assert_eq!(offset_of!(Metadata, traits), 32);
    assert_eq!(offset_of!(MetadataExtension, metadata), 24);
    assert_eq!(offset_of!(XlaApi, error_destroy), 64);
    assert_eq!(offset_of!(XlaApi, stream_get), 80);
    assert_eq!(offset_of!(StreamGet, stream), 24);
    assert_eq!(size_of::<ApiVersion>(), 24);
}

#[test]
fn the_metadata_query_is_answered_and_marks_nothing() {
    let mut metadata = Metadata {
        // The size as in the header, without the padding after the last field.
        struct_size: offset_of!(Metadata, traits) + 4,
        api_version: version(-1),
        traits: u32::MAX,
    };
    let mut extension = MetadataExtension {
        base: Extension {
            struct_size: size_of::<MetadataExtension>(),
            kind: METADATA,
            next: null_mut(),
        },
        metadata: &raw mut metadata,
    };
    let api = api(gives_a_stream);
    let mut frame = frame(&api);
    frame.extension_start = (&raw mut extension).cast();
    // SAFETY: the frame has XLA's layout. It marks nothing in the process's marks.
    let error = unsafe { regatta_probe_xla_mark((&raw mut frame).cast()) };
    assert!(error.is_null());
    assert_eq!(
        (metadata.api_version.major, metadata.api_version.minor),
        VERSION
    );
    assert_eq!(metadata.traits, 0);
    // A struct that is too short for the answer is not changed.
    metadata.struct_size = 8;
    metadata.traits = 7;
    // SAFETY: as above.
    assert!(unsafe { answer_metadata(&raw const frame) });
    assert_eq!(metadata.traits, 7);
}

#[test]
fn the_stream_is_asked_for_as_the_interface_says() {
    let api = api(gives_a_stream);
    let mut frame = frame(&api);
    // SAFETY: here and below, the frame has XLA's layout.
    assert_eq!(unsafe { stream(&raw const frame) }, Ok(STREAM));
    frame.stage = 0;
    let early = unsafe { stream(&raw const frame) };
    assert!(early.unwrap_err().contains("another stage"));
}

#[test]
fn an_error_of_xlas_is_kept_in_its_words_and_freed() {
    let api = api(gives_an_error);
    // SAFETY: the frame has XLA's layout.
    let words = unsafe { stream(&frame(&api)) };
    assert_eq!(words, Err("no stream here".to_owned()));
    assert_eq!(ERRORS.load(Ordering::SeqCst), 0);
    let marks = marks();
    marks.mark(words);
    let error = marks.stream().unwrap_err().to_string();
    assert_eq!(error, "no GPU clock: no stream here");
}

#[test]
fn a_marker_records_once_on_its_stream_alone() {
    let marks = marks();
    assert!(matches!(marks.stream(), Err(Error::Order(_))));
    let recorded = Arc::new(AtomicU32::new(0));
    let record = || {
        let recorded = Arc::clone(&recorded);
        Box::new(move || {
            recorded.fetch_add(1, Ordering::SeqCst);
            Ok(())
        })
    };
    marks.mark(Ok(STREAM));
    assert_eq!(recorded.load(Ordering::SeqCst), 0, "no sample waits");
    assert_eq!(marks.stream(), Ok(STREAM));

    let awaited = marks.wait_for(STREAM, 1, record());
    let before = Instant::now();
    // Like a client that queues from a thread of its own after the call has returned.
    let late = thread::spawn(|| marks.mark(Ok(STREAM)));
    assert!(awaited.wait(Duration::from_secs(20)).unwrap() >= before);
    late.join().unwrap();
    marks.mark(Ok(STREAM));
    assert_eq!(recorded.load(Ordering::SeqCst), 1);

    let awaited = marks.wait_for(STREAM, 1, record());
    marks.mark(Ok(STREAM + 1));
    let other = awaited.wait(Duration::from_secs(20)).unwrap_err();
    assert!(other.to_string().contains("stream 0x5eee"), "{other}");
    assert_eq!(recorded.load(Ordering::SeqCst), 1);
}

#[test]
fn a_stop_event_queued_with_the_work_reads_alike() {
    const KERNEL_NS: u64 = 5_000;
    let mut clock = StreamClock::new(Mock::new()).unwrap();
    clock.limited(Duration::from_secs(60));
    clock.calibrate().unwrap();
    let plain = clock
        .sample(CacheState::Cold, |device| device.kernel(KERNEL_NS))
        .unwrap();
    let begun = clock.begin(CacheState::Cold).unwrap();
    let device = clock.device();
    device.kernel(KERNEL_NS).unwrap();
    let queued_ns = device.host_ns();
    device.record(Mark::Stop).unwrap();
    let marked = clock.end_queued(begun, queued_ns).unwrap();
    assert_eq!(marked.device_ns, plain.device_ns);
    assert_eq!(marked.host_ns, ISSUE_NS as f64);
    assert!(clock.device().gate_is_open());
}
