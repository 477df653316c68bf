//! What CI systems are told: annotations, summaries, files, and the comment on a pull request,
//! against a server that speaks the forges' endpoints.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::common::Place;
use serde_json::{Value, json};

/// A forge with one pull request: its comments by their ids, and what it was asked.
#[derive(Default)]
struct Forge {
    comments: BTreeMap<u64, String>,
    asked: Vec<(String, Vec<String>)>,
    refuses: bool,
}

struct Server {
    api: String,
    forge: Arc<Mutex<Forge>>,
}

impl Server {
    fn start() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let api = format!("http://{}", listener.local_addr().unwrap());
        let forge = Arc::new(Mutex::new(Forge::default()));
        let shared = Arc::clone(&forge);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                serve(stream, &shared);
            }
        });
        Server { api, forge }
    }

    fn comments(&self) -> Vec<String> {
        self.forge
            .lock()
            .unwrap()
            .comments
            .values()
            .cloned()
            .collect()
    }
}

fn serve(stream: TcpStream, forge: &Mutex<Forge>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let length = lines.iter().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.parse::<usize>().unwrap())
    });
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).unwrap();
    let request = lines.remove(0);
    let (status, answer) = forge.lock().unwrap().answer(&request, lines, &body);
    let text = answer.to_string();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        text.len()
    );
    let mut stream = stream;
    stream.write_all((head + &text).as_bytes()).unwrap();
}

impl Forge {
    fn answer(&mut self, request: &str, headers: Vec<String>, body: &[u8]) -> (u16, Value) {
        self.asked.push((request.to_owned(), headers));
        if self.refuses {
            return (
                403,
                json!({ "message": "Resource not accessible by integration" }),
            );
        }
        let text = || -> String {
            let body: Value = serde_json::from_slice(body).unwrap();
            body["body"].as_str().unwrap().to_owned()
        };
        let mut words = request.split(' ');
        let (method, path) = (words.next().unwrap(), words.next().unwrap());
        let path = path.split('?').next().unwrap();
        let id = || path.rsplit('/').next().unwrap().parse::<u64>().unwrap();
        match (method, path) {
            ("GET", "/repos/a/b/issues/12/comments")
            | ("GET", "/projects/9/merge_requests/3/notes") => {
                let all = self.comments.iter();
                let all = all.map(|(id, body)| json!({ "id": id, "body": body }));
                (200, Value::from(all.collect::<Vec<_>>()))
            }
            ("POST", "/repos/a/b/issues/12/comments")
            | ("POST", "/projects/9/merge_requests/3/notes") => {
                let id = 100 + self.comments.len() as u64;
                self.comments.insert(id, text());
                let url = format!("https://forge/a/b/pull/12#{id}");
                (201, json!({ "id": id, "html_url": url }))
            }
            ("PATCH" | "PUT", _) if self.comments.contains_key(&id()) => {
                self.comments.insert(id(), text());
                (200, json!({ "id": id() }))
            }
            _ => (404, json!({ "message": "Not Found" })),
        }
    }
}

/// A job of GitHub Actions of pull request 12.
fn job(place: &Place, server: &Server, words: &[&str]) -> (i32, String, String) {
    place.ran_with(
        &[&["comment"], words].concat(),
        &[
            ("GITHUB_REPOSITORY", "a/b"),
            ("GITHUB_REF", "refs/pull/12/merge"),
            ("GITHUB_API_URL", &server.api),
            ("GITHUB_TOKEN", "secret-token"),
            ("GITHUB_SERVER_URL", "https://forge"),
            ("GITHUB_RUN_ID", "77"),
        ],
    )
}

/// A failing and a passing report of one suite: `bad.md`, `good.md`.
fn reports() -> Place {
    let place = Place::with_baseline(&["fake/steady"], &[], "");
    exits!(
        place,
        0,
        ["gate", "./s.toml", "--output", "markdown=good.md", "-q"]
    );
    place.suite("s", &["fake/steady"], &["--slower", "50"], "");
    exits!(
        place,
        1,
        ["gate", "./s.toml", "--output", "markdown=bad.md", "-q"]
    );
    place
}

