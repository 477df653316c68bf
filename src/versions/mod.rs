//! Which versions there are of what is measured: how a command line names one, and a revision
//! as a folder of its own.

pub mod checkout;
pub mod git;
pub mod spec;
