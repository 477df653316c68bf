//! `regatta doctor --ruler`: what the clocks read of work of known length.
//!
//! Each clock is ruled in a process of its own, so that a driver that crashes or hangs
//! costs that clock alone.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::{Ended, Stop, interrupt, note, print};
use regatta::judge::ruler::ruled;
use regatta::measure;
use regatta::record::ruler::Readings;
use regatta::report::files;
use regatta::report::ruler::{Ruling, documents, table};
use regatta::worker::program::{Leaves, Program, Started, Streams};

/// A ruler takes some seconds; one that takes this long is stuck.
const LIMIT: Duration = Duration::from_secs(180);

/// What can be ruled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// The gated clock on the first GPU.
    Gpu,
    /// The monotonic clock of the processor.
    Cpu,
}

impl Clock {
    fn name(self) -> &'static str {
        match self {
            Clock::Gpu => "gpu",
            Clock::Cpu => "cpu",
        }
    }
}

/// What the ruling process prints.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    Taken(Box<Readings>),
    /// There is no such device here.
    Absent(String),
    /// There is one, and it failed.
    Failed(String),
}

/// What became of one clock, for `--json`.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    /// Which clock.
    clock: Clock,
    /// What it read.
    #[serde(skip_serializing_if = "Option::is_none")]
    ruling: Option<Ruling>,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    absent: Option<String>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<String>,
}

/// Rules both clocks, prints what they read, and writes it into `out` where given. Exits
/// 3 when a device is there and could not be ruled.
///
/// # Errors
/// See [`super::Stop`].
pub fn run(json: bool, out: Option<&Path>) -> Ended {
    interrupt::watch_for("");
    if let Some(out) = out {
        files::check_writable(&out.join("ruler.html")).map_err(Stop::usage)?;
    }
    let mut outcomes = Vec::new();
    for clock in [Clock::Gpu, Clock::Cpu] {
        note(format!("ruling the {} clock", clock.name()));
        let outcome = outcome(clock, in_a_process(clock));
        if !json {
            print(shown(&outcome))?;
        }
        outcomes.push(outcome);
    }
    if json {
        let text = serde_json::to_string(&outcomes).map_err(Stop::not_judged)?;
        print(format!("{text}\n"))?;
    }
    let failed = outcomes.iter().any(|outcome| outcome.failed.is_some());
    if let Some(out) = out {
        let rulings = outcomes.into_iter().filter_map(|outcome| outcome.ruling);
        let rulings: Vec<Ruling> = rulings.collect();
        for document in documents(&rulings).map_err(Stop::not_judged)? {
            let path = out.join(document.name);
            files::write(&path, &document.text).map_err(Stop::not_judged)?;
        }
        note(format!("written: {}", out.join("ruler.html").display()));
    }
    Ok(if failed { 3 } else { 0 })
}

fn outcome(clock: Clock, answer: Answer) -> Outcome {
    let mut outcome = Outcome {
        clock,
        ruling: None,
        absent: None,
        failed: None,
    };
    match answer {
        Answer::Taken(readings) => {
            outcome.ruling = Some(Ruling {
                ruled: ruled(&readings),
                readings: *readings,
            });
        }
        Answer::Absent(why) => outcome.absent = Some(why),
        Answer::Failed(why) => outcome.failed = Some(why),
    }
    outcome
}

fn shown(outcome: &Outcome) -> String {
    let name = outcome.clock.name();
    if let Some(ruling) = &outcome.ruling {
        return table(ruling) + "\n";
    }
    let (word, why) = match (&outcome.absent, &outcome.failed) {
        (Some(why), _) => ("absent", why.as_str()),
        (_, Some(why)) => ("FAILED", why.as_str()),
        _ => ("FAILED", "no answer"),
    };
    super::indented(&format!("{name} clock {word}: {why}"), 0, 2) + "\n"
}

