//! CUPTI's activity records as they lie in memory, and what is read of them.
//!
//! Each is a prefix of the record of its kind, whose fields CUPTI has kept in place from
//! CUDA 12.0 to 13.0 (cupti_activity.h): `CUpti_ActivityKernel9` and 10 (the cluster is
//! the last that is read), `CUpti_ActivityMemcpy5` and 6, `CUpti_ActivityMemcpyPtoP4`,
//! `CUpti_ActivityMemset4`, `CUpti_ActivityAPI`, `CUpti_ActivityDevice5`,
//! `CUpti_ActivityMarker2`.
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
use std::mem::offset_of;
use std::panic::catch_unwind;
use std::ptr;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A prefix of `CUpti_ActivityKernel10`.
#[repr(C)]
pub struct RawKernel {
    pub kind: u32,
    pub cache: u16,
    pub registers: u16,
    _partitioned: [u32; 2],
    pub start: u64,
    pub end: u64,
    _completed: u64,
    pub device: u32,
    _context: u32,
    pub stream: u32,
    pub grid: [i32; 3],
    pub block: [i32; 3],
    pub static_shared: i32,
    pub dynamic_shared: i32,
    pub local: u32,
    _local_total: u32,
    pub correlation: u32,
    _grid_id: i64,
    pub name: *const c_char,
    _reserved: [u64; 4],
    pub graph_node: u64,
    _launch: [u32; 6],
    pub cluster: [u32; 3],
}

/// A prefix of `CUpti_ActivityMemcpy6` and of `CUpti_ActivityMemset4`, whose fields lie
/// alike.
#[repr(C)]
pub struct RawMemory {
    pub kind: u32,
    /// `CUpti_ActivityMemcpyKind` in a copy; the value in a fill.
    pub direction: u8,
    _kinds: [u8; 3],
    pub bytes: u64,
    pub start: u64,
    pub end: u64,
    pub device: u32,
    _context: u32,
    pub stream: u32,
    pub correlation: u32,
}

/// A prefix of `CUpti_ActivityMemcpyPtoP4`: as a copy up to the stream, then its devices.
#[repr(C)]
pub struct RawPeerCopy {
    pub memory: RawMemory,
    _devices: [u32; 3],
    pub correlation: u32,
}

/// `CUpti_ActivityAPI`.
#[repr(C)]
pub struct RawCall {
    pub kind: u32,
    pub id: u32,
    pub start: u64,
    pub end: u64,
    _process: u32,
    pub thread: u32,
    pub correlation: u32,
    _returned: u32,
}

/// `CUpti_ActivityMarker2`.
#[repr(C)]
pub struct RawMarker {
    pub kind: u32,
    pub flags: u32,
    pub at: u64,
    pub id: u32,
    _object_kind: u32,
    _process: u32,
    pub thread: u32,
    _rest_of_object: u32,
    _pad: u32,
    pub name: *const c_char,
    pub domain: *const c_char,
}

/// `CUPTI_ACTIVITY_FLAG_MARKER_START` and `_END`; an instant has neither.
const MARKER_START: u32 = 1 << 1;
const MARKER_END: u32 = 1 << 2;

/// A prefix of `CUpti_ActivityDevice5`.
#[repr(C)]
pub struct RawDevice {
    pub kind: u32,
    _flags: u32,
    _bandwidth: [u64; 4],
    _sizes: u32,
    pub sms: u32,
    _limits: [u32; 14],
    pub major: u32,
    pub minor: u32,
    pub id: u32,
    _more: [u32; 5],
    pub name: *const c_char,
}

const _: () = {
    assert!(offset_of!(RawKernel, registers) == 6);
    assert!(offset_of!(RawKernel, start) == 16 && offset_of!(RawKernel, end) == 24);
    assert!(offset_of!(RawKernel, device) == 40 && offset_of!(RawKernel, stream) == 48);
    assert!(offset_of!(RawKernel, grid) == 52 && offset_of!(RawKernel, block) == 64);
    assert!(offset_of!(RawKernel, static_shared) == 76 && offset_of!(RawKernel, local) == 84);
    assert!(offset_of!(RawKernel, correlation) == 92 && offset_of!(RawKernel, name) == 104);
    assert!(offset_of!(RawKernel, graph_node) == 144 && offset_of!(RawKernel, cluster) == 176);
    assert!(offset_of!(RawMemory, bytes) == 8 && offset_of!(RawMemory, device) == 32);
    assert!(offset_of!(RawMemory, stream) == 40 && offset_of!(RawMemory, correlation) == 44);
    assert!(offset_of!(RawPeerCopy, correlation) == 60);
    assert!(offset_of!(RawCall, start) == 8 && offset_of!(RawCall, correlation) == 32);
    assert!(size_of::<RawCall>() == 40);
    assert!(offset_of!(RawMarker, id) == 16 && offset_of!(RawMarker, thread) == 28);
    assert!(offset_of!(RawMarker, name) == 40 && size_of::<RawMarker>() == 56);
    assert!(offset_of!(RawDevice, sms) == 44 && offset_of!(RawDevice, major) == 104);
    assert!(offset_of!(RawDevice, id) == 112 && offset_of!(RawDevice, name) == 136);
};

