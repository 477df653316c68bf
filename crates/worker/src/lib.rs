//! What a worker of [regatta](https://docs.rs/regatta) in Rust needs.
//!
//! regatta times attention in processes of their own, which speak a line of JSON for each
//! request (`docs/PROTOCOL.md` in its repository). This crate is the protocol's serving side
//! and all that an honest answer takes:
//!
//! - [`attention`]: a [`Problem`](attention::Problem) as the harness asks for it, its random
//!   [`inputs`](attention::inputs) bit for bit, the float64
//!   [`reference`](attention::reference) and the [`tolerance`](attention::tolerance) of each
//!   result, and FLOPs and bytes ([`work`](attention::work));
//! - [`machine`]: what a call did to a device: launches, operations and when they ran, counts;
//! - [`protocol`]: requests and replies;
//! - [`serve`]: a [`Worker`](serve::Worker), implemented for a library or a kernel, becomes
//!   the process;
//! - [`on_processor`]: functions that take slices, as a worker; [`sets`] and [`difference`]
//!   for one of another kind.
//!
//! [`units`] prints times, ratios and sizes in one style.
//!
//! `regatta worker check -- COMMAND` holds a worker to the protocol.

pub mod attention;
pub mod difference;
pub mod machine;
pub mod on_processor;
pub mod protocol;
pub mod serve;
pub mod sets;
pub mod units;
