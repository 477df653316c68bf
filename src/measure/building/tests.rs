use super::*;
use crate::units::Nanoseconds;

fn order<'a>() -> Order<'a> {
    Order {
        command: &[],
        env: Vec::new(),
        folder: Path::new("."),
        makes: &[],
        limit: None,
        log: None,
        part: Part::Whole,
    }
}

fn shell(script: &str, folder: &Path, makes: &[PathBuf]) -> Result<Option<Built>, BuildingError> {
    let command = ["sh", "-c", script].map(str::to_owned);
    build(&Order {
        command: &command,
        folder,
        makes,
        log: Some(&folder.join("log")),
        limit: Some(Duration::from_secs(300)),
        ..order()
    })
}

#[test]
fn a_real_build_is_measured_with_what_it_starts_and_what_it_makes() {
    let place = tempfile::tempdir().unwrap();
    // Children work; the shell itself does nothing.
    let work = "(i=0; while [ $i -lt 40000 ]; do i=$((i+1)); done) & wait\n\
                mkdir out && printf 12345 > out/a && printf 678 > out/b && ln -s a out/c";
    let built = shell(work, place.path(), &["out".into()]).unwrap().unwrap();
    assert_eq!(built.made_bytes, Some(Bytes(8)));
    assert!(built.cpu_ns.unwrap() > Nanoseconds::ZERO, "{built:?}");
    assert!(built.wall_ns > Nanoseconds::ZERO);
    let nothing = shell("true", place.path(), &[]).unwrap().unwrap();
    assert_eq!(nothing.made_bytes, None);
}

#[test]
fn what_this_process_does_is_measured_while_it_does_it() {
    let (answer, built) = own(|| {
        let status = std::process::Command::new("sh")
            .args(["-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"])
            .status();
        status.is_ok_and(|status| status.success())
    });
    assert!(answer);
    assert!(built.wall_ns > Nanoseconds::ZERO && built.cores > 0);
    assert!(built.cpu_ns.unwrap() > Nanoseconds::ZERO, "{built:?}");
    assert!(built.peak_bytes.unwrap() > Bytes(0));
}

#[test]
fn what_goes_wrong_is_said_with_its_words() {
    let place = tempfile::tempdir().unwrap();
    let said = |script: &str, makes: &[PathBuf]| {
        let error = shell(script, place.path(), makes).unwrap_err();
        error.to_string()
    };
    let failed = said("echo 'a.cpp:3: error: no such type' >&2; exit 4", &[]);
    assert!(failed.contains("exit status: 4"), "{failed}");
    assert!(failed.contains("a.cpp:3: error: no such type"), "{failed}");
    let unmade = said("true", &["out/a.so".into()]);
    let path = place.path().join("out/a.so");
    let words = format!("ended well and did not make {}", path.display());
    assert!(unmade.contains(&words), "{unmade}");
    let absent = build(&Order {
        command: &["./no-such-tool".to_owned()],
        folder: place.path(),
        ..order()
    });
    let absent = absent.unwrap_err().to_string();
    assert!(
        absent.contains("cannot start ./no-such-tool: there is no such file"),
        "{absent}"
    );
    let nowhere = build(&Order {
        command: &["true".to_owned()],
        folder: Path::new("no/such/folder"),
        ..order()
    });
    let nowhere = nowhere.unwrap_err().to_string();
    assert!(
        nowhere.contains("there is no folder no/such/folder"),
        "{nowhere}"
    );
}
