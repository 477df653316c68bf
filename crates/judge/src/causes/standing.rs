//! What is known of one trace, without another to hold it against.

use regatta_core::machine::{Recording, SteadyPart, Summary, calls};
use regatta_worker::units::Nanoseconds;

/// One trace, as the rules see it: its steady part, or else all of it.
pub struct Standing<'a> {
    /// In figures.
    pub of: &'a Summary,
    /// How often it repeats what it does.
    pub repeats: f64,
    /// Of what figures are told: ` a repetition`, or nothing of a whole recording.
    pub each: &'static str,
    /// Modules loaded once the program should be steady, where that is known.
    pub late_loads: Option<u64>,
    /// When that is.
    pub late: &'static str,
}

impl<'a> Standing<'a> {
    /// A recording that has this summary, and this part that repeats.
    pub fn of(
        recording: &Recording,
        whole: &'a Summary,
        steady: Option<&'a SteadyPart>,
    ) -> Standing<'a> {
        let loads = |calls: &std::collections::BTreeMap<String, u64>| {
            calls.get("module_loads").copied().unwrap_or(0)
        };
        match steady {
            Some(part) => Standing {
                of: &part.summary,
                repeats: part.steady.repeats as f64,
                each: " a repetition",
                late_loads: Some(loads(&part.summary.calls)),
                late: "the steady part",
            },
            None => Standing {
                of: whole,
                repeats: 1.0,
                each: "",
                late_loads: second_half(recording).map(|half| loads(&calls(recording, Some(half)))),
                late: "the second half of the recording",
            },
        }
    }

    /// True when it is of a part that repeats.
    pub fn is_steady(&self) -> bool {
        !self.each.is_empty()
    }

    /// Of a total the part of one repetition.
    pub fn time(&self, total_ns: u64) -> Nanoseconds {
        Nanoseconds::whole(total_ns) / self.repeats
    }
}

/// From when to when the second half of a recording is.
fn second_half(recording: &Recording) -> Option<(u64, u64)> {
    let first = recording.operations.first()?.start_ns;
    let last = recording.operations.iter().map(|o| o.end_ns).max()?;
    Some((first + (last - first) / 2, last))
}
