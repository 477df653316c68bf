//! Which versions there are, and the search between them.
//!
//! The search is a function of what is known ([`search`]); [`hunt`] asks for one comparison
//! after the other through an edge, and [`journal`] keeps each, so that it goes on after a stop.
//! Releases come from the environment's pip ([`releases`]), commits from git ([`commits`]), and
//! [`span`] makes of two ends the versions between them. [`apart`] tells packages apart that
//! moved together. How a command line names a version is [`spec`]'s, and a revision as a folder
//! of its own [`checkout`]'s.

pub mod apart;
pub mod checkout;
pub mod commits;
pub mod hunt;
pub mod journal;
pub mod releases;
pub mod search;
pub mod span;
pub mod spec;
