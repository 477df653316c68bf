//! Reads CUPTI's activity records from memory.
//!
//! Fields are read at fixed offsets, which CUPTI has kept from CUDA 12.0 to 13.0
//! (cupti_activity.h): of `CUpti_ActivityKernel9` and 10 (the cluster is the last field that is
//! read), `CUpti_ActivityMemcpy5` and 6, `CUpti_ActivityMemcpyPtoP4`, `CUpti_ActivityMemset4`,
//! `CUpti_ActivityAPI`, `CUpti_ActivityDevice5`, `CUpti_ActivityMarker2`.
//!
//! Records come in a limited number of buffers, which are reused. If all of them are full, CUPTI
//! gets no buffer, and drops and counts records.

use super::calls::{ApiCall, driver_class, runtime_class};
use super::cupti::{Cupti, MAX_LIMIT_REACHED, kind};
use super::operation::{DeviceInfo, RecordedKernel, RecordedOperation, RecordedWork};
use super::ranges::{RangeMark, RangeName};
use std::alloc::{Layout, alloc};
use std::collections::VecDeque;
use std::ffi::{CStr, c_char, c_void};
use std::panic::catch_unwind;
use std::ptr;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// `CUPTI_ACTIVITY_FLAG_MARKER_START` and `_END`. An instantaneous marker has neither.
const MARKER_START: u32 = 1 << 1;
const MARKER_END: u32 = 1 << 2;

/// The used fields of a record. Times are ns of CUPTI's clock.
#[derive(Debug, Clone)]
pub enum Record<'a> {
    /// An operation of the device, with the name of its kernel, which has no id yet.
    Operation(RecordedOperation, Option<&'a CStr>),
    Call(ApiCall),
    Device(DeviceInfo),
    Range(RangeMark<'a>),
}

/// The field at an offset of a record.
///
/// # Safety
/// The record has a `T` there.
unsafe fn field<T: Copy>(record: *const u8, at: usize) -> T {
    // SAFETY: required of the caller.
    unsafe { record.add(at).cast::<T>().read_unaligned() }
}

/// Reads a record; `None` for other kinds of records.
///
/// # Safety
/// `record` comes from `cuptiActivityGetNextRecord`, its buffer was not passed on since, and names
/// live as long.
pub unsafe fn read<'a>(record: *const u8) -> Option<Record<'a>> {
    // SAFETY: every record starts with its kind, and has the fields of that kind (see the head of
    // this file).
    unsafe {
        Some(match field(record, 0) {
            kind::CONCURRENT_KERNEL => {
                let kernel = operation(record, RecordedWork::Kernel(kernel(record)), 40, 92);
                Record::Operation(kernel, Some(text(field(record, 104))))
            }
            of @ (kind::MEMCPY | kind::MEMSET | kind::MEMCPY_P2P) => {
                let bytes = field(record, 8);
                let (work, correlation) = match of {
                    kind::MEMSET => (RecordedWork::Fill { bytes }, 44),
                    kind::MEMCPY => {
                        let direction = direction(field(record, 4));
                        (RecordedWork::Copy { direction, bytes }, 44)
                    }
                    _ => {
                        let direction = "PtoP";
                        (RecordedWork::Copy { direction, bytes }, 60)
                    }
                };
                Record::Operation(operation(record, work, 32, correlation), None)
            }
            of @ (kind::DRIVER | kind::RUNTIME) => {
                let id = field(record, 4);
                let class = match of {
                    kind::DRIVER => driver_class(id),
                    _ => runtime_class(id),
                };
                Record::Call(ApiCall {
                    class: class?,
                    start: field(record, 8),
                    end: field(record, 16),
                    thread: field(record, 28),
                    correlation: field(record, 32),
                })
            }
            kind::MARKER => {
                let domain: *const c_char = field(record, 48);
                let begun = match field::<u32>(record, 4) & (MARKER_START | MARKER_END) {
                    MARKER_START => Some(RangeName {
                        domain: (!domain.is_null()).then(|| text(domain)),
                        name: text(field(record, 40)),
                    }),
                    MARKER_END => None,
                    _ => return None,
                };
                Record::Range(RangeMark {
                    at: field(record, 8),
                    thread: field(record, 28),
                    id: field(record, 16),
                    begun,
                })
            }
            kind::DEVICE => Record::Device(DeviceInfo {
                ordinal: field(record, 112),
                name: text(field(record, 136)).to_string_lossy().into_owned(),
                sms: field(record, 44),
                capability: (field(record, 104), field(record, 108)),
            }),
            _ => return None,
        })
    }
}

/// Reads an operation. All records have its times at the same offset, and the stream 8 bytes after
/// the device.
///
/// # Safety
/// As [`field`].
unsafe fn operation(
    record: *const u8,
    work: RecordedWork,
    device: usize,
    correlation: usize,
) -> RecordedOperation {
    // SAFETY: required of the caller.
    unsafe {
        RecordedOperation {
            device: field(record, device),
            stream: field(record, device + 8),
            correlation: field(record, correlation),
            ..RecordedOperation::new(work, field(record, 16), field(record, 24))
        }
    }
}

/// Reads a kernel.
///
/// # Safety
/// As [`field`], for a kernel's record.
unsafe fn kernel(record: *const u8) -> RecordedKernel {
    let size = |size: i32| u32::try_from(size).unwrap_or(0);
    // SAFETY: required of the caller.
    unsafe {
        let cluster: [u32; 3] = field(record, 176);
        let clustered = cluster.iter().all(|&size| size > 0) && cluster != [1, 1, 1];
        let node: u64 = field(record, 144);
        RecordedKernel {
            name: 0,
            grid: field::<[i32; 3]>(record, 52).map(size),
            block: field::<[i32; 3]>(record, 64).map(size),
            cluster: clustered.then_some(cluster),
            registers: field::<u16>(record, 6).into(),
            static_shared: size(field(record, 76)),
            dynamic_shared: size(field(record, 80)),
            local: field(record, 84),
            graph: (node != 0).then_some(node),
        }
    }
}

/// A short name of `CUpti_ActivityMemcpyKind`. Arrays (textures) count as device memory.
fn direction(kind: u8) -> &'static str {
    match kind {
        1 | 3 => "HtoD",
        2 | 4 => "DtoH",
        5..=8 => "DtoD",
        9 => "HtoH",
        10 => "PtoP",
        _ => "?",
    }
}

