//! Operations of the device, each linked with the host's call that launched it.

use super::calls::{ApiCall, CallClass, CallCounts, count};
use super::ranges::Ranges;
use super::record::Record;
use crate::driver::Library;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::hash::Hash;
use std::ptr;
use std::sync::OnceLock;

unsafe extern "C" {
    fn free(memory: *mut c_void);
}

/// A kernel, copy or fill that ran, and its launch. Times are ns of CUPTI's clock.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedOperation {
    /// The work that it did.
    pub activity: RecordedWork,
    /// The start of the work.
    pub start: u64,
    /// The end of the work.
    pub end: u64,
    /// The device's ordinal in its process.
    pub device: u32,
    /// The stream's number in CUPTI.
    pub stream: u32,
    /// The id that links it with the call that launched it.
    pub correlation: u32,
    /// The host's call that launched it, if it was recorded.
    pub launch: Option<LaunchCall>,
    /// The id of the operator that launched it.
    pub operator: Option<u32>,
}

/// The work of an operation.
#[derive(Debug, Clone, PartialEq)]
pub enum RecordedWork {
    /// A kernel.
    Kernel(RecordedKernel),
    /// A copy.
    Copy {
        /// `HtoD`, `DtoH`, `DtoD`, `PtoP`, `HtoH` or `?`.
        direction: &'static str,
        /// Bytes moved.
        bytes: u64,
    },
    /// A fill.
    Fill {
        /// Bytes filled.
        bytes: u64,
    },
}

/// A kernel that ran.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RecordedKernel {
    /// The id of its name.
    pub name: u32,
    /// Blocks along x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y and z.
    pub block: [u32; 3],
    /// Blocks of a cluster, if there are clusters.
    pub cluster: Option<[u32; 3]>,
    /// Registers of each thread.
    pub registers: u32,
    /// Static shared memory of a block, in bytes.
    pub static_shared: u32,
    /// Dynamic shared memory of a block, in bytes.
    pub dynamic_shared: u32,
    /// Local memory of each thread, in bytes: spilled registers and arrays on the stack.
    pub local: u32,
    /// The node of the CUDA graph that launched it, if any.
    pub graph: Option<u64>,
}

/// The host's call that launched an operation, on the operations' clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchCall {
    /// The start time of the call, in ns.
    pub at: u64,
    /// The duration of the call, in ns.
    pub ns: u64,
}

impl RecordedOperation {
    /// An operation between two times on the first device.
    pub fn new(activity: RecordedWork, start: u64, end: u64) -> Self {
        Self {
            activity,
            start,
            end,
            device: 0,
            stream: 0,
            correlation: 0,
            launch: None,
            operator: None,
        }
    }
}

type Demangle =
    unsafe extern "C" fn(*const c_char, *mut c_char, *mut usize, *mut c_int) -> *mut c_char;

/// Texts with ids. Each text is stored once.
pub struct Texts<Key> {
    ids: HashMap<Key, u32>,
    all: Vec<String>,
}

impl<Key> Default for Texts<Key> {
    fn default() -> Self {
        Self {
            ids: HashMap::new(),
            all: Vec::new(),
        }
    }
}

impl<Key: Eq + Hash> Texts<Key> {
    /// The id of a key, counted from 0. Its text is made on first use. `None` if there are already
    /// `most` texts.
    pub fn id(&mut self, key: Key, most: usize, text: impl FnOnce(&Key) -> String) -> Option<u32> {
        if let Some(&id) = self.ids.get(&key) {
            return Some(id);
        }
        let id = self.all.len() as u32;
        if self.all.len() == most {
            return None;
        }
        self.all.push(text(&key));
        self.ids.insert(key, id);
        Some(id)
    }

    /// All texts so far, by id.
    pub fn all(&self) -> &[String] {
        &self.all
    }
}

/// A device of the machine, from its record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    pub ordinal: u32,
    pub name: String,
    pub sms: u32,
    pub capability: (u32, u32),
}

/// The number of launches that are kept for later operations; older ones are dropped.
const LAUNCHES: usize = 1 << 16;

