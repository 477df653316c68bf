//! JSON as the C interface and recordings write it: this crate has no dependency that could.

use super::calls::CallCounts;
use super::operation::{DeviceInfo, RecordedOperation, RecordedWork};
use crate::Error;
use crate::Result;
use std::ffi::{CString, c_char};
use std::fmt::{Display, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A JSON text that is being written. Members and elements put the comma before themselves.
#[derive(Default)]
pub struct Json(String);

impl Json {
    /// The text so far.
    pub fn into_text(self) -> String {
        self.0
    }

    fn separate(&mut self) {
        if !self.0.is_empty() && !self.0.ends_with(['{', '[', ':', '\n']) {
            self.0.push(',');
        }
    }

    /// Begins an object or an array.
    pub fn open(&mut self, bracket: char) -> &mut Self {
        self.separate();
        self.0.push(bracket);
        self
    }

    /// Ends it.
    pub fn close(&mut self, bracket: char) -> &mut Self {
        self.0.push(bracket);
        self
    }

    /// Ends a line.
    pub fn line(&mut self) {
        self.0.push('\n');
    }

    /// Writes a number, or whatever else is JSON as it displays.
    pub fn number(&mut self, number: impl Display) {
        self.separate();
        // Writing to a String does not fail.
        let _ = write!(self.0, "{number}");
    }

    /// Writes a text, quotes included.
    pub fn text(&mut self, text: &str) {
        self.separate();
        self.0.push('"');
        for character in text.chars() {
            match character {
                '"' | '\\' => self.0.extend(['\\', character]),
                control if control < ' ' => {
                    // As in `number`.
                    let _ = write!(self.0, "\\u{:04x}", control as u32);
                }
                other => self.0.push(other),
            }
        }
        self.0.push('"');
    }

    /// Begins an object of this kind.
    pub fn object(&mut self, kind: &str) -> &mut Self {
        self.open('{').text_member("kind", kind)
    }

    /// Writes the name of a member, whose value follows.
    pub fn key(&mut self, name: &str) -> &mut Self {
        self.text(name);
        self.0.push(':');
        self
    }

    /// Writes a member that is a number.
    pub fn member(&mut self, name: &str, number: impl Display) -> &mut Self {
        self.key(name).number(number);
        self
    }

    /// Writes a member that is a text.
    pub fn text_member(&mut self, name: &str, text: &str) -> &mut Self {
        self.key(name).text(text);
        self
    }

    /// Writes a member that is a number, if there is one.
    pub fn optional(&mut self, name: &str, number: Option<u64>) -> &mut Self {
        if let Some(number) = number {
            self.member(name, number);
        }
        self
    }

    /// Writes a member that is an array.
    pub fn array<T>(
        &mut self,
        name: &str,
        elements: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Self, T),
    ) -> &mut Self {
        self.key(name).open('[');
        elements
            .into_iter()
            .for_each(|element| write(self, element));
        self.close(']')
    }

    /// Writes an operation; `name` writes its kernel's name by the id, `operator` its operator.
    pub fn operation(
        &mut self,
        operation: &RecordedOperation,
        name: impl FnOnce(&mut Self, u32),
        operator: impl FnOnce(&mut Self, u32),
    ) {
        match operation.activity {
            RecordedWork::Kernel(ref kernel) => {
                name(self.object("kernel").key("name"), kernel.name)
            }
            RecordedWork::Copy { direction, bytes } => {
                let copy = self.object("copy").text_member("direction", direction);
                copy.member("bytes", bytes);
            }
            RecordedWork::Fill { bytes } => {
                self.object("set").member("bytes", bytes);
            }
        }
        let (start, end) = (operation.start, operation.end);
        self.member("start_ns", start).member("end_ns", end);
        let kernel = match &operation.activity {
            RecordedWork::Kernel(kernel) => Some(kernel),
            _ => None,
        };
        if let Some(kernel) = kernel {
            self.array("grid", kernel.grid, Json::number);
            self.array("block", kernel.block, Json::number);
            if let Some(cluster) = kernel.cluster {
                self.array("cluster", cluster, Json::number);
            }
            let shared = u64::from(kernel.static_shared) + u64::from(kernel.dynamic_shared);
            self.member("registers", kernel.registers);
            self.member("shared_bytes", shared)
                .member("local_bytes", kernel.local);
        }
        self.member("stream", operation.stream)
            .member("device", operation.device);
        self.optional("graph", kernel.and_then(|kernel| kernel.graph));
        self.optional("launched_ns", operation.launch.map(|launch| launch.at));
        self.optional("launch_ns", operation.launch.map(|launch| launch.ns));
        if let Some(id) = operation.operator {
            operator(self.key("operator"), id);
        }
        self.close('}');
    }

    /// Writes counts of calls, and the host's time in those that there were: two members.
    pub fn counts(&mut self, counts: &CallCounts) -> &mut Self {
        let named = counts.named();
        self.key("counts").open('{');
        for (name, count) in &named {
            self.member(name, count.calls);
        }
        self.close('}').key("ns").open('{');
        for (name, count) in named.iter().filter(|(_, count)| count.calls > 0) {
            self.member(name, count.ns);
        }
        self.close('}')
    }

    /// Writes a line of moments of calls, by their names.
    pub fn moments(&mut self, moments: &[(&str, u64)]) {
        let mut names: Vec<&str> = moments.iter().map(|(name, _)| *name).collect();
        names.sort_unstable();
        names.dedup();
        self.object("moments").key("of").open('{');
        for name in names {
            let own = moments.iter().filter(|(of, _)| *of == name);
            self.array(name, own.map(|(_, at)| at), Json::number);
        }
        self.close('}').close('}').line();
    }

    /// Writes a line of a name and its id.
    pub fn name(&mut self, kind: &str, id: usize, name: &str) {
        let object = self.object(kind).member("id", id);
        object.text_member("name", name).close('}').line();
    }

    /// Writes a line of a device.
    pub fn device(&mut self, device: &DeviceInfo) {
        let capability = format!("{}.{}", device.capability.0, device.capability.1);
        self.object("device").member("ordinal", device.ordinal);
        self.text_member("name", &device.name)
            .member("sms", device.sms);
        self.text_member("capability", &capability)
            .close('}')
            .line();
    }
}

