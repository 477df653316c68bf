//! What the readers of all formats build.

use std::collections::HashMap;

use crate::machine::{Recorded, Recording};
use crate::record::types::Damage;

/// Events that are kept with what is wrong with them; the others are counted.
const DAMAGE_KEPT: usize = 20;

/// What is built of the events of a file.
pub struct Reader<'a> {
    /// What was found so far.
    pub recording: Recording,
    names: HashMap<String, u32>,
    label: &'a str,
    bad: usize,
}

impl Reader<'_> {
    /// Of a file that is called so.
    pub fn new(label: &str) -> Reader<'_> {
        Reader {
            recording: Recording::default(),
            names: HashMap::new(),
            label,
            bad: 0,
        }
    }

    /// The number of a kernel's name.
    pub fn name(&mut self, name: String) -> u32 {
        let names = &mut self.recording.names;
        *self.names.entry(name).or_insert_with_key(|name| {
            names.push(name.clone());
            names.len() as u32 - 1
        })
    }

    /// Takes an operation in, or says why it cannot be used. `place` is its number in the file.
    pub fn take(&mut self, place: usize, operation: Result<Recorded, String>) -> bool {
        let problem = match operation {
            Ok(operation) => match operation.objection() {
                None => {
                    self.recording.operations.push(operation);
                    return true;
                }
                Some(objection) => objection.to_owned(),
            },
            Err(problem) => problem,
        };
        self.bad += 1;
        if self.bad <= DAMAGE_KEPT {
            let line = place;
            let damage = Damage { line, problem };
            self.recording.damage.push((self.label.to_owned(), damage));
        }
        false
    }

    /// All of it, `place` being the last event's.
    pub fn finished(mut self, place: usize) -> Recording {
        if self.bad > DAMAGE_KEPT {
            let problem = format!("and {} more could not be used", self.bad - DAMAGE_KEPT);
            let damage = Damage {
                line: place,
                problem,
            };
            self.recording.damage.push((self.label.to_owned(), damage));
        }
        self.recording
    }
}
