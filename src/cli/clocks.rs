//! `regatta doctor --check-clocks`: what the clocks read of work of known length.
//!
//! Each clock is checked in a process of its own, so that a driver that crashes or hangs costs
//! that clock alone.

use std::process::Stdio;
use std::time::Duration;

use clap::ValueEnum;

use super::{Ended, Stop, note, show_blocks, watch_for};
use regatta_measure::ruler::{self, ClockReading};
use regatta_measure::worker::program::{Program, RunningProgram, Streams};
use regatta_report::document::{Block, Table, TableRow};

/// A check takes some seconds; one that takes this long is stuck.
const LIMIT: Duration = Duration::from_secs(180);

/// What can be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ClockKind {
    /// The clock of the first GPU.
    Gpu,
    /// The monotonic clock of the CPU.
    Cpu,
}

impl ClockKind {
    fn name(self) -> &'static str {
        match self {
            ClockKind::Gpu => "gpu",
            ClockKind::Cpu => "cpu",
        }
    }
}

/// What the columns mean, below a table.
const LEGEND: &str = "read: median. bias: read less nominal and less what starting and ending \
     takes of the work itself. visible: largest difference between two interleaved sets of the \
     same work, over all rounds. +n %: what work longer by n % was read as.";

/// Checks both clocks. Exits 3 when a device is there and could not be checked.
///
/// # Errors
/// See [`super::Stop`].
pub fn run() -> Ended {
    watch_for("");
    let mut code = 0;
    for clock in [ClockKind::Gpu, ClockKind::Cpu] {
        note(format!("checking the {} clock", clock.name()));
        if let Err(why) = in_a_process(clock) {
            show_blocks(line(clock, "FAILED", &why))?;
            code = 3;
        }
    }
    Ok(code)
}

fn line(clock: ClockKind, what: &str, why: &str) -> Vec<Block> {
    vec![Block::Note(format!("{} clock {what}: {why}", clock.name()))]
}

/// Checks a clock in a process of its own, which prints what it reads, or says how it ended.
fn in_a_process(clock: ClockKind) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let program = Program::new(
        program,
        ["worker", "clock", clock.name()].map(str::to_owned),
    );
    let streams = Streams {
        stdin: Stdio::null(),
        stdout: Stdio::inherit(),
        stderr: Stdio::inherit(),
    };
    let started = program.start(streams, Vec::new());
    let mut child = started.map_err(|error| format!("its process does not start: {error}"))?;
    if !child.ends_within(LIMIT) {
        child.end();
        return Err(format!("no answer within {LIMIT:?}; it was ended"));
    }
    match child.wait() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("its process ended ({status})")),
        Err(error) => Err(error.to_string()),
    }
}

/// `regatta worker clock`: checks a clock and prints what it reads.
///
/// # Errors
/// A device that is there and fails: exit code 3.
pub fn serve(clock: ClockKind) -> Ended {
    let found = match clock {
        ClockKind::Cpu => Ok(ruler::cpu()),
        ClockKind::Gpu => ruler::gpu(),
    };
    match found {
        Ok((what, readings)) => show_blocks(table(what, &readings)),
        Err(error @ regatta_probe::Error::Unavailable(_)) => {
            show_blocks(line(clock, "absent", &error.to_string()))
        }
        Err(error) => Err(Stop::not_judged(error)),
    }
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
