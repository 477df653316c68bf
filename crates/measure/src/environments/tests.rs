use std::collections::BTreeMap;

use super::*;
use regatta_worker::case::Case;

fn pinned(version: &str) -> Environment {
    Environment {
        requirements: vec![format!("einops=={version}")],
        ..Environment::default()
    }
}

fn made(cache: &Path) -> PythonEnvironment<'static> {
    let environment = Box::leak(Box::new(pinned("0.8.2")));
    PythonEnvironment::within(cache, "te", environment)
}

#[test]
fn another_requirement_or_another_wheel_is_another_environment() {
    let folder = |environment: &Environment| {
        let made = PythonEnvironment::within(Path::new("cache"), "te", environment);
        made.folder().to_owned()
    };
    let wheels = tempfile::tempdir().unwrap();
    let wheel = wheels.path().join("einops-0.8.2-py3-none-any.whl");
    let mut filled = pinned("0.8.2");
    let links = format!("--find-links {}", wheels.path().display());
    filled.requirements.push(links);
    let mut folders = ["0.8.1", "0.8.2"]
        .map(|version| folder(&pinned(version)))
        .to_vec();
    assert!(folders[0].starts_with("cache/environments"));
    folders.push(folder(&filled));
    // The wheel keeps its length, so its contents must be read.
    for text in ["built on Monday", "built on Friday"] {
        fs::write(&wheel, text).unwrap();
        folders.push(folder(&filled));
        assert_eq!(folders.last(), Some(&folder(&filled)));
    }
    for line in [
        wheel.display().to_string(),
        format!("einops @ file://{} ; python_version > '3'", wheel.display()),
        format!("einops @ file://{}", wheels.path().display()),
    ] {
        let mut named = pinned("0.8.2");
        named.requirements = vec![line];
        for text in ["1", "2"] {
            fs::write(&wheel, text).unwrap();
            fs::write(wheels.path().join("setup.py"), text).unwrap();
            folders.push(folder(&named));
            assert_eq!(folders.last(), Some(&folder(&named)));
        }
    }
    let different: std::collections::BTreeSet<_> = folders.iter().collect();
    assert_eq!(different.len(), folders.len());
}

#[test]
fn one_that_is_not_finished_is_not_made_and_tells_nothing_of_its_build() {
    let cache = tempfile::tempdir().unwrap();
    let made = made(cache.path());
    let write = |name: &str, text: &str| fs::write(made.folder().join(name), text).unwrap();
    fs::create_dir_all(made.folder().join("bin")).unwrap();
    write("bin/python", "");
    write(BUILT, r#"{"wall_ns":5.0}"#);
    let error = made.interpreter().unwrap_err().to_string();
    assert!(error.contains("regatta env make te"), "{error}");
    assert_eq!(made.built(), None);
    write(LOCK, "einops==0.8.2\n");
    assert!(made.interpreter().unwrap().0.ends_with("bin/python"));
    assert_eq!(made.built().unwrap().wall_ns.0, 5.0);
    write(BUILT, "torn");
    assert_eq!(made.built(), None);
}

#[test]
fn something_was_built_where_pip_says_that_it_created_a_wheel() {
    assert!(builds(
        b"2026-11-22T15:00:00,1   Created wheel for sloop: filename=s.whl size=12"
    ));
    assert!(!builds(b"Using cached sloop-1.2-py3-none-any.whl (3 kB)"));
}

#[test]
fn pips_last_error_is_why_it_is_not_made() {
    let cache = tempfile::tempdir().unwrap();
    let made = made(cache.path());
    assert_eq!(made.last_error(), None);
    fs::create_dir_all(made.folder()).unwrap();
    let log = "2026-11-22T15:12:45,1 Collecting einops\n\
               2026-11-22T15:12:46,1 ERROR: Could not find a version\n\
               2026-11-22T15:12:46,2 ERROR: No matching distribution found for einops==0\n\
               2026-11-22T15:12:46,3 Exception information:\n";
    fs::write(made.folder().join(LOG), log).unwrap();
    let error = made.last_error().unwrap();
    assert_eq!(error, "No matching distribution found for einops==0");
}

fn suite(variant: &str) -> Suite {
    let case: Case = format!("{variant}:s64,d64").parse().unwrap();
    let declared = Environment {
        python: Some("/opt/python".to_owned()),
        requirements: vec!["Flash_Attn==2.8.3".to_owned(), "torch==2.11.0".to_owned()],
        ..Environment::default()
    };
    Suite {
        name: "mine".to_owned(),
        cases: vec![case],
        environments: BTreeMap::from([("torch".to_owned(), declared)]),
        ..Suite::default()
    }
}

#[test]
fn a_release_takes_the_place_of_the_one_that_is_declared() {
    let asked = ["flash-attn==2.7.4".to_owned()];
    let (name, made) = released(&suite("torch/sdpa"), None, &asked).unwrap();
    assert_eq!(name, "flash-attn-2.7.4");
    assert_eq!(made.requirements, ["flash-attn==2.7.4", "torch==2.11.0"]);
    assert_eq!(made.python.as_deref(), Some("/opt/python"));
    let two = ["jax==0.5.0".to_owned(), "jaxlib==0.5.0".to_owned()];
    let (name, _) = released(&suite("jax/sdpa"), None, &two).unwrap();
    assert_eq!(name, "jax-0.5.0-jaxlib-0.5.0");
}

#[test]
fn a_lock_is_all_that_is_installed_and_what_nobody_would_import_is_refused() {
    let lines = ["jax==0.5.0".to_owned(), "jaxlib==0.5.1".to_owned()];
    let made = locked(&suite("jax/sdpa"), None, "lock:a.txt", &lines).unwrap();
    assert_eq!((&made.requirements[..], made.alone), (&lines[..], true));
    let error = locked(&suite("cpu/flash"), None, "lock:a.txt", &lines).unwrap_err();
    let expected = "lock:a.txt changes nothing";
    assert!(error.to_string().starts_with(expected), "{error}");
    for variant in ["cpu/flash", "torch/sdpa@old"] {
        let error = released(&suite(variant), None, &["jax==1".to_owned()]).unwrap_err();
        assert!(error.to_string().contains("changes nothing"), "{error}");
    }
}
