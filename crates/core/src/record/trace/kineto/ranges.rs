//! Which ranges of a host each launch was in.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::machine::is_operator;

/// Bytes of an operator's text.
const LONGEST: usize = 200;

/// The ranges and launches of all threads of a trace. Times are nanoseconds.
#[derive(Default)]
pub struct Threads {
    numbers: HashMap<(String, String), usize>,
    threads: Vec<HostThread>,
    names: Vec<String>,
    known: HashMap<String, u32>,
}

#[derive(Default)]
struct HostThread {
    /// Start, end and number of the name.
    ranges: Vec<(u64, u64, u32)>,
    /// Start, and the operation that was launched.
    launches: Vec<(u64, usize)>,
}

impl Threads {
    /// The number of a thread.
    pub fn number(&mut self, process: String, thread: String) -> usize {
        let threads = &mut self.threads;
        *self.numbers.entry((process, thread)).or_insert_with(|| {
            threads.push(HostThread::default());
            threads.len() - 1
        })
    }

    /// A range of a thread.
    pub fn range(&mut self, thread: usize, name: String, start: u64, end: u64) {
        let names = &mut self.names;
        let number = *self.known.entry(name).or_insert_with_key(|name| {
            names.push(name.clone());
            names.len() as u32 - 1
        });
        self.threads[thread].ranges.push((start, end, number));
    }

    /// A launch of a thread.
    pub fn launch(&mut self, thread: usize, at: u64, operation: usize) {
        self.threads[thread].launches.push((at, operation));
    }

    /// Gives each launch the ranges that were open, outermost first, as a recording has them.
    pub fn label_launches(mut self, mut label: impl FnMut(usize, Arc<str>)) {
        let mut texts: HashSet<Arc<str>> = HashSet::new();
        for thread in &mut self.threads {
            // Of two that start at once the longer is the outer one.
            thread
                .ranges
                .sort_by_key(|(start, end, _)| (*start, u64::MAX - end));
            thread.launches.sort_unstable();
            let mut next = thread.ranges.iter().peekable();
            let mut open: Vec<(u64, u32)> = Vec::new();
            for (at, operation) in &thread.launches {
                while let Some((start, end, name)) = next.next_if(|(start, ..)| start <= at) {
                    open.retain(|(last, _)| last > start);
                    open.push((*end, *name));
                }
                open.retain(|(last, _)| last > at);
                let names: Vec<&str> = open
                    .iter()
                    .map(|(_, name)| self.names[*name as usize].as_str())
                    .collect();
                let Some(text) = text(&names) else { continue };
                let told = match texts.get(text.as_str()) {
                    Some(known) => Arc::clone(known),
                    None => {
                        let new: Arc<str> = text.into();
                        texts.insert(Arc::clone(&new));
                        new
                    }
                };
                label(*operation, told);
            }
        }
    }
}

/// Of the names of all open ranges the three that a recording tells: the outermost, the
/// outermost that is an operator of a framework (else the last but one), and the innermost.
fn text(names: &[&str]) -> Option<String> {
    let last = names.len().checked_sub(1)?;
    let operator = names.iter().position(|name| is_operator(name));
    let middle = operator.filter(|place| *place < last);
    let mut places = vec![0, middle.unwrap_or(last.saturating_sub(1)), last];
    places.dedup();
    // Levels are told apart by what may not be in them.
    let told = places.iter().map(|place| names[*place].replace('/', "_"));
    let told: Vec<String> = told.collect();
    let mut text = told.join("/");
    let end = (0..=LONGEST.min(text.len()))
        .rev()
        .find(|at| text.is_char_boundary(*at));
    text.truncate(end.unwrap_or(0));
    Some(text)
}
