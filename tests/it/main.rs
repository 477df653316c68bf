//! Everything through the program, in one binary; `tests/page` is apart, since it takes a browser.

#[macro_use]
mod common;

mod bad_input;
mod bisect;
mod build;
mod building;
mod callables;
mod causes;
mod clock;
mod compare;
mod conformance;
mod cuda_worker;
mod doctor;
mod environments;
mod examples;
mod faults;
mod files;
mod forks;
mod gate;
mod history;
mod identity;
mod init;
mod injection;
mod instructions;
mod kills;
mod leftovers;
mod nightly;
mod projection;
mod promises;
mod python_worker;
mod resume;
mod secrets;
mod shards;
mod situations;
mod terminal;
mod trace;
mod trace_import;
mod tuners;
mod worker_logs;
