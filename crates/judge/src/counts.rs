//! What a call is counted to do, by name, and counted functions in words.

use regatta_core::machine::ASKED_OF_CUDA;
use regatta_core::record::side::CaseRecord;
use regatta_worker::units::Nanoseconds;

/// The counted function of autotuning runs that found no configuration kept.
pub const AUTOTUNE: &str = "triton_autotune";

/// A count of a record, where it was counted. What a call asked of CUDA is in the activity
/// of files that are older than the counts of it.
pub fn count(record: &CaseRecord, name: &str) -> Option<u64> {
    let counts = &record.structure.as_ref()?.counts;
    let counted = counts.get(name).copied();
    counted.or_else(|| asked(record).find_map(|(asked, n)| (asked == name).then_some(n)))
}

/// What a call asked of CUDA, as its activity tells, by the names of the counts.
pub fn asked(record: &CaseRecord) -> impl Iterator<Item = (&'static str, u64)> {
    let calls = record.activity.as_ref().map(|activity| &activity.calls);
    ASKED_OF_CUDA
        .into_iter()
        .filter_map(move |(call, count)| Some((count, *calls?.get(call)?)))
}

/// How often a counted function runs in a call, and what that costs the host: `backend
/// re-selected 8 times a call, 660 µs of the host a call in it`.
pub fn events(record: &CaseRecord, name: &str, events: u64) -> String {
    let event = event(name).unwrap_or(name);
    let often = match events {
        1 => "once".to_owned(),
        _ => format!("{events} times"),
    };
    let host = host_time(record, name);
    let host = host.map_or(String::new(), |time| format!(", {time}{OF_THE_HOST}"));
    format!("{event} {often} a call{host}")
}

/// Words behind a time in a counted function.
pub const OF_THE_HOST: &str = " of the host a call in it";

/// The event that a counted function is, where its name says it.
pub fn event(name: &str) -> Option<&'static str> {
    match name {
        // TransformerEngine's function; older runs call the count by its purpose.
        "backend_selections" | "get_attention_backend" => Some("backend re-selected"),
        AUTOTUNE => Some("retuned"),
        _ => None,
    }
}

/// The host's time a call in a counted function, where it is known.
pub fn host_time(record: &CaseRecord, name: &str) -> Option<Nanoseconds> {
    let counts = &record.structure.as_ref()?.counts;
    let time = counts.get(&format!("ns.{name}")).copied();
    time.map(Nanoseconds::whole)
}
