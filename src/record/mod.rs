//! What is kept: runs, baselines, and tables of them.

pub mod side;
pub mod types;

/// Version of the file formats in `docs/FORMAT.md`.
pub const SCHEMA_VERSION: u32 = 1;

/// Version of the way times are taken. Times of different methods are never
/// compared.
pub const METHOD_VERSION: u32 = 1;
