//! The parts of a worker of [regatta](https://docs.rs/regatta) in Rust.
//!
//! regatta times kernels in processes of their own, which speak a line of JSON for each
//! request (`docs/PROTOCOL.md` in its repository). This crate is the protocol's serving side
//! and all that an honest answer takes:
//!
//! - [`attention`]: the operator of native kernels, with a worker as an example;
//! - [`case`]: a variant, a problem of any operator, and parameters under one id;
//! - [`operator`]: a [`Problem`](operator::Problem): that of the native operator, or of one which a
//!   suite declares as data;
//! - [`inputs`]: random numbers bit for bit, and [`tolerance`]: how far a result may be from float64;
//! - [`machine`]: what a call did to a device: launches, operations and when they ran, counts;
//! - [`protocol`]: requests and replies;
//! - [`serve`]: a [`Worker`](serve::Worker), implemented for a library or a kernel, becomes
//!   the process;
//! - [`on_processor`]: code on this machine's processor, as a worker; [`sets`] for a worker of another
//!   kind.
//!
//! [`units`] prints times, ratios and sizes in one style; [`joined`] prints items in a row.
//!
//! `regatta worker check -- COMMAND` holds a worker to the protocol.

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
