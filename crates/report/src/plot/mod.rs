//! Figures, one file each, drawn on a [`canvas`] that writes SVG.
//!
//! A figure is an inline `<svg>` without a background, whose colours are classes
//! (`f-head` fills, `s-head` strokes) that the page's style sheet gives a light
//! and a dark value. Label extents are guessed by whoever draws without fonts,
//! so margins are wide and labels too close to each other are left out.

mod canvas;
mod forest;
mod ink;
mod scale;
mod splits;
mod throughput;
mod timeline;
mod versions;

pub(super) use forest::{NAMED, Whisker, forest};
pub(super) use ink::{COLOURS, Ink};
pub(super) use splits::{Splits, splits};
pub(super) use throughput::{Bar, throughput};
pub(super) use timeline::{DRAWN, Timeline, busiest, timeline};
pub(super) use versions::{Stop, versions};
