//! The native operator: attention problems, their costs, and their correct results.
//!
//! An [`Attention`] is one attention computation, or one [`Projection`] around it. This module has
//! its random [`inputs`], its float64 [`reference`](mod@reference), and its FLOPs and bytes
//! ([`work`]).
//!
//! # A worker
//!
//! A function over slices is a worker in a few lines; `examples/naive.rs` is one with a real
//! kernel. The crate provides inputs, the check against float64 and the clock.
//!
//! ```
//! use regatta_worker::attention::{Attention, Function, Tensors};
//! use regatta_worker::on_processor::OnProcessor;
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
//! let asked = |id: &str| Prepare::new("one-key", id.parse().expect("an id of a problem"), 1);
//! let prepared = worker.prepare(&asked("b2,h4,s1,d64")).expect("it does this one");
//! assert_eq!(prepared.errors["out"].max_abs, Some(0.0));
//! assert!(worker.prepare(&asked("s2,d64")).is_err());
//!
//! // In `main`, answers come from the descriptors that the harness opened:
//! // regatta_worker::serve::serve_on_descriptors(&mut worker)
//! ```

pub mod axes;
mod check;
mod function;
pub mod inputs;
mod mask;
mod problem;
mod projection;
pub mod reference;
mod values;
mod variants;
pub mod work;

/// The operator's name, the value of the facet `operator`.
pub const NAME: &str = "attention";

pub use check::{DrawnCall, Planes, References};
pub use function::{Compute, Function, Tensors, fill};
pub use mask::{Align, Mask};
pub use problem::{Attention, Point};
pub use projection::{Projection, ProjectionKind, Sizes};
pub use values::{Layout, Varlen, results};
pub use variants::{Layers, examples};
