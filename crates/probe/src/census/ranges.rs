//! The ranges that a program marks with NVTX, and those that a thread was in at a moment.
//!
//! NVTX passes them to the library in `NVTX_INJECTION64_PATH`, which is this one. It passes them on
//! to CUPTI, which returns them as records beside those of calls, with the same clock.

use super::cupti::Cupti;
use super::operation::Texts;
use std::collections::{HashMap, VecDeque};
use std::ffi::{CStr, c_int, c_void};
use std::panic::catch_unwind;

/// The start or end of a range.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RangeMark<'a> {
    pub at: u64,
    pub thread: u32,
    /// The range's id, unique among open ranges.
    pub id: u32,
    /// The name of the range if it begins; `None` if it ends.
    pub begun: Option<RangeName<'a>>,
}

/// A range's name, with its domain unless that is NVTX's default.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RangeName<'a> {
    pub domain: Option<&'a CStr>,
    pub name: &'a CStr,
}

/// The maximum number of distinct operator texts. A program that numbers its ranges without end
/// gets no operators beyond that.
const PATHS: usize = 1 << 16;

/// The number of moments that are kept for each thread, since operations are recorded later than
/// their launches.
const MOMENTS: usize = 1 << 16;

/// The maximum depth of nested ranges.
const DEPTH: usize = 256;

/// The longest text of an operator, in bytes, and the length to which each of its three names is
/// cut if it would be longer.
const MAX_TEXT: usize = 200;
const MAX_NAME: usize = 64;

/// The id of a missing name.
const NONE: u32 = u32::MAX;

/// The ranges of all threads.
#[derive(Default)]
pub struct Ranges {
    names: Texts<String>,
    /// Marks that are not sorted by time yet.
    pending: Vec<(u64, u32, u32, Option<u32>)>,
    /// The thread in which each open range began.
    open: HashMap<u32, u32>,
    threads: HashMap<u32, RangeThread>,
    operators: Texts<[u32; 3]>,
}

#[derive(Default)]
struct RangeThread {
    /// Ids and names of open ranges, outermost first.
    stack: Vec<(u32, u32)>,
    /// The moments at which the thread's operator changed, each with the new one.
    moments: VecDeque<(u64, Option<u32>)>,
}

impl Ranges {
    /// Adds a mark, which takes effect with [`Ranges::settle`].
    pub fn add(&mut self, mark: RangeMark) {
        let name = mark.begun.map(|named| {
            let name = named.name.to_string_lossy();
            let plain = without_numbers(&name);
            let name = match named.domain {
                Some(domain) => format!("{}:{plain}", domain.to_string_lossy()),
                None => plain.to_owned(),
            };
            self.names.id(name, PATHS, String::clone).unwrap_or(NONE)
        });
        self.pending.push((mark.at, mark.thread, mark.id, name));
    }

    /// Applies the marks so far, in the order of time.
    pub fn settle(&mut self) {
        let mut pending = std::mem::take(&mut self.pending);
        // The sort is stable: marks of the same moment keep their order.
        pending.sort_by_key(|(at, ..)| *at);
        for (at, thread, id, name) in pending {
            let owner = match name {
                Some(_) => Some(thread),
                // A range may end in another thread than it began in.
                None => self.open.remove(&id),
            };
            let Some(owner) = owner else { continue };
            let thread = self.threads.entry(owner).or_default();
            match name {
                Some(name) if thread.stack.len() < DEPTH => {
                    thread.stack.push((id, name));
                    self.open.insert(id, owner);
                }
                Some(_) => continue,
                None => {
                    let place = thread.stack.iter().position(|(open, _)| *open == id);
                    // Ranges inside of it have ended too, even if their records were lost.
                    for (within, _) in thread.stack.drain(place.unwrap_or(thread.stack.len())..) {
                        self.open.remove(&within);
                    }
                }
            }
            let names: Vec<u32> = thread.stack.iter().map(|(_, name)| *name).collect();
            let all = self.names.all();
            let path = path(&names, all);
            let operator = if path.iter().all(|name| *name == NONE) {
                None
            } else {
                self.operators.id(path, PATHS, |path| operator(path, all))
            };
            if thread.moments.len() == MOMENTS {
                thread.moments.pop_front();
            }
            thread.moments.push_back((at, operator));
        }
    }

    /// The operator that a thread was in at a moment, as an index into [`Ranges::operators`].
    pub fn at(&self, thread: u32, at: u64) -> Option<u32> {
        let moments = &self.threads.get(&thread)?.moments;
        let before = moments.partition_point(|(from, _)| *from <= at);
        moments.get(before.checked_sub(1)?)?.1
    }

    /// The texts of all operators so far: names joined by `/`, outermost first.
    pub fn operators(&self) -> &[String] {
        self.operators.all()
    }
}

/// The three names that are recorded for a stack of open ranges: the outermost, which is usually
/// the program's own; the outermost operator of a framework, or the last but one without such an
/// operator or if it is the innermost; and the innermost.
fn path(stack: &[u32], names: &[String]) -> [u32; 3] {
    let is_operator = |name: &u32| {
        let name = names.get(*name as usize);
        name.is_some_and(|name| is_operator(name))
    };
    let last = stack.len().saturating_sub(1);
    let middle = stack.iter().position(is_operator);
    let middle = middle.filter(|place| *place < last);
    let mut places = [0, middle.unwrap_or(last.saturating_sub(1)), last].to_vec();
    places.dedup();
    let mut path = [NONE; 3];
    for (place, name) in places.into_iter().zip(&mut path) {
        *name = stack.get(place).copied().unwrap_or(NONE);
    }
    path
}

