//! Tells packages that depend on this one where its source lies: they compile the shared
//! library from it, since cargo does not pass a dependency's shared library on.

use std::path::Path;

fn main() {
    let root = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default();
    let root = Path::new(&root);
    println!("cargo::metadata=src={}", root.join("src").display());
    println!("cargo::rerun-if-changed=build.rs");
}
