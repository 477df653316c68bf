//! Everything through the program, in one binary; `tests/page` is apart, since it takes a browser.

#[macro_use]
mod common;

mod build;
mod causes;
mod doctor;
mod environments;
mod examples;
mod faults;
mod files;
mod forks;
mod injection;
mod kills;
mod leftovers;
mod nightly;
mod promises;
mod python_worker;
mod secrets;
mod shards;
mod situations;
mod terminal;
mod transcripts;