/// The string at `text`; `?` if it is null.
///
/// # Safety
/// `text` is null, or a string that lives for `'a`.
unsafe fn text<'a>(text: *const c_char) -> &'a CStr {
    if text.is_null() {
        return c"?";
    }
    // SAFETY: required of the caller.
    unsafe { CStr::from_ptr(text) }
}

/// The size of a buffer, for about 1,200 kernels. If the process dies without ending, the records
/// of a partly filled buffer are lost.
pub const BUFFER_BYTES: usize = 256 << 10;

/// Together with [`BUFFER_BYTES`], this limits the memory to 16 MiB.
const MAX_BUFFERS: usize = 64;

/// The alignment that CUPTI requires.
const ALIGNMENT: usize = 8;

struct RecordBuffers {
    free: Vec<*mut u8>,
    /// Full buffers in the order of return, with the number of bytes that have records.
    full: VecDeque<(*mut u8, usize)>,
    made: usize,
}

// SAFETY: only the code that takes an address out of a list uses it.
unsafe impl Send for RecordBuffers {}

static BUFFERS: Mutex<RecordBuffers> = Mutex::new(RecordBuffers {
    free: Vec::new(),
    full: VecDeque::new(),
    made: 0,
});
static FILLED: Condvar = Condvar::new();

fn buffers() -> MutexGuard<'static, RecordBuffers> {
    BUFFERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Passes an empty buffer to CUPTI, or null.
pub unsafe extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize, most: *mut usize) {
    let given = catch_unwind(|| {
        let mut buffers = buffers();
        if let Some(free) = buffers.free.pop() {
            return free;
        }
        if buffers.made == MAX_BUFFERS {
            return ptr::null_mut();
        }
        let Ok(layout) = Layout::from_size_align(BUFFER_BYTES, ALIGNMENT) else {
            return ptr::null_mut();
        };
        // SAFETY: the size is not zero.
        let made = unsafe { alloc(layout) };
        buffers.made += usize::from(!made.is_null());
        // Reserved now, so that returning a buffer does not allocate.
        buffers.free.reserve(MAX_BUFFERS);
        buffers.full.reserve(MAX_BUFFERS);
        made
    });
    let given = given.unwrap_or(ptr::null_mut());
    // SAFETY: CUPTI passes pointers to three live variables. 0 means no limit of records.
    unsafe {
        buffer.write(given);
        size.write(if given.is_null() { 0 } else { BUFFER_BYTES });
        most.write(0);
    }
}

/// Takes a buffer back from CUPTI.
pub unsafe extern "C" fn completed(
    _context: *mut c_void,
    _stream: u32,
    buffer: *mut u8,
    _size: usize,
    valid: usize,
) {
    let taken = catch_unwind(|| {
        if buffer.is_null() {
            return;
        }
        let mut buffers = buffers();
        if valid == 0 {
            buffers.free.push(buffer);
        } else {
            buffers.full.push_back((buffer, valid));
            FILLED.notify_one();
        }
    });
    // A panic cannot be reported from here; its message is on standard error.
    drop(taken);
}

/// Waits until half of the buffers are full, or until `most` has passed.
pub fn wait(most: Duration) {
    let waited = FILLED.wait_timeout_while(buffers(), most, |buffers| {
        buffers.full.len() < MAX_BUFFERS / 2
    });
    drop(waited);
}

/// Passes the records of all full buffers to `each`, in the order in which the buffers were
/// returned. Returns the number of buffers that could not be read to their end.
pub fn drain(library: &Cupti, mut each: impl FnMut(Record)) -> u64 {
    let mut damaged = 0;
    loop {
        let taken = buffers().full.pop_front();
        let Some((buffer, valid)) = taken else {
            return damaged;
        };
        let mut at = ptr::null_mut();
        // SAFETY: CUPTI returned the buffer with this many bytes of records, and nothing else uses
        // it until it is free again.
        unsafe {
            loop {
                match (library.functions.getNextRecord)(buffer, valid, &raw mut at) {
                    0 => read(at).into_iter().for_each(&mut each),
                    MAX_LIMIT_REACHED => break,
                    _ => {
                        damaged += 1;
                        break;
                    }
                }
            }
        }
        buffers().free.push(buffer);
    }
}
