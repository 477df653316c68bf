//! The parts of a worker of [regatta](https://docs.rs/regatta) in Rust.
//!
//! regatta times kernels in separate processes, which read a line of JSON for each request
//! (`docs/PROTOCOL.md` in its repository). This crate is the serving side of the protocol, and
//! everything that a correct answer needs:
//!
//! - [`attention`]: the operator of native kernels, with a worker as an example;
//! - [`case`]: a variant, a problem of any operator, and parameters under one id;
//! - [`operator`]: a [`Problem`](operator::Problem) of the native operator, or of one that a suite
//!   declares as data;
//! - [`inputs`]: random numbers bit for bit, and [`tolerance`]: how far a result may be from
//!   float64;
//! - [`machine`]: what a call did on a device: launches, operations and when they ran, counts;
//! - [`protocol`]: requests and replies;
//! - [`serve`]: turns a [`Worker`](serve::Worker), implemented for a library or a kernel, into the
//!   process;
//! - [`on_processor`]: code on this machine's processor as a worker; [`sets`] for other kinds of
//!   workers.
//!
//! [`units`] prints times, ratios and sizes in one style; [`joined`] prints items in a row.
//!
//! `regatta worker check -- COMMAND` checks a worker against the protocol.

pub mod attention;
pub mod case;
pub mod inputs;
pub mod joined;
pub mod machine;
pub mod matrix;
pub mod on_processor;
pub mod operator;
pub mod protocol;
pub mod serve;
pub mod sets;
pub mod tolerance;
pub mod units;
