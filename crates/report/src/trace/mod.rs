//! How a trace and the difference of two are shown: text for the terminal, a page,
//! and what Perfetto opens.

mod difference;
mod perfetto;
mod recorded;

use crate::RenderError;
use crate::figures::{COLOURS, DRAWN, Timeline, busiest, svg};
use regatta_core::machine::{Scope, Summary};
use regatta_core::record::trace::Trace;
use regatta_judge::trace::Analysis;
use regatta_worker::units::counted;

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

/// The timeline of a trace, the end of its steady part where `scope` asks for that: what it
/// shows in a sentence, and the figure, where anything ran.
fn timeline(
    trace: &Trace,
    analysis: &Analysis,
    scope: Scope,
    coloured: &[String],
) -> Result<(String, Option<String>), RenderError> {
    let recording = &trace.recording;
    let (stretch, shows) = match (&analysis.steady, scope) {
        (Some(part), Scope::Repetition) => {
            let at = &part.steady;
            // Two repetitions show what is between them, where that is not too much to draw.
            let two = at.to_ns.saturating_sub((at.period_time() * 2.0).0 as u64);
            let from = match 2 * at.period > DRAWN {
                true => at.last_ns,
                false => two.max(at.from_ns),
            };
            let shows = format!(
                "The last of {} of {}, {} each.",
                counted(at.repeats, "repetition"),
                counted(at.period, "operation"),
                at.period_time()
            );
            (Some((from, at.to_ns)), shows)
        }
        _ => {
            let shows = match recording.operations.len() {
                all if all > DRAWN => {
                    format!("The busiest stretch of {DRAWN} operations among {all}.")
                }
                all => format!("The whole recording: {}.", counted(all, "operation")),
            };
            (busiest(recording), shows)
        }
    };
    let drawn = stretch.and_then(|stretch| Timeline::new(recording, coloured, stretch));
    Ok((shows, drawn.as_ref().map(svg).transpose()?))
}
