//! Embeds the built-in suites: one more is one more file in `suites/`.

use std::path::Path;
use std::{env, fs};

fn main() {
    let root = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let folder = Path::new(&root).join("../../suites");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut suites: Vec<(String, String)> = fs::read_dir(&folder)
        .expect("suites/ is part of the source")
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let name = path
                .file_name()?
                .to_str()?
                .strip_suffix(".toml")?
                .to_owned();
            Some((name, path.to_str()?.to_owned()))
        })
        .collect();
    suites.sort();
    let rows: String = suites
        .iter()
        .map(|(name, path)| format!("    ({name:?}, include_str!({path:?})),\n"))
        .collect();
    let text = format!(
        "/// The suites in the binary: name and text.\npub const BUILTIN: &[(&str, &str)] = &[\n{rows}];\n"
    );
    let out = env::var("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&out).join("suites.rs"), text).expect("OUT_DIR can be written");
}