/// What the C interface has begun, and the JSON text of its last end.
pub struct Current<T>(Mutex<(Option<T>, Option<CString>)>);

impl<T> Current<T> {
    pub const fn new() -> Self {
        Self(Mutex::new((None, None)))
    }

    fn lock(&self) -> MutexGuard<'_, (Option<T>, Option<CString>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins anew: what was begun before and not ended is dropped first.
    pub fn begin(&self, begin: impl FnOnce() -> Result<T>) -> Result<()> {
        let mut current = self.lock();
        current.0 = None;
        current.0 = Some(begin()?);
        Ok(())
    }

    /// Does something with what has begun, if anything has.
    pub fn each(&self, act: impl FnMut(&mut T)) -> Result<()> {
        self.lock().0.iter_mut().for_each(act);
        Ok(())
    }

    /// Ends, and leaves `json` pointing to the text of what `end` gives.
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
            // SAFETY: the caller's.
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
        let mut out = Json::default();
        out.text("a \"b\"\\\n\u{1}é");
        assert_eq!(out.into_text(), "\"a \\\"b\\\"\\\\\\u000a\\u0001é\"");
    }

    #[test]
    fn moments_are_a_line_of_json() {
        let mut out = Json::default();
        out.moments(&[("frees", 5), ("allocations", 3), ("frees", 9)]);
        out.moments(&[]);
        let lines: Vec<Value> = out
            .into_text()
            .lines()
            .map(|l| serde_json::from_str(l).unwrap())
            .collect();
        let both = json!({"kind": "moments", "of": {"allocations": [3], "frees": [5, 9]}});
        assert_eq!(lines, [both, json!({"kind": "moments", "of": {}})]);
    }
}
