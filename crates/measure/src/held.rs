//! Holds every start of a worker to what it said of itself when the run began.

use std::collections::{BTreeMap, BTreeSet};

use super::worker::launch::Launcher;
use crate::worker::host::{Conversation, HostError};
use regatta_worker::protocol::Hello;

/// A launcher that refuses workers which are not those the run began with: another version,
/// device or library in one invocation makes it an invocation of something else.
pub struct Held<'a> {
    launcher: &'a mut dyn Launcher,
    first: &'a BTreeMap<String, Hello>,
    waiting: Option<Waiting>,
}

/// A worker that has introduced itself and has done nothing else, by its name.
pub type Waiting = (String, Box<dyn Conversation>);

impl<'a> Held<'a> {
    /// Starts workers through `launcher`; `first` is what each said when the run began.
    pub fn new(launcher: &'a mut dyn Launcher, first: &'a BTreeMap<String, Hello>) -> Held<'a> {
        Held {
            launcher,
            first,
            waiting: None,
        }
    }

    /// The same with a worker that is up already: it serves where it is the next one that is
    /// wanted, and else ends before another is started.
    pub fn with(self, waiting: Option<Waiting>) -> Held<'a> {
        Held { waiting, ..self }
    }
}

impl Launcher for Held<'_> {
    fn start(&mut self, worker: &str) -> Result<Box<dyn Conversation>, HostError> {
        match self.waiting.take() {
            Some((name, conversation)) if name == worker => return Ok(conversation),
            other => drop(other),
        }
        let started = self.launcher.start(worker)?;
        let Some(first) = self.first.get(worker) else {
            return Ok(started);
        };
        let differ = differences(first, started.hello());
        if differ.is_empty() {
            return Ok(started);
        }
        let mut named = differ[..differ.len().min(NAMED)].join(", ");
        if differ.len() > NAMED {
            named += &format!(", and {} more", differ.len() - NAMED);
        }
        Err(changed(worker, named))
    }
}

/// Differences that are named.
const NAMED: usize = 4;

fn changed(worker: &str, differ: String) -> HostError {
    HostError::Refused {
        name: worker.to_owned(),
        reason: format!(
            "it is not the worker that this run began with, so this invocation does not count: \
             {differ}; measure anew with --fresh once it stays the same"
        ),
    }
}

/// In what two introductions differ. How much memory is free is no difference.
fn differences(first: &Hello, now: &Hello) -> Vec<String> {
    let mut found = Vec::new();
    let mut differ = |what: &str, first: &str, now: &str| {
        if first != now {
            found.push(format!("{what} {first} → {now}"));
        }
    };
    const NONE: &str = "none";
    let absent = |hello: &Hello| match &hello.absent {
        Some(reason) => format!("absent ({reason})"),
        None => "present".to_owned(),
    };
    differ("it was", &absent(first), &absent(now));
    if first.absent.is_some() != now.absent.is_some() {
        // One that is absent says nothing else of itself.
        return found;
    }
    differ("name", &first.worker, &now.worker);
    differ("device", &first.device.kind, &now.device.kind);
    differ("device", &first.device.name, &now.device.name);
    for (what, first, now) in [
        ("fact", &first.device.facts, &now.device.facts),
        ("version", &first.versions, &now.versions),
        ("package", &first.packages, &now.packages),
    ] {
        let names: BTreeSet<&String> = first.keys().chain(now.keys()).collect();
        for name in names {
            let of = |side: &BTreeMap<String, String>| {
                side.get(name).map_or(NONE.to_owned(), String::clone)
            };
            differ(&format!("{what} {name}"), &of(first), &of(now));
        }
    }
    let variants = |hello: &Hello| -> Vec<String> {
        let names = hello.variants.iter().map(|variant| variant.name.clone());
        names.collect()
    };
    let (was, is) = (variants(first), variants(now));
    let gone = was.iter().filter(|name| !is.contains(name));
    found.extend(gone.map(|name| format!("variant {name} is gone")));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::hello;
    use regatta_worker::units::Bytes;

    #[test]
    fn a_worker_that_changed_is_told_with_what_changed() {
        let first = hello("cuda", "NVIDIA H200", &[("driver", "580")]);
        let mut now = first.clone();
        now.device.memory_bytes = Bytes(2);
        assert!(differences(&first, &now).is_empty());
        now.device.name = "NVIDIA A100".to_owned();
        now.device.facts.clear();
        now.versions.insert("mine".to_owned(), "2".to_owned());
        let told = "device NVIDIA H200 → NVIDIA A100; fact driver 580 → none; version mine 1 → 2";
        assert_eq!(differences(&first, &now).join("; "), told);
        now.absent = Some("no driver".to_owned());
        assert_eq!(
            differences(&first, &now),
            ["it was present → absent (no driver)"]
        );
    }
}
