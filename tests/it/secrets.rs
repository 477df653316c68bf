//! No secret of the environment or of a command line stands in a file or an output.

use std::fs;
use std::path::Path;

use crate::common::{Place, fake_worker};

const FAMILIES: [&str; 10] = [
    "NVIDIA_",
    "TORCH",
    "CUDA_",
    "JAX_",
    "XLA_",
    "TRITON_",
    "NCCL_",
    "OMP_",
    "MKL_",
    "LD_PRELOAD_",
];

/// Forty variables: of each family two whose names tell a secret, and two whose names do not.
fn planted(value: &str) -> Vec<(String, String)> {
    let names = FAMILIES.iter().flat_map(|family| {
        let endings = ["API_KEY", "_hub_Token", "PLUGIN_OPTIONS", "_DB_URL"];
        endings.map(|ending| format!("{family}{ending}"))
    });
    names
        .enumerate()
        .map(|(n, name)| (name, format!("{value}-{n}")))
        .collect()
}

/// Every file in a folder, but for the logs of workers, with its bytes as text.
fn files(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true if path.ends_with("logs") => {}
            true => files(&path, found),
            false => {
                let text = fs::read(&path).unwrap();
                let text = String::from_utf8_lossy(&text).into_owned();
                found.push((path.display().to_string(), text));
            }
        }
    }
}

#[test]
fn no_secret_stands_in_a_file_or_an_output() {
    let place = Place::new();
    place.suite("s", &["fake/steady"], &[], "");
    let worker = fake_worker().display().to_string();
    place.edit(
        "s.toml",
        &format!("fake = [\"{worker}\""),
        &format!("fake = [\"env\", \"WORKER_API_KEY=planted-in-argv\", \"{worker}\""),
    );
    let mut told = Vec::new();
    let mut ran = |code: i32, value: &str, args: &[&str]| {
        let variables = planted(value);
        let variables = variables.iter();
        let variables: Vec<_> = variables
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let (found, stdout, stderr) = place.ran_with(args, &variables);
        assert_eq!(found, code, "{args:?}\n{stdout}\n{stderr}");
        told.push((format!("{args:?}"), stdout + &stderr));
    };
    ran(0, "planted", &["run", "./s.toml"]);
    ran(0, "planted", &["baseline", "save", "s"]);
    ran(0, "planted", &["gate", "./s.toml"]);
    ran(0, "planted", &["run", "./s.toml", "--out", "head"]);
    ran(
        0,
        "planted",
        &[
            "diff",
            "reports/s",
            "head",
            "--json",
            "--output",
            "html=page.html",
            "--output",
            "markdown=page.md",
            "--output",
            "junit=junit.xml",
            "--output",
            "csv=tables",
        ],
    );
    ran(0, "planted", &["report", "head"]);
    ran(
        0,
        "planted",
        &["compare", "./s.toml", "--base", "here", "--out", "pairs"],
    );
    // What changed is seen where its name tells no secret.
    ran(
        3,
        "planted-anew",
        &["gate", "./s.toml", "--output", "markdown=refused.md"],
    );
    let refused = &told.last().unwrap().1;
    assert!(refused.contains("NCCL_PLUGIN_OPTIONS"), "{refused}");
    assert!(refused.contains("hidden:"), "{refused}");
    assert!(!refused.contains("NCCL_API_KEY"), "{refused}");

    fs::remove_file(place.path().join("s.toml")).unwrap();
    files(place.path(), &mut told);
    assert!(told.len() > 20, "{}", told.len());
    for (place, text) in told {
        assert!(!text.contains("planted"), "{place} has a secret");
    }
}
