//! Sends requests by the system's curl: its certificates, its proxies, and no TLS of our own.
//!
//! What is secret goes to it by a pipe, and so is in no list of processes.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::thread;

use command_fds::{CommandFdExt, FdMapping};

use super::http::{Answer, ForgeError, Http, Request};

/// The curl of the path.
#[derive(Clone, Copy, Debug)]
pub struct Curl;

/// The descriptor that curl reads its options from.
const OPTIONS: i32 = 3;

impl Http for Curl {
    fn send(&self, request: &Request) -> Result<Answer, ForgeError> {
        let failed = |error: io::Error| {
            ForgeError::Unsent(match error.kind() {
                io::ErrorKind::NotFound => "there is no curl on this machine, which sends what is \
                                            said to GitHub or GitLab: install it"
                    .to_owned(),
                _ => format!("cannot run curl: {error}"),
            })
        };
        let (reading, mut writing) = io::pipe().map_err(failed)?;
        writing
            .write_all(options(request).as_bytes())
            .map_err(failed)?;
        drop(writing);
        let mut child = start(OwnedFd::from(reading)).map_err(failed)?;
        let output = talk(&mut child, request.body.clone()).map_err(failed)?;
        let status = child.wait().map_err(failed)?;
        let text = String::from_utf8_lossy(&output.0);
        let split = text.rsplit_once('\n');
        let answer = split.and_then(|(body, status)| Some((body, status.trim().parse().ok()?)));
        match answer {
            Some((body, code)) if status.success() => Ok(Answer {
                status: code,
                body: body.to_owned(),
            }),
            _ => {
                let words = String::from_utf8_lossy(&output.1);
                let words = words.trim();
                let why = match words.is_empty() {
                    true => status.to_string(),
                    false => words.trim_start_matches("curl: ").to_owned(),
                };
                Err(ForgeError::Unsent(format!(
                    "{} {}: {why}",
                    request.method, request.url
                )))
            }
        }
    }
}

fn start(options: OwnedFd) -> io::Result<Child> {
    let mut command = Command::new("curl");
    // Nobody's own options: these must not print or follow anything.
    command.args(["--disable", "--config", &format!("/dev/fd/{OPTIONS}")]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .fd_mappings(vec![FdMapping {
            parent_fd: options,
            child_fd: OPTIONS,
        }])
        .map_err(|error| io::Error::other(error.to_string()))?;
    command.spawn()
}

/// What it prints and what it complains of, while it is given what to send.
fn talk(child: &mut Child, body: Option<String>) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let giving = thread::spawn(move || {
        if let (Some(mut stdin), Some(body)) = (stdin, body) {
            // One that ended early says why itself.
            let _ = stdin.write_all(body.as_bytes());
        }
    });
    let complaining = thread::spawn(move || all_of(stderr));
    let printed = all_of(stdout)?;
    let complaints = complaining.join().unwrap_or_else(|_| Ok(Vec::new()))?;
    let _ = giving.join();
    Ok((printed, complaints))
}

fn all_of(pipe: Option<impl Read>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        pipe.read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// A request in the words of curl's configuration.
fn options(request: &Request) -> String {
    let mut lines = vec![
        "silent".to_owned(),
        "show-error".to_owned(),
        "max-time = 60".to_owned(),
        format!("request = {}", quoted(request.method)),
        format!("url = {}", quoted(&request.url)),
        format!("write-out = {}", quoted("\n%{http_code}")),
    ];
    // Asking twice does no harm; saying twice does.
    lines.extend((request.method == "GET").then(|| "retry = 2".to_owned()));
    let headers = request.headers.iter();
    lines.extend(headers.map(|header| format!("header = {}", quoted(header))));
    lines.extend(
        request
            .body
            .as_ref()
            .map(|_| "data-binary = \"@-\"".to_owned()),
    );
    lines.join("\n") + "\n"
}

fn quoted(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", text.replace('\n', "\\n").replace('\r', "\\r"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_request_ends_its_line() {
        let request = Request {
            method: "POST",
            url: "https://x/\"\nurl = \"https://evil".to_owned(),
            headers: vec!["Authorization: Bearer a\\b\r\noutput = x".to_owned()],
            body: Some("{}".to_owned()),
        };
        let text = options(&request);
        assert_eq!(
            text.lines().filter(|line| line.starts_with("url")).count(),
            1
        );
        assert!(!text.contains("\noutput"), "{text}");
        assert!(!text.contains("retry"), "{text}");
    }
}