/// True for the name of a framework's operator, false for a program's own range. Readers of a
/// recording apply the same rule (`crates/worker/src/machine/names.rs`).
fn is_operator(name: &str) -> bool {
    let function = name.ends_with("Func") || name.ends_with("Function");
    let bare = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let node = bare != "Backward" && bare.ends_with("Backward");
    name.contains("::") || name.starts_with("Optimizer.") || function || node
}

/// The text of an operator: names joined by `/`.
fn operator(path: &[u32; 3], names: &[String]) -> String {
    let names = path.iter().filter_map(|name| names.get(*name as usize));
    let levels: Vec<&str> = names.map(String::as_str).collect();
    let text = levels.join("/");
    if text.len() > MAX_TEXT {
        let short = levels.iter().map(|level| cut(level, MAX_NAME));
        short.collect::<Vec<&str>>().join("/")
    } else {
        text
    }
}

fn cut(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// A range's name without the suffix of PyTorch's `emit_nvtx`, which differs between calls
/// (torch/csrc/profiler/util.cpp, `getNvtxStr`): `aten::mm, seq = 4, op_id = 71`.
fn without_numbers(name: &str) -> &str {
    let tails = [", seq = ", ", op_id = ", ", sizes = ", ", input_op_ids = "];
    let ends = tails.iter().filter_map(|tail| name.find(tail));
    ends.min().map_or(name, |end| &name[..end])
}

/// NVTX calls this from every library that marks ranges, before its first mark. Returns 1 if CUPTI
/// accepts the ranges, else 0, upon which NVTX does nothing.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub extern "C" fn InitializeInjectionNvtx2(table: *mut c_void) -> c_int {
    let begun = catch_unwind(|| {
        let library = Cupti::get().ok()?;
        // SAFETY: passes NVTX's own argument to the function that NVTX would otherwise call.
        library.take_ranges.map(|take| unsafe { take(table) })
    });
    begun.ok().flatten().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begins(at: u64, thread: u32, id: u32, name: &'static CStr) -> RangeMark<'static> {
        let begun = Some(RangeName { domain: None, name });
        RangeMark {
            at,
            thread,
            id,
            begun,
        }
    }

    fn ends(at: u64, thread: u32, id: u32) -> RangeMark<'static> {
        RangeMark {
            at,
            thread,
            id,
            begun: None,
        }
    }

    fn after(marks: &[RangeMark]) -> Ranges {
        let mut ranges = Ranges::default();
        marks.iter().for_each(|mark| ranges.add(*mark));
        ranges.settle();
        ranges
    }

    fn text(ranges: &Ranges, thread: u32, at: u64) -> Option<&str> {
        let operator = ranges.at(thread, at)?;
        Some(&ranges.operators()[operator as usize])
    }

    #[test]
    fn a_thread_is_in_the_ranges_that_it_has_begun_and_not_ended() {
        // Marks come from several buffers, so they are not sorted by time.
        let ranges = after(&[
            begins(20, 1, 2, c"forward"),
            ends(50, 1, 2),
            begins(10, 1, 1, c"step"),
            begins(30, 1, 3, c"aten::mm, seq = 4, op_id = 71"),
            ends(40, 1, 3),
            begins(15, 2, 4, c"load"),
            ends(60, 1, 1),
        ]);
        assert_eq!(text(&ranges, 1, 9), None);
        assert_eq!(text(&ranges, 1, 10), Some("step"));
        assert_eq!(text(&ranges, 1, 35), Some("step/forward/aten::mm"));
        assert_eq!(text(&ranges, 1, 45), Some("step/forward"));
        assert_eq!(text(&ranges, 1, 70), None);
        assert_eq!(text(&ranges, 2, 70), Some("load"));
        assert_eq!(text(&ranges, 3, 70), None);
    }

    #[test]
    fn of_many_ranges_three_are_told() {
        let ranges = after(&[
            begins(1, 1, 1, c"step"),
            begins(2, 1, 2, c"forward"),
            begins(3, 1, 3, c"layer"),
            begins(4, 1, 4, c"aten::linear, op_id = 8"),
            begins(5, 1, 5, c"aten::addmm"),
            begins(6, 1, 6, c"aten::mm"),
        ]);
        let linear = "aten::linear";
        assert_eq!(text(&ranges, 1, 3), Some("step/forward/layer"));
        assert_eq!(
            text(&ranges, 1, 4),
            Some(format!("step/layer/{linear}").as_str())
        );
        let innermost = format!("step/{linear}/aten::mm");
        assert_eq!(text(&ranges, 1, 6), Some(innermost.as_str()));
    }

    #[test]
    fn texts_are_bounded() {
        let long = CStr::from_bytes_with_nul(&[[b'a'; 150].as_slice(), &[0]].concat())
            .unwrap()
            .to_owned();
        let mut ranges = Ranges::default();
        for id in 0..3 {
            ranges.add(RangeMark {
                at: id,
                thread: 1,
                id: id as u32,
                begun: Some(RangeName {
                    domain: None,
                    name: &long,
                }),
            });
        }
        ranges.settle();
        assert_eq!(text(&ranges, 1, 9).map(str::len), Some(3 * 64 + 2));
        assert_eq!(cut("aé", 2), "a");
    }
}