/// One record, as far as it is of use. Times in ns of CUPTI's clock.
#[derive(Debug, Clone)]
pub enum Record<'a> {
    /// What the device did; with the name of a kernel, which has no id yet.
    Operation(RecordedOperation, Option<&'a CStr>),
    Call(ApiCall),
    Device(DeviceInfo),
    Range(RangeMark<'a>),
}

/// An operation, by the fields that records of all kinds have.
macro_rules! operation {
    ($raw:expr, $what:expr) => {
        RecordedOperation {
            device: $raw.device,
            stream: $raw.stream,
            correlation: $raw.correlation,
            ..RecordedOperation::new($what, $raw.start, $raw.end)
        }
    };
}

/// Reads a record; `None` of a kind that is of no use.
///
/// # Safety
/// `record` was given by `cuptiActivityGetNextRecord`, and is read before its buffer is
/// given away; names live as long.
pub unsafe fn read<'a>(record: *const u8) -> Option<Record<'a>> {
    // SAFETY: every record starts with its kind, and is at least as long as the prefix of
    // that kind (see the head of this file); CUPTI aligns records to 8 bytes, and asks for
    // buffers that are.
    unsafe {
        Some(match record.cast::<u32>().read() {
            kind::CONCURRENT_KERNEL => {
                let raw = &*record.cast::<RawKernel>();
                let name = text(raw.name);
                Record::Operation(kernel(raw), Some(name))
            }
            kind::MEMCPY => {
                let raw = &*record.cast::<RawMemory>();
                let (direction, bytes) = (direction(raw.direction), raw.bytes);
                let copy = operation!(raw, RecordedWork::Copy { direction, bytes });
                Record::Operation(copy, None)
            }
            kind::MEMSET => {
                let raw = &*record.cast::<RawMemory>();
                let bytes = raw.bytes;
                Record::Operation(operation!(raw, RecordedWork::Fill { bytes }), None)
            }
            kind::MEMCPY_P2P => {
                let raw = &*record.cast::<RawPeerCopy>();
                let (direction, bytes) = ("PtoP", raw.memory.bytes);
                let mut copy = operation!(raw.memory, RecordedWork::Copy { direction, bytes });
                copy.correlation = raw.correlation;
                Record::Operation(copy, None)
            }
            of @ (kind::DRIVER | kind::RUNTIME) => {
                let raw = &*record.cast::<RawCall>();
                let class = match of {
                    kind::DRIVER => driver_class(raw.id),
                    _ => runtime_class(raw.id),
                };
                Record::Call(ApiCall {
                    class: class?,
                    start: raw.start,
                    end: raw.end,
                    thread: raw.thread,
                    correlation: raw.correlation,
                })
            }
            kind::MARKER => {
                let raw = &*record.cast::<RawMarker>();
                let begun = match raw.flags & (MARKER_START | MARKER_END) {
                    MARKER_START => Some(RangeName {
                        domain: (!raw.domain.is_null()).then(|| text(raw.domain)),
                        name: text(raw.name),
                    }),
                    MARKER_END => None,
                    _ => return None,
                };
                Record::Range(RangeMark {
                    at: raw.at,
                    thread: raw.thread,
                    id: raw.id,
                    begun,
                })
            }
            kind::DEVICE => {
                let raw = &*record.cast::<RawDevice>();
                Record::Device(DeviceInfo {
                    ordinal: raw.id,
                    name: text(raw.name).to_string_lossy().into_owned(),
                    sms: raw.sms,
                    capability: (raw.major, raw.minor),
                })
            }
            _ => return None,
        })
    }
}

fn kernel(raw: &RawKernel) -> RecordedOperation {
    let sizes = |sizes: [i32; 3]| sizes.map(|size| u32::try_from(size).unwrap_or(0));
    let bytes = |bytes: i32| u32::try_from(bytes).unwrap_or(0);
    let clustered = raw.cluster.iter().all(|&size| size > 0) && raw.cluster != [1, 1, 1];
    let kernel = RecordedKernel {
        name: 0,
        grid: sizes(raw.grid),
        block: sizes(raw.block),
        cluster: clustered.then_some(raw.cluster),
        registers: raw.registers.into(),
        static_shared: bytes(raw.static_shared),
        dynamic_shared: bytes(raw.dynamic_shared),
        local: raw.local,
        graph: (raw.graph_node != 0).then_some(raw.graph_node),
    };
    operation!(raw, RecordedWork::Kernel(kernel))
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
const MOST: usize = 64;

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
        if buffers.made == MOST {
            return ptr::null_mut();
        }
        let Ok(layout) = Layout::from_size_align(BUFFER_BYTES, ALIGNMENT) else {
            return ptr::null_mut();
        };
        // SAFETY: the size is not zero.
        let made = unsafe { alloc(layout) };
        buffers.made += usize::from(!made.is_null());
        // Room for all, so that giving one back allocates nothing.
        buffers.free.reserve(MOST);
        buffers.full.reserve(MOST);
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
    // Nobody is left to tell: the message of the panic is on standard error.
    drop(taken);
}

/// Waits until half of the buffers are full, or for so long.
pub fn wait(most: Duration) {
    let waited =
        FILLED.wait_timeout_while(buffers(), most, |buffers| buffers.full.len() < MOST / 2);
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
        // nobody else's until it is free again.
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
