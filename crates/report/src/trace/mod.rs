//! How a trace and the difference of two are shown: text for the terminal, a page,
//! and what Perfetto opens.

mod compared;
mod difference;
mod page;
mod perfetto;
mod table;

use serde::Serialize;

use self::table::short;
use crate::plot::{COLOURS, DRAWN, Timeline, timeline};
use crate::text::{one_line, shorten};
use regatta_core::machine::Recording;
use regatta_core::machine::{Steady, Summary};

pub use compared::compared;
pub use difference::difference;
pub use page::page;
pub use perfetto::perfetto;
pub use table::table;

/// An entry of a timeline's legend.
#[derive(Serialize)]
struct LegendView {
    class: String,
    name: String,
}

/// Kernels that have a colour of their own: of each summary in turn the one that takes
/// most time, until there are as many as colours.
fn coloured<'a>(of: impl IntoIterator<Item = &'a Summary>) -> Vec<String> {
    let mut lists: Vec<_> = of.into_iter().map(|of| of.kernels.iter()).collect();
    let mut coloured: Vec<String> = Vec::new();
    loop {
        let before = lists.iter().map(|list| list.len()).sum::<usize>();
        for list in &mut lists {
            let new = list.find(|kernel| !coloured.contains(&kernel.name));
            if let Some(kernel) = new.filter(|_| coloured.len() < COLOURS) {
                coloured.push(kernel.name.clone());
            }
        }
        if before == 0 || coloured.len() == COLOURS {
            return coloured;
        }
    }
}

/// The legend of timelines that draw so many kernels.
fn legend(coloured: &[String], kernels: usize) -> Vec<LegendView> {
    let entry = |class: String, name: &str| LegendView {
        class,
        name: shorten(&one_line(name), 60),
    };
    let named = coloured.iter().enumerate();
    let mut entries: Vec<LegendView> = named
        .map(|(number, name)| entry(format!("k{number}"), &short(name)))
        .collect();
    if kernels > coloured.len() {
        entries.push(entry("kx".to_owned(), "other kernels"));
    }
    for (class, name) in [
        ("kcopy", "copies"),
        ("kset", "sets"),
        ("khost", "idle, waiting for the host"),
        ("kidle", "idle otherwise"),
    ] {
        entries.push(entry(class.to_owned(), name));
    }
    entries
}

/// A timeline of the end of a steady part: two repetitions show what is between them; one
/// is enough where that is too much to draw.
fn last_repetitions(
    recording: &Recording,
    at: &Steady,
    coloured: &[String],
    title: &str,
) -> Option<String> {
    let two = at.to_ns - (at.period_time() * 2.0).0 as u64;
    let from = match 2 * at.period > DRAWN {
        true => at.last_ns,
        false => two.max(at.from_ns),
    };
    timeline(&Timeline {
        recording,
        title,
        coloured,
        from,
        to: at.to_ns,
        marked: None,
    })
}
