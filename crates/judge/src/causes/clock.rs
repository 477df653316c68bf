//! What took a time, and so what can have made it longer.

use regatta_core::record::side::CaseRecord;
use regatta_core::record::types::{RunHeader, WorkerRecord};
use regatta_worker::attention::{Case, CaseId};

/// What took the times that are judged. A cause has to be in them: a device that waits for
/// the host inside a recorded call is no cause of a time in which it never does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Events of the device around work that was all queued behind a gate: neither the host
    /// nor what the device waits for it is in the time.
    Gated,
    /// Events of the device, while the host makes the call: where it is late, they hold that.
    Events,
    /// A clock of the host around the whole call.
    Wall,
    /// The host's time to issue the call, where that is what is judged.
    Host,
}

impl Clock {
    /// The clock of a case of a run. A call that waits for the device itself opens its gate
    /// and is timed by plain events.
    pub fn of(header: &RunHeader, id: &CaseId, record: &CaseRecord) -> Clock {
        let Ok(case) = id.case() else {
            return Clock::Events;
        };
        let name = case.variant.worker_name();
        let worker = header.workers.iter().find(|worker| worker.name == name);
        match worker.map_or(Clock::Events, |worker| Clock::read(worker, &case)) {
            Clock::Gated if record.conditions.synchronised > 0 => Clock::Events,
            clock => clock,
        }
    }

    /// What the worker says of its clock: `probe 0.2` is the gated one, `wall` the host's,
    /// anything else plain events. After a semicolon, `queued: probe 0.2` speaks of the cases
    /// with that word for a parameter.
    fn read(worker: &WorkerRecord, case: &Case) -> Clock {
        let Some(text) = worker.versions.get("clock") else {
            return match worker.runs_on_processor() {
                true => Clock::Wall,
                false => Clock::Events,
            };
        };
        let mut parts = text.split(';').map(str::trim);
        let usual = parts.next().unwrap_or_default();
        let named = parts
            .filter_map(|part| part.split_once(':'))
            .find(|(word, _)| {
                let mut params = case.params.iter();
                params.any(|(_, value)| value.to_string() == word.trim())
            });
        let clock = named.map_or(usual, |(_, clock)| clock.trim());
        match clock.split_whitespace().next() {
            Some("probe") => Clock::Gated,
            Some("wall") => Clock::Wall,
            _ => Clock::Events,
        }
    }

    /// True when the times hold the host, and what the device waits for it.
    pub fn holds_host(self) -> bool {
        self != Clock::Gated
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{around, header};

    fn clock(kind: &str, text: Option<&str>, case: &str, synchronised: u32) -> Clock {
        let mut header = header();
        header.workers[0].device_kind = kind.to_owned();
        if let Some(text) = text {
            let versions = &mut header.workers[0].versions;
            versions.insert("clock".to_owned(), text.to_owned());
        }
        let mut record = around(1.0);
        record.conditions.synchronised = synchronised;
        Clock::of(&header, &CaseId(case.to_owned()), &record)
    }

    #[test]
    fn the_workers_record_says_what_took_its_times() {
        let plain = "cpu/flash:s64,d64";
        assert_eq!(clock("cuda", Some("probe 0.2"), plain, 0), Clock::Gated);
        assert_eq!(clock("cuda", Some("probe 0.2"), plain, 2), Clock::Events);
        assert_eq!(clock("cuda", Some("events"), plain, 0), Clock::Events);
        assert_eq!(clock("cuda", Some("wall"), plain, 0), Clock::Wall);
        assert_eq!(clock("cuda", Some("sundial"), plain, 0), Clock::Events);
        assert_eq!(clock("cuda", None, plain, 0), Clock::Events);
        assert_eq!(clock("cpu", None, plain, 0), Clock::Wall);
        assert_eq!(
            clock("cuda", Some("probe 0.2"), "xla/a:s64,d64", 0),
            Clock::Events
        );
    }

    #[test]
    fn a_parameter_may_choose_the_clock() {
        let text = Some("events once all ranks are idle; queued: probe 0.2");
        let case = |start: &str| format!("cpu/fused:s64,d64:{start}");
        assert_eq!(clock("cuda", text, "cpu/fused:s64,d64", 0), Clock::Events);
        assert_eq!(clock("cuda", text, &case("start=idle"), 0), Clock::Events);
        assert_eq!(clock("cuda", text, &case("start=queued"), 0), Clock::Gated);
    }
}
