//! Operations of the device, each with the host's call that launched it.

use super::calls::{Counted, Counts, count};
use super::demangle::demangled;
use super::functions::Class;
use super::ranges::Ranges;
use super::record::{Call, Device, Kernel, Memory, Record};
use std::collections::HashMap;
use std::ffi::{CStr, CString};

/// A kernel (by the id of its name), copy or fill, and its launch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Operation {
    /// What the device did.
    pub what: What,
    /// The host's call, where it was recorded.
    pub launch: Option<Launch>,
    /// What the host was in when it launched it, by its place in
    /// [`Recorded::operators`](super::Recorded::operators).
    pub operator: Option<u32>,
}

/// What ran.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum What {
    /// A kernel, by the id of its name in [`Recorded::names`](super::Recorded::names).
    Kernel(Kernel<u32>),
    /// A copy or a fill.
    Memory(Memory),
}

/// The host's call that launched an operation, on the operations' clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    /// When the call began, in ns.
    pub at: u64,
    /// How long it took.
    pub ns: u64,
}

impl Operation {
    /// When the device began it, in ns of the recording's clock.
    pub fn start(&self) -> u64 {
        match &self.what {
            What::Kernel(kernel) => kernel.start,
            What::Memory(memory) => memory.start,
        }
    }

    /// When the device had done it, in ns of the recording's clock.
    pub fn end(&self) -> u64 {
        match &self.what {
            What::Kernel(kernel) => kernel.end,
            What::Memory(memory) => memory.end,
        }
    }

    fn correlation(&self) -> u32 {
        match &self.what {
            What::Kernel(kernel) => kernel.correlation,
            What::Memory(memory) => memory.correlation,
        }
    }
}

/// Names of kernels, each once.
#[derive(Default)]
pub struct Names {
    /// By where CUPTI keeps it: it keeps one copy of each name.
    by_address: HashMap<usize, u32>,
    by_text: HashMap<CString, u32>,
    mangled: Vec<CString>,
    demangled: Vec<String>,
}

impl Names {
    /// Its id: ids count from 0 in the order of first appearance.
    fn id(&mut self, name: &CStr) -> u32 {
        let address = name.as_ptr() as usize;
        if let Some(&id) = self.by_address.get(&address) {
            // A module that was unloaded may have left its place to another's name.
            if self.mangled[id as usize].as_c_str() == name {
                return id;
            }
        }
        let id = self.by_text.get(name).copied().unwrap_or_else(|| {
            let id = self.mangled.len() as u32;
            self.mangled.push(name.to_owned());
            self.by_text.insert(name.to_owned(), id);
            self.demangled.push(demangled(name));
            id
        });
        self.by_address.insert(address, id);
        id
    }

    /// All so far, demangled, by id.
    pub fn all(&self) -> &[String] {
        &self.demangled
    }
}

/// A device, as a record told it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    pub ordinal: u32,
    pub name: String,
    pub sms: u32,
    pub capability: (u32, u32),
}

impl Known {
    fn of(device: &Device) -> Self {
        Self {
            ordinal: device.ordinal,
            name: device.name.to_string_lossy().into_owned(),
            sms: device.sms,
            capability: device.capability,
        }
    }
}

/// Launches whose operations may still come, at most; older ones are forgotten.
const LAUNCHES: usize = 1 << 16;

/// A launch, and the thread that made it.
#[derive(Clone, Copy)]
struct Launched {
    launch: Launch,
    thread: u32,
}

/// Puts operations and launches together, which come apart and in any order.
#[derive(Default)]
pub struct Linker {
    pub names: Names,
    pub counts: Counts,
    /// When each call began that is told apart, and its name, of those that nobody took yet.
    pub moments: Vec<(&'static str, u64)>,
    /// Devices that were not told yet.
    pub devices: Vec<Known>,
    /// Operations that were not complete when their buffer was given back.
    pub incomplete: u64,
    /// Calls that begin earlier are not counted.
    pub counted_from: Option<u64>,
    /// Calls that begin later are not counted.
    pub counted_until: Option<u64>,
    calls: Vec<Counted>,
    pub ranges: Ranges,
    launches: HashMap<u32, Launched>,
    /// The launches before those.
    earlier: HashMap<u32, Launched>,
    operations: Vec<Operation>,
    /// Operations whose launch was not known at the last settling.
    waiting: Vec<Operation>,
}

impl Linker {
    /// Takes a record.
    pub fn add(&mut self, record: Record) {
        match record {
            Record::Kernel(kernel) => {
                let what = What::Kernel(kernel.named(|name| self.names.id(name)));
                self.operation(what);
            }
            Record::Memory(memory) => self.operation(What::Memory(memory)),
            Record::Device(device) => self.devices.push(Known::of(&device)),
            Record::Mark(mark) => self.ranges.add(mark),
            Record::Call(call) => {
                let Some(class) = call.interface.class(call.id) else {
                    return;
                };
                let begun = self.counted_from.is_none_or(|from| call.start >= from);
                if begun && self.counted_until.is_none_or(|until| call.start < until) {
                    self.calls.push(Counted {
                        class,
                        thread: call.thread,
                        start: call.start,
                        end: call.end,
                    });
                }
                if matches!(class, Class::Launch | Class::GraphLaunch | Class::Copy) {
                    self.launched(&call);
                }
            }
        }
    }

    fn operation(&mut self, what: What) {
        let operation = Operation {
            what,
            launch: None,
            operator: None,
        };
        // What has not ended has no end: the process ended before it.
        if operation.start() == 0 || operation.end() < operation.start() {
            self.incomplete += 1;
        } else {
            self.operations.push(operation);
        }
    }

    fn launched(&mut self, call: &Call) {
        if self.launches.len() >= LAUNCHES {
            self.earlier = std::mem::take(&mut self.launches);
        }
        let launched = Launched {
            launch: Launch {
                at: call.start,
                ns: call.end.saturating_sub(call.start),
            },
            thread: call.thread,
        };
        let kept = self.launches.entry(call.correlation).or_insert(launched);
        // Of a call within a call, the outer.
        if launched.launch.at < kept.launch.at {
            *kept = launched;
        }
    }

    /// Counts the calls so far, and hands on operations in the order taken: those whose
    /// launch is known, or that have waited for it once; with `all`, every one.
    pub fn settle(&mut self, all: bool) -> Vec<Operation> {
        let moments = &mut self.moments;
        count(&mut self.counts, &mut self.calls, |call| {
            moments.extend(call.class.told_apart().map(|name| (name, call.start)));
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

    /// Launches are kept when found: a graph's has many operations.
    fn link(&self, operation: &mut Operation) {
        let correlation = operation.correlation();
        let found = self.launches.get(&correlation);
        if let Some(found) = found.or_else(|| self.earlier.get(&correlation)) {
            operation.launch = Some(found.launch);
            operation.operator = self.ranges.at(found.thread, found.launch.at);
        }
    }
}
