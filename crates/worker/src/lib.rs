//! The parts of a worker of [regatta](https://docs.rs/regatta) in Rust.
//!
//! regatta times attention in processes of their own, which speak a line of JSON for each
//! request (`docs/PROTOCOL.md` in its repository). This crate is the protocol's serving side
//! and all that an honest answer takes:
//!
//! - [`attention`]: a [`Attention`](attention::Attention) as the harness asks for it, its random
//!   [`inputs`](attention::inputs) bit for bit, the float64
//!   [`reference`](attention::reference) and the [`tolerance`](attention::tolerance) of each
//!   result, and FLOPs and bytes ([`work`](attention::work));
//! - [`case`]: a variant, a problem of any operator, and parameters under one id;
//! - [`operator`]: a [`Problem`](operator::Problem): attention's, or that of an operator which a suite
//!   declares as data;
//! - [`machine`]: what a call did to a device: launches, operations and when they ran, counts;
//! - [`protocol`]: requests and replies;
//! - [`serve`]: a [`Worker`](serve::Worker), implemented for a library or a kernel, becomes
//!   the process;
//! - [`on_processor`]: functions that take slices, as a worker, and kernels with tensors of their own;
//!   [`sets`] for a worker of another kind.
//!
//! [`units`] prints times, ratios and sizes in one style.
//!
//! # A worker
//!
//! A function over slices is a worker in a few lines; `examples/naive.rs` is one with a real
//! kernel. Inputs, the check against float64 and the clock are the crate's.
//!
//! ```
//! use regatta_worker::attention::Attention;
//! use regatta_worker::case::Params;
//! use regatta_worker::on_processor::{Function, OnProcessor, Tensors};
//! use regatta_worker::protocol::Prepare;
//! use regatta_worker::serve::Worker;
//!
//! /// Attention to a single key: its weight is 1, whatever the query is.
//! fn one_key(_: &Attention, of: &Tensors) -> Vec<Vec<f32>> {
//!     vec![of.v.clone()]
//! }
//!
//! let only_one = |of: &Attention| (of.seq_q != 1 || of.seq_k != 1).then(|| "more keys".to_owned());
//! let function = Function {
//!     unsupported: only_one,
//!     ..Function::forward("one-key", "hands the value on", one_key)
//! };
//! let mut worker = OnProcessor::new("mine", "1", vec![function]);
//!
//! // What the harness asks of it, by the problem's id. It is timed only if it is right.
//! let asked = |id: &str| Prepare {
//!     variant: "one-key".to_owned(),
//!     problem: id.parse().expect("an id of a problem"),
//!     operands: None,
//!     results: None,
//!     params: Params::default(),
//!     seed: 1,
//!     counters: Vec::new(),
//!     input_sets: 1,
//!     draw: None,
//! };
//! let prepared = worker.prepare(&asked("b2,h4,s1,d64")).expect("it does this one");
//! assert_eq!(prepared.errors["out"].max_abs, Some(0.0));
//! assert!(worker.prepare(&asked("s2,d64")).is_err());
//!
//! // In `main`, answers come from the descriptors that the harness opened:
//! // regatta_worker::serve::serve_on_descriptors(&mut worker)
//! ```
//!
//! `regatta worker check -- COMMAND` holds a worker to the protocol.

pub mod attention;
pub mod case;
pub mod machine;
pub mod matrix;
pub mod on_processor;
pub mod operator;
pub mod protocol;
pub mod serve;
pub mod sets;
pub mod units;
