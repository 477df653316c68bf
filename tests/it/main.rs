//! Everything through the program, in one binary; `tests/page` is apart, since it takes a browser.

#[macro_use]
mod common;

mod files;
mod forks;
mod kills;
mod leftovers;
mod nightly;
mod pages;
mod secrets;
mod situations;
mod terminal;
mod transcripts;
mod watch;
mod ways;
