//! `regatta doctor --check-clocks`: what the clocks read of work of known length.

use super::{Ended, note, show_blocks};
use regatta_measure::ruler::{self, ClockReading};
use regatta_probe::Error;
use regatta_report::document::{Block, Table, TableRow};

/// What the columns mean, below a table.
const LEGEND: &str = "read: median. bias: read less nominal and less what starting and ending \
     takes of the work itself. visible: largest difference between two interleaved sets of the \
     same work, over all rounds. +n %: what work longer by n % was read as.";

/// Checks the clock of the first GPU and the monotonic clock of the CPU. Exits 3 when a device is
/// there and could not be checked.
///
/// # Errors
/// See [`super::Stop`].
pub fn run() -> Ended {
    let mut code = 0;
    for name in ["gpu", "cpu"] {
        note(format!("checking the {name} clock"));
        let found = match name {
            "gpu" => ruler::gpu(),
            _ => Ok(ruler::cpu()),
        };
        let blocks = match found {
            Ok((what, readings)) => table(what, &readings),
            Err(error @ Error::Unavailable(_)) => {
                vec![Block::Note(format!("{name} clock absent: {error}"))]
            }
            Err(error) => {
                code = 3;
                vec![Block::Note(format!("{name} clock FAILED: {error}"))]
            }
        };
        show_blocks(blocks)?;
    }
    Ok(code)
}

fn table(what: String, readings: &[ClockReading]) -> Vec<Block> {
    let rows = readings.iter().map(|of| {
        let mut cells = vec![
            of.read.to_string(),
            of.bias.signed(),
            format!("{:.2}", of.visible),
        ];
        cells.extend(of.added.map(|share| format!("{:.2}", share.0 * 100.0)));
        TableRow::new(of.nominal.to_string(), cells)
    });
    let heads = vec!["read", "bias", "visible", "+1 %", "+2 %", "+5 %", "+10 %"];
    vec![
        Block::Note(what),
        Block::Table(Table::new("nominal", heads, rows)),
        Block::Text(vec![LEGEND.to_owned()]),
    ]
}
