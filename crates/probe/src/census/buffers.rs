//! The buffers that CUPTI writes records into: a bounded number of them, used over and
//! over. When all are full, CUPTI is given none, drops records and counts them.

use super::cupti::{Cupti, MAX_LIMIT_REACHED};
use super::record::{self, Record};
use std::alloc::{Layout, alloc};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::panic::catch_unwind;
use std::ptr;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Records of 1,200 kernels or so: what is in a buffer that is not full is lost when the
/// process dies without ending.
pub const BYTES: usize = 256 << 10;

/// With [`BYTES`] it bounds the memory, at 16 MiB.
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
        let Ok(layout) = Layout::from_size_align(BYTES, ALIGNMENT) else {
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
        size.write(if given.is_null() { 0 } else { BYTES });
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
                    0 => record::read(at).into_iter().for_each(&mut each),
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