/// Links operations with launches, which are recorded separately and in any order.
#[derive(Default)]
pub struct Linker {
    /// Names of kernels, demangled.
    pub names: Texts<CString>,
    pub counts: CallCounts,
    /// The start time and name of each call that is listed individually, until they are taken.
    pub moments: Vec<(&'static str, u64)>,
    /// Devices that were not taken yet.
    pub devices: Vec<DeviceInfo>,
    /// The number of operations that were incomplete when their buffer was returned.
    pub incomplete: u64,
    /// Calls that began earlier are not counted.
    pub counted_from: Option<u64>,
    /// Calls that began later are not counted.
    pub counted_until: Option<u64>,
    calls: Vec<ApiCall>,
    pub ranges: Ranges,
    launches: HashMap<u32, ApiCall>,
    /// Launches before those in `launches`.
    earlier: HashMap<u32, ApiCall>,
    operations: Vec<RecordedOperation>,
    /// Operations whose launch was unknown at the last `settle`.
    waiting: Vec<RecordedOperation>,
}

impl Linker {
    /// Adds a record.
    pub fn add(&mut self, record: Record) {
        match record {
            Record::Operation(mut operation, name) => {
                if let (RecordedWork::Kernel(kernel), Some(name)) = (&mut operation.activity, name)
                {
                    let named = |name: &CString| demangled(name);
                    let id = self.names.id(name.to_owned(), usize::MAX, named);
                    kernel.name = id.unwrap_or(u32::MAX);
                }
                // An unfinished operation has no end, because the process ended first.
                if operation.start == 0 || operation.end < operation.start {
                    self.incomplete += 1;
                } else {
                    self.operations.push(operation);
                }
            }
            Record::Device(device) => self.devices.push(device),
            Record::Range(mark) => self.ranges.add(mark),
            Record::Call(call) => {
                let begun = self.counted_from.is_none_or(|from| call.start >= from);
                if begun && self.counted_until.is_none_or(|until| call.start < until) {
                    self.calls.push(call);
                }
                if call.class == CallClass::GraphLaunch || !call.class.has_moment() {
                    self.launched(call);
                }
            }
        }
    }

    fn launched(&mut self, call: ApiCall) {
        if self.launches.len() >= LAUNCHES {
            self.earlier = std::mem::take(&mut self.launches);
        }
        let kept = self.launches.entry(call.correlation).or_insert(call);
        // The outer one of two nested calls counts.
        if call.start < kept.start {
            *kept = call;
        }
    }

    /// Counts the calls so far, and returns operations in the order of records: those whose launch
    /// is known, and those that were kept back once. If `all`, returns every operation.
    pub fn settle(&mut self, all: bool) -> Vec<RecordedOperation> {
        let moments = &mut self.moments;
        count(&mut self.counts, &mut self.calls, |call| {
            if call.class.has_moment() {
                moments.push((call.class.name(), call.start));
            }
        });
        self.calls.clear();
        self.ranges.settle();
        let mut settled = Vec::with_capacity(self.waiting.len() + self.operations.len());
        for mut operation in std::mem::take(&mut self.waiting) {
            self.link(&mut operation);
            settled.push(operation);
        }
        for mut operation in std::mem::take(&mut self.operations) {
            self.link(&mut operation);
            if operation.launch.is_some() || all {
                settled.push(operation);
            } else {
                self.waiting.push(operation);
            }
        }
        settled
    }

    /// A launch is kept after it is found, because a graph's launch has many operations.
    fn link(&self, operation: &mut RecordedOperation) {
        let launch = self.launches.get(&operation.correlation);
        if let Some(launch) = launch.or_else(|| self.earlier.get(&operation.correlation)) {
            operation.launch = Some(LaunchCall {
                at: launch.start,
                ns: launch.end.saturating_sub(launch.start),
            });
            operation.operator = self.ranges.at(launch.thread, launch.start);
        }
    }
}

/// The name, demangled by the C++ library of the process or the machine. Unchanged without such a
/// library, or if the name is not mangled.
fn demangled(name: &CStr) -> String {
    let plain = || name.to_string_lossy().into_owned();
    let Some(demangle) = demangler().filter(|_| name.to_bytes().starts_with(b"_Z")) else {
        return plain();
    };
    let mut status = 0;
    // SAFETY: this is the signature in the C++ ABI. Without a buffer it allocates the result, which
    // is copied and freed.
    unsafe {
        let text = demangle(
            name.as_ptr(),
            ptr::null_mut(),
            ptr::null_mut(),
            &raw mut status,
        );
        if text.is_null() {
            return plain();
        }
        let copied = CString::from(CStr::from_ptr(text));
        free(text.cast());
        copied.to_string_lossy().into_owned()
    }
}

fn demangler() -> Option<Demangle> {
    static DEMANGLE: OnceLock<Option<Demangle>> = OnceLock::new();
    *DEMANGLE.get_or_init(|| {
        let libraries = [
            Library::open(c"libstdc++.so.6"),
            Library::open(c"libc++abi.so.1"),
        ];
        let mut libraries = libraries.into_iter().flatten();
        let address = libraries.find_map(|library| library.symbol(&[c"__cxa_demangle"]).ok())?;
        // SAFETY: the Itanium C++ ABI gives the symbol this signature.
        Some(unsafe { std::mem::transmute::<*mut c_void, Demangle>(address) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mangled_names_are_read_where_there_is_a_c_plus_plus_library() {
        let expected = match demangler() {
            Some(_) => "void flash::fwd<64, true>(float*)",
            None => "_ZN5flash3fwdILi64ELb1EEEvPf",
        };
        assert_eq!(demangled(c"_ZN5flash3fwdILi64ELb1EEEvPf"), expected);
    }
}
