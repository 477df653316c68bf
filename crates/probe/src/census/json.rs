//! JSON for the C interface and for recordings, written with `format!`: this crate has no
//! dependencies.

use super::calls::CallCounts;
use super::operation::{DeviceInfo, RecordedOperation, RecordedWork};
use crate::Error;
use crate::Result;
use std::collections::BTreeMap;
use std::ffi::{CString, c_char};
use std::fmt::{Display, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A text as a JSON string.
pub fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            control if control < ' ' => {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\u{:04x}", control as u32);
            }
            other => out.push(other),
        }
    }
    out + "\""
}

/// A JSON array. Elements display as JSON.
pub fn array<T: Display>(elements: impl IntoIterator<Item = T>) -> String {
    let elements = elements.into_iter().map(|element| element.to_string());
    format!("[{}]", elements.collect::<Vec<_>>().join(","))
}

/// A JSON object. Values display as JSON.
fn object<T: Display>(members: impl IntoIterator<Item = (&'static str, T)>) -> String {
    let members = members.into_iter();
    let members = members.map(|(name, value)| format!("\"{name}\":{value}"));
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

/// A further member of an object, if the value is there.
pub fn optional(name: &str, value: Option<impl Display>) -> String {
    value.map_or_else(String::new, |value| format!(",\"{name}\":{value}"))
}

/// An operation. `name` and `operator` write the ids of its kernel's name and its operator.
pub fn operation<Name: Display>(
    operation: &RecordedOperation,
    name: impl Fn(u32) -> Name,
    operator: impl Fn(u32) -> Name,
) -> String {
    let what = match &operation.activity {
        RecordedWork::Kernel(kernel) => format!(
            r#""kind":"kernel","name":{},"grid":{:?},"block":{:?}{},"registers":{},"shared_bytes":{},"local_bytes":{}{}"#,
            name(kernel.name),
            kernel.grid,
            kernel.block,
            optional("cluster", kernel.cluster.map(array)),
            kernel.registers,
            u64::from(kernel.static_shared) + u64::from(kernel.dynamic_shared),
            kernel.local,
            optional("graph", kernel.graph),
        ),
        RecordedWork::Copy { direction, bytes } => {
            format!(r#""kind":"copy","direction":"{direction}","bytes":{bytes}"#)
        }
        RecordedWork::Fill { bytes } => format!(r#""kind":"set","bytes":{bytes}"#),
    };
    let RecordedOperation {
        start,
        end,
        stream,
        device,
        ..
    } = operation;
    format!(
        r#"{{{what},"start_ns":{start},"end_ns":{end},"stream":{stream},"device":{device}{}{}{}}}"#,
        optional("launched_ns", operation.launch.map(|launch| launch.at)),
        optional("launch_ns", operation.launch.map(|launch| launch.ns)),
        optional("operator", operation.operator.map(operator)),
    )
}

/// Two members: the counts of calls, and the host's time in the classes that occurred.
pub fn counts(counts: &CallCounts) -> String {
    let named = counts.named();
    let calls = object(named.iter().map(|(name, count)| (*name, count.calls)));
    let made = named.iter().filter(|(_, count)| count.calls > 0);
    let ns = object(made.map(|(name, count)| (*name, count.ns)));
    format!(r#""counts":{calls},"ns":{ns}"#)
}

/// A line with the start times of listed calls, by name.
pub fn moments(moments: &[(&'static str, u64)]) -> String {
    let mut named = BTreeMap::<_, Vec<u64>>::new();
    for (name, at) in moments {
        named.entry(*name).or_default().push(*at);
    }
    let moments = object(named.into_iter().map(|(name, at)| (name, array(at))));
    format!("{{\"kind\":\"moments\",\"of\":{moments}}}\n")
}

/// A line that describes a device.
pub fn device(device: &DeviceInfo) -> String {
    let (major, minor) = device.capability;
    format!(
        "{{\"kind\":\"device\",\"ordinal\":{},\"name\":{},\"sms\":{},\"capability\":\"{major}.{minor}\"}}\n",
        device.ordinal,
        quoted(&device.name),
        device.sms
    )
}

/// The recording in progress of the C interface, and the JSON text of the last one that ended.
pub struct Current<T>(Mutex<(Option<T>, Option<CString>)>);

impl<T> Current<T> {
    pub const fn new() -> Self {
        Self(Mutex::new((None, None)))
    }

    fn lock(&self) -> MutexGuard<'_, (Option<T>, Option<CString>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a recording. Drops one that was begun and not ended.
    pub fn begin(&self, begin: impl FnOnce() -> Result<T>) -> Result<()> {
        let mut current = self.lock();
        current.0 = None;
        current.0 = Some(begin()?);
        Ok(())
    }

    /// Calls `act` with the recording in progress, if there is one.
    pub fn each(&self, act: impl FnMut(&mut T)) -> Result<()> {
        self.lock().0.iter_mut().for_each(act);
        Ok(())
    }

    /// Ends the recording. `json` then points to the text that `end` returns.
    ///
    /// # Safety
    /// `json` is null or writable.
    pub unsafe fn end(
        &self,
        json: *mut *const c_char,
        not_begun: &'static str,
        end: impl FnOnce(T) -> Result<String>,
    ) -> Result<()> {
        let mut current = self.lock();
        let begun = current.0.take().ok_or(Error::Order(not_begun))?;
        let text = CString::new(end(begun)?).unwrap_or_default();
        let kept = current.1.insert(text);
        if !json.is_null() {
            // SAFETY: required of the caller.
            unsafe { json.write(kept.as_ptr()) };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn texts_are_json() {
        let text = quoted("a \"b\"\\\n\u{1}é");
        assert_eq!(text, "\"a \\\"b\\\"\\\\\\u000a\\u0001é\"");
    }

    #[test]
    fn moments_are_a_line_of_json() {
        let both = moments(&[("frees", 5), ("allocations", 3), ("frees", 9)]);
        let lines = [both, moments(&[])].map(|line| serde_json::from_str::<Value>(&line).unwrap());
        let both = json!({"kind": "moments", "of": {"allocations": [3], "frees": [5, 9]}});
        assert_eq!(lines, [both, json!({"kind": "moments", "of": {}})]);
    }
}
