//! Passes the path of this crate's source to crates that depend on it. They compile the shared
//! library from the source, since cargo does not pass on a dependency's shared library.

use std::path::Path;

fn main() {
    let root = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default();
    let root = Path::new(&root);
    println!("cargo::metadata=src={}", root.join("src").display());
    println!("cargo::rerun-if-changed=build.rs");
}
