//! How often a program made the calls that are worth counting, and how long it was in them.

use std::collections::HashMap;

use super::functions::Class;

/// Calls of a kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Made {
    /// How many.
    pub calls: u64,
    /// Nanoseconds that the host spent in them, recording included. A call within one of
    /// another kind is in both.
    pub ns: u64,
}

impl Made {
    fn add(&mut self, ns: u64) {
        self.calls += 1;
        self.ns = self.ns.saturating_add(ns);
    }
}

/// Calls so far, of each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Modules and libraries of code loaded into the device.
    pub module_loads: Made,
    /// Allocations of device, managed and pinned memory: those that reach CUDA, not those
    /// that a framework's own allocator serves.
    pub allocations: Made,
    /// Frees of such memory.
    pub frees: Made,
    /// Calls that wait for the device.
    pub device_synchronisations: Made,
    /// Calls that wait for a stream.
    pub stream_synchronisations: Made,
    /// Calls that wait for an event.
    pub event_synchronisations: Made,
    /// Writes and waits of a stream for a value in memory, a batch of them one.
    pub stream_memory_operations: Made,
    /// Functions of the host's put into a stream.
    pub host_callbacks: Made,
    /// Launches of single kernels.
    pub launches: Made,
    /// Launches of CUDA graphs, one each whatever a graph holds.
    pub graph_launches: Made,
    /// Calls that copy or fill; what they do is an operation as well.
    pub copy_calls: Made,
}

impl Counts {
    /// Names, as they are written, and calls. `synchronisations` are the three of them that
    /// follow.
    pub fn named(&self) -> [(&'static str, Made); 12] {
        [
            ("module_loads", self.module_loads),
            ("allocations", self.allocations),
            ("frees", self.frees),
            ("synchronisations", self.synchronisations()),
            ("device_synchronisations", self.device_synchronisations),
            ("stream_synchronisations", self.stream_synchronisations),
            ("event_synchronisations", self.event_synchronisations),
            ("stream_memory_operations", self.stream_memory_operations),
            ("host_callbacks", self.host_callbacks),
            ("launches", self.launches),
            ("graph_launches", self.graph_launches),
            ("copy_calls", self.copy_calls),
        ]
    }

    /// Calls that wait, whatever for.
    pub fn synchronisations(&self) -> Made {
        let waits = [
            self.device_synchronisations,
            self.stream_synchronisations,
            self.event_synchronisations,
        ];
        waits.into_iter().fold(Made::default(), |sum, made| Made {
            calls: sum.calls + made.calls,
            ns: sum.ns.saturating_add(made.ns),
        })
    }

    fn of(&mut self, class: Class) -> &mut Made {
        match class {
            Class::ModuleLoad => &mut self.module_loads,
            Class::Allocation => &mut self.allocations,
            Class::Free => &mut self.frees,
            Class::DeviceWait => &mut self.device_synchronisations,
            Class::StreamWait => &mut self.stream_synchronisations,
            Class::EventWait => &mut self.event_synchronisations,
            Class::StreamMemory => &mut self.stream_memory_operations,
            Class::HostCallback => &mut self.host_callbacks,
            Class::Launch => &mut self.launches,
            Class::GraphLaunch => &mut self.graph_launches,
            Class::Copy => &mut self.copy_calls,
        }
    }
}

/// A call that was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    pub class: Class,
    pub thread: u32,
    pub start: u64,
    pub end: u64,
}

impl Class {
    /// What [`Counts::named`] calls it, of those that are told one by one: launches and copies
    /// are operations as well, which have their moments.
    pub fn told_apart(self) -> Option<&'static str> {
        Some(match self {
            Self::ModuleLoad => "module_loads",
            Self::Allocation => "allocations",
            Self::Free => "frees",
            Self::DeviceWait => "device_synchronisations",
            Self::StreamWait => "stream_synchronisations",
            Self::EventWait => "event_synchronisations",
            Self::StreamMemory => "stream_memory_operations",
            Self::HostCallback => "host_callbacks",
            Self::GraphLaunch => "graph_launches",
            Self::Launch | Self::Copy => return None,
        })
    }
}

/// Counts calls, each once: the runtime makes some of its calls through functions of the
/// driver that are recorded as well, within the time of its own. What is counted is handed on.
pub fn count(counts: &mut Counts, calls: &mut [Counted], mut counted: impl FnMut(&Counted)) {
    // An outer call starts no later than what it makes, and ends no sooner.
    calls.sort_by_key(|call| (call.start, std::cmp::Reverse(call.end)));
    let mut outer: HashMap<(u32, Class), u64> = HashMap::new();
    for call in calls {
        let ends = outer.entry((call.thread, call.class)).or_default();
        if call.end > *ends || *ends == 0 {
            let ns = call.end.saturating_sub(call.start);
            counts.of(call.class).add(ns);
            counted(call);
            *ends = call.end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(class: Class, thread: u32, start: u64, end: u64) -> Counted {
        Counted {
            class,
            thread,
            start,
            end,
        }
    }

    #[test]
    fn a_call_within_a_call_is_the_same_one() {
        let mut counts = Counts::default();
        let mut calls = [
            call(Class::Launch, 1, 12, 18), // the driver's, within the runtime's
            call(Class::Launch, 1, 10, 20),
            call(Class::Launch, 2, 13, 15), // another thread
            call(Class::Launch, 1, 20, 25), // the next
            call(Class::ModuleLoad, 1, 13, 14),
        ];
        count(&mut counts, &mut calls, |_| {});
        assert_eq!(counts.launches, Made { calls: 3, ns: 17 });
        assert_eq!(counts.module_loads, Made { calls: 1, ns: 1 });
    }

    #[test]
    fn waits_are_told_apart_and_added_up() {
        let mut counts = Counts::default();
        let mut calls = [
            call(Class::DeviceWait, 1, 0, 100),
            call(Class::StreamWait, 1, 200, 210),
            call(Class::EventWait, 2, 200, 205),
            call(Class::HostCallback, 1, 300, 302),
        ];
        count(&mut counts, &mut calls, |_| {});
        let named: std::collections::BTreeMap<_, _> = counts.named().into();
        assert_eq!(named["synchronisations"], Made { calls: 3, ns: 115 });
        assert_eq!(named["device_synchronisations"].ns, 100);
        assert_eq!(named["host_callbacks"], Made { calls: 1, ns: 2 });
        assert_eq!(named["stream_memory_operations"], Made::default());
    }
}
