//! Traces that other tools wrote, read as recordings.
//!
//! What a format does not tell stays unknown: of neither are calls to CUDA counted, and of a
//! table of Nsight Systems' no launch is known.

mod kineto;
mod nsys;
mod ranges;
mod reader;

use std::io::{BufRead, Read};

use crate::machine::Recording;

/// What wrote a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// PyTorch's profiler: `export_chrome_trace`.
    Kineto,
    /// Nsight Systems: `nsys stats --report cuda_gpu_trace --format csv`.
    Nsys,
}

/// How much of a file tells what wrote it, in bytes: a list of devices stands before the events.
pub const BEGINNING: u64 = 1 << 16;

impl Source {
    /// What wrote a file that begins so, where it is one of these.
    pub fn of(beginning: &[u8]) -> Option<Source> {
        let text = String::from_utf8_lossy(beginning);
        let kineto = [
            "\"traceEvents\"",
            "\"deviceProperties\"",
            "\"schemaVersion\"",
        ];
        if text.trim_start().starts_with('{') && kineto.iter().any(|key| text.contains(key)) {
            return Some(Source::Kineto);
        }
        text.lines().any(nsys::is_header).then_some(Source::Nsys)
    }

    /// As it is told.
    pub fn text(self) -> &'static str {
        match self {
            Source::Kineto => "PyTorch's profiler (Kineto)",
            Source::Nsys => "Nsight Systems (cuda_gpu_trace)",
        }
    }

    /// Reads what it wrote, and keeps the last `limit` operations.
    ///
    /// # Errors
    /// When it cannot be understood, with where that is. Single events that cannot be used are
    /// reported in [`Recording::damage`], under `label`.
    pub fn read(self, file: impl BufRead, label: &str, limit: usize) -> Result<Recording, String> {
        let mut recording = match self {
            Source::Kineto => kineto::read(file, label)?,
            Source::Nsys => nsys::read(file, label)?,
        };
        recording.settle(limit);
        Ok(recording)
    }
}

/// The beginning of a file, for [`Source::of`].
///
/// # Errors
/// When it cannot be read.
pub fn beginning(file: impl Read) -> std::io::Result<Vec<u8>> {
    let mut beginning = Vec::new();
    file.take(BEGINNING).read_to_end(&mut beginning)?;
    Ok(beginning)
}

#[cfg(test)]
mod tests;
