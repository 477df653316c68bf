use super::*;

fn pinned(version: &str) -> Environment {
    Environment {
        requirements: vec![format!("einops=={version}")],
        ..Environment::default()
    }
}

#[test]
fn another_requirement_is_another_environment() {
    let cache = Path::new("cache");
    let (old, new) = (pinned("0.8.1"), pinned("0.8.2"));
    let old = Made::within(cache, "te", &old);
    let again = pinned("0.8.1");
    assert_eq!(old.folder(), Made::within(cache, "te", &again).folder());
    assert_ne!(old.folder(), Made::within(cache, "te", &new).folder());
    assert!(old.folder().starts_with("cache/environments"));
}

#[test]
fn another_wheel_is_another_environment() {
    let wheels = tempfile::tempdir().unwrap();
    let wheel = wheels.path().join("einops-0.8.2-py3-none-any.whl");
    let environment = Environment {
        wheels: Some(wheels.path().to_string_lossy().into_owned()),
        ..pinned("0.8.2")
    };
    let folder = || {
        let made = Made::within(Path::new("cache"), "te", &environment);
        made.folder().to_owned()
    };
    let empty = folder();
    fs::write(&wheel, "built today").unwrap();
    let filled = folder();
    assert_ne!(empty, filled);
    assert_eq!(filled, folder());
    fs::write(&wheel, "built tomorrow").unwrap();
    assert_ne!(filled, folder());
    let network = pinned("0.8.2");
    let elsewhere = Made::within(Path::new("cache"), "te", &network);
    assert_ne!(empty, elsewhere.folder());
}

#[test]
fn a_name_that_leads_out_of_the_cache_is_refused() {
    for environment in [pinned("0.8.1"), Environment::default()] {
        for name in ["a/../../b", "/tmp/b", "", "a b", "a\u{1b}[2J", "ä"] {
            let error = Made::of(name, &environment).err().unwrap().to_string();
            assert!(error.contains("letters, digits"), "{error}");
            assert!(!error.contains('\u{1b}'));
        }
    }
    let dotted = pinned("0.8.1");
    let made = Made::within(Path::new("cache"), "..", &dotted);
    assert_eq!(
        made.folder().parent(),
        Some(Path::new("cache/environments"))
    );
}

#[test]
fn one_that_is_not_finished_is_not_made() {
    let cache = tempfile::tempdir().unwrap();
    let environment = pinned("0.8.2");
    let made = Made::within(cache.path(), "te", &environment);
    fs::create_dir_all(made.folder().join("bin")).unwrap();
    fs::write(made.folder().join("bin/python"), "").unwrap();
    let error = made.interpreter().unwrap_err().to_string();
    assert!(error.contains("regatta env make te"), "{error}");
    fs::write(made.folder().join(LOCK), "einops==0.8.2\n").unwrap();
    assert!(made.interpreter().unwrap().ends_with("bin/python"));
}

#[test]
fn one_without_requirements_is_used_as_it_is() {
    let environment = Environment {
        interpreter: Some("/opt/python".to_owned()),
        ..Environment::default()
    };
    assert!(Made::of("plain", &environment).unwrap().is_none());
    assert_eq!(interpreter_of(&environment), "/opt/python");
}

#[test]
fn something_was_built_where_pip_says_that_it_created_a_wheel() {
    assert!(builds(
        b"2026-11-22T15:00:00,1   Created wheel for sloop: filename=s.whl size=12"
    ));
    assert!(!builds(b"Using cached sloop-1.2-py3-none-any.whl (3 kB)"));
}

#[test]
fn an_environment_tells_what_building_it_took_once_it_is_made() {
    let cache = tempfile::tempdir().unwrap();
    let environment = pinned("0.8.2");
    let made = Made::within(cache.path(), "te", &environment);
    fs::create_dir_all(made.folder()).unwrap();
    fs::write(made.folder().join(BUILT), r#"{"wall_ns":5.0}"#).unwrap();
    assert_eq!(made.built(), None);
    fs::write(made.folder().join(LOCK), "einops==0.8.2\n").unwrap();
    assert_eq!(made.built().unwrap().wall_ns.0, 5.0);
    fs::write(made.folder().join(BUILT), "torn").unwrap();
    assert_eq!(made.built(), None);
}

#[test]
fn pips_last_error_is_why_it_is_not_made() {
    let cache = tempfile::tempdir().unwrap();
    let environment = pinned("0.8.2");
    let made = Made::within(cache.path(), "te", &environment);
    assert_eq!(made.complaint(), None);
    fs::create_dir_all(made.folder()).unwrap();
    let log = "2026-11-22T15:12:45,1 Collecting einops\n\
               2026-11-22T15:12:46,1 ERROR: Could not find a version\n\
               2026-11-22T15:12:46,2 ERROR: No matching distribution found for einops==0\n\
               2026-11-22T15:12:46,3 Exception information:\n";
    fs::write(made.folder().join(LOG), log).unwrap();
    let said = made.complaint().unwrap();
    assert_eq!(said, "No matching distribution found for einops==0");
}
