//! How a trace and the difference of two are shown: text for the terminal, a page,
//! and what Perfetto opens.

mod difference;
mod perfetto;
mod recorded;

use crate::RenderError;
use crate::figures::{COLOURS, DRAWN, Timeline, svg};
use regatta_core::machine::Recording;
use regatta_core::machine::{Steady, Summary};

pub use difference::{compared, difference};
pub use perfetto::perfetto;
pub use recorded::{page, table};

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

/// A timeline of the end of a steady part: two repetitions show what is between them; one
/// is enough where that is too much to draw.
fn last_repetitions(
    recording: &Recording,
    at: &Steady,
    coloured: &[String],
    title: &str,
) -> Result<Option<String>, RenderError> {
    let two = at.to_ns - (at.period_time() * 2.0).0 as u64;
    let from = match 2 * at.period > DRAWN {
        true => at.last_ns,
        false => two.max(at.from_ns),
    };
    timeline(Some(Timeline {
        recording,
        title,
        coloured,
        from,
        to: at.to_ns,
        marked: None,
    }))
}

/// The figure, where anything ran in it.
fn timeline(stretch: Option<Timeline>) -> Result<Option<String>, RenderError> {
    let drawn = stretch.filter(|timeline| !timeline.is_empty());
    drawn.as_ref().map(svg).transpose()
}
