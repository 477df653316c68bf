//! Everything through the program, in one binary; `tests/page` is apart, since it takes a browser.

#[macro_use]
mod common;

mod files;
mod forged;
mod forks;

mod kills;
mod leftovers;
mod nightly;
mod operators;
mod pages;
mod scripts;
mod secrets;
mod situations;
mod terminal;
mod transcripts;
mod watch;
mod ways;
