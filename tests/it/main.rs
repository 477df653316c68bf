//! Everything through the program, in one binary; `tests/page` is apart, since it takes a browser.

#[macro_use]
mod common;

mod bad_input;
mod bisect;
mod build;
#[path = "../building.rs"]
mod building;
mod callables;
mod causes;
#[path = "../clock.rs"]
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
mod guide;
mod history;
mod identity;
mod init;
mod injection;
#[path = "../instructions.rs"]
mod instructions;
mod kills;
mod leftovers;
mod projection;
mod promises;
mod python_worker;
mod resume;
mod shards;
#[path = "../sight.rs"]
mod sight;
mod situations;
mod terminal;
mod trace;
#[path = "../trace_import.rs"]
mod trace_import;
mod trace_million;
#[path = "../tuners.rs"]
mod tuners;
mod worker_logs;
