//! CUPTI's activity records in memory, and the fields that are read.
//!
//! Fields are read at their offsets, which CUPTI has kept from CUDA 12.0 to 13.0
//! (cupti_activity.h): of `CUpti_ActivityKernel9` and 10 (the cluster is the last that is read),
//! `CUpti_ActivityMemcpy5` and 6, `CUpti_ActivityMemcpyPtoP4`, `CUpti_ActivityMemset4`,
//! `CUpti_ActivityAPI`, `CUpti_ActivityDevice5`, `CUpti_ActivityMarker2`.
//!
//! They come in a bounded number of buffers, used over and over. When all are full, CUPTI is
//! given none, drops records and counts them.

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

/// `CUPTI_ACTIVITY_FLAG_MARKER_START` and `_END`; an instant has neither.
const MARKER_START: u32 = 1 << 1;
const MARKER_END: u32 = 1 << 2;

/// One record, as far as it is of use. Times in ns of CUPTI's clock.
#[derive(Debug, Clone)]
pub enum Record<'a> {
    /// The device's work; with the name of a kernel, which has no id yet.
    Operation(RecordedOperation, Option<&'a CStr>),
    Call(ApiCall),
    Device(DeviceInfo),
    Range(RangeMark<'a>),
}

/// The field of a record at this offset.
///
/// # Safety
/// The record has a `T` there.
unsafe fn field<T: Copy>(record: *const u8, at: usize) -> T {
    // SAFETY: the caller's.
    unsafe { record.add(at).cast::<T>().read_unaligned() }
}

/// Reads a record; `None` of a kind that is of no use.
///
/// # Safety
/// `record` was given by `cuptiActivityGetNextRecord`, and is read before its buffer is
/// given away; names live as long.
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

/// An operation: its times lie alike in all records, the stream 8 bytes behind the device.
///
/// # Safety
/// As [`field`].
unsafe fn operation(
    record: *const u8,
    work: RecordedWork,
    device: usize,
    correlation: usize,
) -> RecordedOperation {
    // SAFETY: the caller's.
    unsafe {
        RecordedOperation {
            device: field(record, device),
            stream: field(record, device + 8),
            correlation: field(record, correlation),
            ..RecordedOperation::new(work, field(record, 16), field(record, 24))
        }
    }
}

/// # Safety
/// As [`field`], of a kernel.
unsafe fn kernel(record: *const u8) -> RecordedKernel {
    let size = |size: i32| u32::try_from(size).unwrap_or(0);
    // SAFETY: the caller's.
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

/// `CUpti_ActivityMemcpyKind` in short; arrays (textures) count as the device's memory.
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

/// # Safety
/// Null, or a string that lives for `'a`.
unsafe fn text<'a>(text: *const c_char) -> &'a CStr {
    if text.is_null() {
        return c"?";
    }
    // SAFETY: the caller's.
    unsafe { CStr::from_ptr(text) }
}

/// Records of 1,200 kernels or so: what is in a buffer that is not full is lost when the
/// process dies without ending.
pub const BUFFER_BYTES: usize = 256 << 10;

/// With [`BUFFER_BYTES`] it bounds the memory, at 16 MiB.
const MAX_BUFFERS: usize = 64;

/// As CUPTI asks for.
const ALIGNMENT: usize = 8;

struct RecordBuffers {
    free: Vec<*mut u8>,
    /// In the order given back, with the bytes that hold records.
    full: VecDeque<(*mut u8, usize)>,
    made: usize,
}

// SAFETY: whoever takes an address out of a list is the only one to use it.
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

/// Gives CUPTI an empty buffer, or none.
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
        // Room for all, so that giving one back allocates nothing.
        buffers.free.reserve(MAX_BUFFERS);
        buffers.full.reserve(MAX_BUFFERS);
        made
    });
    let given = given.unwrap_or(ptr::null_mut());
    // SAFETY: CUPTI passes three live variables; no limit of records.
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
    // A panic cannot be reported from here: its message is on standard error.
    drop(taken);
}

/// Waits until half of the buffers are full, or for so long.
pub fn wait(most: Duration) {
    let waited = FILLED.wait_timeout_while(buffers(), most, |buffers| {
        buffers.full.len() < MAX_BUFFERS / 2
    });
    drop(waited);
}

/// Reads the records of all full buffers, in the order given back. Gives the number of
/// buffers whose records could not be read to their end.
pub fn drain(library: &Cupti, mut each: impl FnMut(Record)) -> u64 {
    let mut damaged = 0;
    loop {
        let taken = buffers().full.pop_front();
        let Some((buffer, valid)) = taken else {
            return damaged;
        };
        let mut at = ptr::null_mut();
        // SAFETY: the buffer was given back by CUPTI with so many bytes of records, and is
        // not used by others until it is free again.
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