#[test]
fn a_comment_is_begun_once_and_replaced_by_the_next_report() {
    let (place, server) = (reports(), Server::start());
    let (code, stdout, stderr) = job(&place, &server, &["good.md", "--only-worse"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(
        stdout.contains("nothing is worse, and none was there"),
        "{stdout}"
    );
    assert!(server.comments().is_empty());

    let (code, stdout, stderr) = job(&place, &server, &["bad.md", "--only-worse"]);
    assert_eq!(
        (code, stdout.as_str()),
        (0, "comment created: https://forge/a/b/pull/12#100\n"),
        "{stderr}"
    );
    let comments = server.comments();
    assert!(comments[0].contains("❌ Failed: s") && comments[0].contains("6 of 6 cases regressed"));
    assert!(
        comments[0].ends_with("[more](https://forge/a/b/actions/runs/77)\n"),
        "{}",
        comments[0]
    );

    // The fix is pushed: the same comment says so.
    let (code, stdout, _) = job(&place, &server, &["good.md", "--only-worse", "--json"]);
    assert_eq!(code, 0);
    let json: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(json["comment"], "updated");
    assert_eq!(server.comments().len(), 1);
    assert!(server.comments()[0].contains("✅ Passed: s"));

    // Another suite's, or one of another key, is another comment.
    job(&place, &server, &["bad.md", "--key", "nightly <b>"]);
    assert_eq!(server.comments().len(), 2);
    let forge = server.forge.lock().unwrap();
    let headers = &forge.asked.last().unwrap().1;
    assert!(
        headers.contains(&"Authorization: Bearer secret-token".to_owned()),
        "{headers:?}"
    );
}

#[test]
fn a_merge_request_has_notes() {
    let (place, server) = (reports(), Server::start());
    let variables = [
        ("GITLAB_CI", "true"),
        ("CI_PROJECT_ID", "9"),
        ("CI_MERGE_REQUEST_IID", "3"),
        ("CI_API_V4_URL", server.api.as_str()),
        ("GITLAB_TOKEN", "secret-token"),
        ("CI_JOB_URL", "https://forge/jobs/5"),
    ];
    for _ in 0..2 {
        let (code, _, stderr) = place.ran_with(&["comment", "bad.md"], &variables);
        assert_eq!(code, 0, "{stderr}");
    }
    assert_eq!(server.comments().len(), 1);
    let forge = server.forge.lock().unwrap();
    let (request, headers) = forge.asked.last().unwrap();
    assert!(
        request.starts_with("PUT /projects/9/merge_requests/3/notes/100 "),
        "{request}"
    );
    assert!(
        headers.contains(&"PRIVATE-TOKEN: secret-token".to_owned()),
        "{headers:?}"
    );
}

#[test]
fn what_is_missing_or_refused_is_said_without_the_token() {
    let (place, server) = (reports(), Server::start());
    place.write("other.md", "# something else\n");
    place.write("empty.md", "\n");
    let (_, stderr) = exits!(place, 2, ["comment", "bad.md"]);
    assert!(
        stderr.contains("the repository is not known here"),
        "{stderr}"
    );
    let words = ["comment", "bad.md", "--repository", "a/b"];
    let (_, stderr) = exits!(place, 2, words);
    assert!(stderr.contains("--number"), "{stderr}");
    let (_, stderr) = exits!(place, 2, [&words[..], &["--number", "12"]].concat());
    assert!(stderr.contains("GITHUB_TOKEN is not set"), "{stderr}");
    for (words, said) in [
        (["nowhere.md", "-"], "cannot read nowhere.md"),
        (["other.md", "-"], "--key NAME"),
        (["empty.md", "-"], "empty.md is empty"),
        (["bad.md", "--repository=a/../b"], "write OWNER/NAME"),
    ] {
        let words: Vec<&str> = words.into_iter().filter(|word| *word != "-").collect();
        let (code, _, stderr) = job(&place, &server, &words);
        assert_eq!(code, 2, "{stderr}");
        assert!(stderr.contains(said), "{stderr}");
    }
    server.forge.lock().unwrap().refuses = true;
    let (code, _, stderr) = job(&place, &server, &["bad.md"]);
    assert_eq!(code, 3, "{stderr}");
    assert!(stderr.contains("pull-requests: write"), "{stderr}");
    assert!(!stderr.contains("secret-token"), "{stderr}");
    let nobody = [
        ("GITHUB_REPOSITORY", "a/b"),
        ("GITHUB_REF", "refs/pull/12/merge"),
        ("GITHUB_API_URL", "http://127.0.0.1:1"),
        ("GITHUB_TOKEN", "secret-token"),
    ];
    let (code, _, stderr) = place.ran_with(&["comment", "bad.md"], &nobody);
    assert_eq!(code, 3, "{stderr}");
    assert!(
        stderr.contains("http://127.0.0.1:1/repos/a/b/issues/12/comments"),
        "{stderr}"
    );
    let (stdout, _) = exits!(
        place,
        0,
        [
            "comment",
            "bad.md",
            "--repository",
            "a/b",
            "--number",
            "12",
            "--dry-run"
        ]
    );
    assert!(stdout.starts_with("POST https://api.github.com/repos/a/b/issues/12/comments\n"));
}

#[test]
fn a_job_is_told_by_annotations_and_its_summary() {
    let place = Place::with_baseline(&["fake/steady"], &["--slower", "0"], "");
    place.suite("s", &["fake/steady"], &["--slower", "50"], "");
    let summary = place.path().join("summary.md");
    place.write("summary.md", "from a step before\n");
    let job = [("GITHUB_STEP_SUMMARY", summary.to_str().unwrap())];
    let words = [
        "gate",
        "./s.toml",
        "--output",
        "github=-",
        "--output",
        "junit=j.xml",
        "--output",
        "csv=tables",
    ];
    let (code, stdout, stderr) = place.ran_with(&words, &job);
    assert_eq!(code, 1, "{stderr}");
    let annotations: Vec<&str> = stdout
        .lines()
        .filter(|line| line.starts_with("::"))
        .collect();
    assert_eq!(annotations.len(), 7, "{stdout}");
    assert!(
        annotations[0].starts_with("::error file=s.toml,title=s%3A FAILED::6 of 6 cases"),
        "{stdout}"
    );
    let text = std::fs::read_to_string(&summary).unwrap();
    assert!(
        text.starts_with("from a step before\n### ❌ Failed: s"),
        "{text}"
    );
    let junit = std::fs::read_to_string(place.path().join("j.xml")).unwrap();
    assert!(junit.contains("failures=\"7\""), "{junit}");
    assert!(place.path().join("tables/cases.csv").exists());

    // With JSON on standard output they go to standard error, and so do they before a verdict.
    let (code, stdout, stderr) = place.ran_with(
        &["gate", "./s.toml", "--output", "github=-", "--json", "-q"],
        &job,
    );
    assert_eq!(code, 1);
    let _: Value = serde_json::from_str(&stdout).unwrap();
    assert!(stderr.contains("::error file=s.toml"), "{stderr}");
    let (stdout, _) = exits!(
        place,
        3,
        [
            "gate",
            "./s.toml",
            "--baseline",
            "none",
            "--output",
            "github=-"
        ]
    );
    assert!(
        stdout.starts_with("::error title=regatta::there is no baseline"),
        "{stdout}"
    );

    // Named as the Markdown's file too, it holds the report once.
    place.write("summary.md", "");
    let words = [
        "gate",
        "./s.toml",
        "--output",
        "github=-",
        "--output",
        "markdown=summary.md",
    ];
    let (code, _, stderr) = place.ran_with(&words, &job);
    assert_eq!(code, 1, "{stderr}");
    let text = std::fs::read_to_string(&summary).unwrap();
    assert_eq!(text.matches("### ❌ Failed: s").count(), 1, "{text}");

    // A summary that is full stays as it is.
    place.write("summary.md", &"x".repeat(1 << 20));
    let (_, _, stderr) = place.ran_with(
        &["gate", "./s.toml", "--output", "markdown=summary.md"],
        &job,
    );
    assert!(
        stderr.contains("the summary of this step is full"),
        "{stderr}"
    );
    assert_eq!(std::fs::metadata(&summary).unwrap().len(), 1 << 20);
    let words = ["gate", "./s.toml", "--output", "markdown=-", "--json"];
    let (_, stderr) = exits!(place, 2, words);
    assert!(stderr.contains("both go to standard output"), "{stderr}");
    let (stdout, _) = exits!(place, 1, ["gate", "./s.toml", "--output", "markdown=-"]);
    assert!(stdout.starts_with("### ❌ Failed: s"), "{stdout}");
    assert!(stdout.ends_with(" outcome=failed -->\n"), "{stdout}");
}
