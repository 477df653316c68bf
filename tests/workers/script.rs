//! The acts that `--script` gives the fake worker: other than its cases ask for, and when.

use std::hash::{BuildHasher, RandomState};

use regatta_worker::case::ParamValue;
use regatta_worker::protocol::Prepare;

/// Acts, separated by commas: `s32:+30%@2` takes 30 % longer where the case's id holds `s32`
/// and in the second start, `@%5` in every fifth, `@~25` in a quarter of them at random; without the
/// one of all cases, without the other in each start. An
/// act is a percentage, `splits=N`, a fault (`fault.rs`), a variant (`variants.rs`), or `kill`,
/// which takes down the harness.
pub struct Script(Vec<Act>);

struct Act {
    case: String,
    word: String,
    starts: Starts,
}

/// The starts of a worker in which something is done.
enum Starts {
    All,
    One(u64),
    EveryNth(u64),
    /// So many of a hundred, drawn in each process.
    Share(u64),
}

impl Starts {
    fn read(text: &str) -> Starts {
        let number = |text: &str| text.parse().expect("@ is before a number");
        match text.strip_prefix('%') {
            Some(each) => Starts::EveryNth(number(each)),
            None => match text.strip_prefix('~') {
                Some(share) => Starts::Share(number(share)),
                None => Starts::One(number(text)),
            },
        }
    }

    fn has(&self, start: u64) -> bool {
        match *self {
            Starts::All => true,
            Starts::One(one) => one == start,
            Starts::EveryNth(each) => start.is_multiple_of(each),
            Starts::Share(share) => RandomState::new().hash_one(start) % 100 < share,
        }
    }
}

impl Script {
    /// Reads acts.
    pub fn parse(text: &str) -> Script {
        let acts = text.split(',').filter(|act| !act.is_empty()).map(|act| {
            let at = act.split_once('@');
            let (act, starts) = at.map_or((act, Starts::All), |(act, at)| (act, Starts::read(at)));
            let (case, word) = act.split_once(':').unwrap_or(("", act));
            let (case, word) = (case.to_owned(), word.to_owned());
            Act { case, word, starts }
        });
        Script(acts.collect())
    }

    /// The case to prepare in this start, as the acts change it.
    pub fn acted(&self, request: &Prepare, start: u64) -> Prepare {
        let mut case = request.clone();
        let id = format!("{}:{}", request.variant, request.problem);
        let now = |act: &&Act| id.contains(&act.case) && act.starts.has(start);
        for Act { word, .. } in self.0.iter().filter(now) {
            let percent = word.strip_suffix('%').map(str::parse);
            let splits = word.strip_prefix("splits=").map(str::parse);
            if let Some(Ok(percent)) = percent {
                case.params.set("slower_percent", ParamValue::Int(percent));
            } else if let Some(Ok(splits)) = splits {
                case.params.set("num_splits_key", ParamValue::Int(splits));
            } else if super::fault::words().contains(word) {
                case.params.set("fault", ParamValue::Word(word.clone()));
            } else if word == "kill" {
                // The parent is a supervisor, and the harness is that one's.
                let supervisor = std::os::unix::process::parent_id();
                let stat = std::fs::read_to_string(format!("/proc/{supervisor}/stat"));
                let stat = stat.expect("the supervisor is there");
                let harness = stat
                    .rsplit(") ")
                    .next()
                    .and_then(|text| text.split(' ').nth(1));
                let harness = harness
                    .and_then(|id| id.parse().ok())
                    .expect("it has a parent");
                let harness = nix::unistd::Pid::from_raw(harness);
                nix::sys::signal::kill(harness, nix::sys::signal::Signal::SIGKILL).ok();
                std::process::exit(0);
            } else {
                case.variant.clone_from(word);
            }
        }
        case
    }
}