/// Rules a clock in a process of its own, and says how that ended.
fn in_a_process(clock: Clock) -> Answer {
    let started = std::env::current_exe().and_then(|program| {
        let args = ["worker", "ruler", clock.name()];
        started(program, &args)
    });
    match started {
        Ok(child) => answer_of(child, LIMIT),
        Err(error) => Answer::Failed(format!("its process could not be started: {error}")),
    }
}

fn started(program: PathBuf, args: &[&str]) -> io::Result<Started> {
    let streams = Streams {
        stdin: Stdio::null(),
        stdout: Stdio::piped(),
        stderr: Stdio::piped(),
    };
    Program {
        program,
        args: args.iter().map(|&word| word.to_owned()).collect(),
        env: Vec::new(),
        directory: None,
        leaves: Leaves::Nothing,
    }
    .start(streams, Vec::new())
}

/// Reads a process's answer and waits for its end, up to a limit.
fn answer_of(mut child: Started, limit: Duration) -> Answer {
    // Read on threads of their own: a full pipe would keep the process from ending.
    let (printed, said) = (reading(child.stdout()), reading(child.stderr()));
    let deadline = Instant::now() + limit;
    let status = loop {
        match child.ended() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(20)),
            Ok(None) => {
                child.end();
                return Answer::Failed(format!("no answer within {limit:?}; it was ended"));
            }
            Err(error) => return Answer::Failed(error.to_string()),
        }
    };
    let joined = |text: thread::JoinHandle<String>| text.join().unwrap_or_default();
    let (printed, said) = (joined(printed), joined(said));
    serde_json::from_str(&printed).unwrap_or_else(|_| Answer::Failed(ending(status, &said)))
}

fn ending(status: ExitStatus, said: &str) -> String {
    let last = said.lines().rfind(|line| !line.trim().is_empty());
    match last {
        Some(line) => format!(
            "its process ended ({status}); its last words: {}",
            line.trim()
        ),
        None => format!("its process ended ({status}) without an answer"),
    }
}

fn reading(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // What came until then is what there is.
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// `regatta worker ruler`: rules a clock and prints the readings.
///
/// # Errors
/// See [`super::Stop`].
pub fn serve(clock: Clock) -> Ended {
    let answer = match clock {
        Clock::Cpu => Answer::Taken(Box::new(measure::ruler::cpu())),
        Clock::Gpu => match measure::ruler::gpu() {
            Ok(readings) => Answer::Taken(Box::new(readings)),
            Err(error @ regatta_probe::Error::Unavailable(_)) => Answer::Absent(error.to_string()),
            Err(error) => Answer::Failed(error.to_string()),
        },
    };
    let text = serde_json::to_string(&answer).map_err(Stop::not_judged)?;
    print(format!("{text}\n"))?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(script: &str, limit: Duration) -> Answer {
        answer_of(started("sh".into(), &["-c", script]).unwrap(), limit)
    }

    fn failure(answer: Answer) -> String {
        match answer {
            Answer::Failed(why) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_process_that_dies_hangs_or_babbles_is_a_failed_clock() {
        let died = failure(answer("echo about to die >&2; kill -SEGV $$", LIMIT));
        assert!(
            died.contains("signal: 11") && died.contains("about to die"),
            "{died}"
        );
        let hung = failure(answer("exec sleep 1000", Duration::from_millis(50)));
        assert!(hung.contains("no answer within 50ms"), "{hung}");
        let babbled = failure(answer("echo nonsense", LIMIT));
        assert!(babbled.contains("without an answer"), "{babbled}");
    }

    #[test]
    fn an_answer_is_taken_as_it_is() {
        let absent = answer(r#"echo '{"absent":"no driver"}'"#, LIMIT);
        assert!(matches!(&absent, Answer::Absent(why) if why == "no driver"));
        let text = shown(&outcome(Clock::Gpu, absent));
        assert_eq!(text, "gpu clock absent: no driver\n\n");
        let failed = outcome(Clock::Gpu, Answer::Failed("lost".to_owned()));
        assert_eq!(shown(&failed), "gpu clock FAILED: lost\n\n");
    }
}
