//! The parts of a suite that a command line names: what they lack, what they make together, and
//! how that is judged.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::anyhow;
use jiff::Timestamp;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::measuring::argv;
use super::reporting::Base;
use super::{Stop, note, sides};
use regatta::judge::judgement::Judgement;
use regatta::judge::{self, Batch, Options, next_batch};
use regatta::measure::identity::checksum;
use regatta::record::RecordError;
use regatta::record::baseline::Store;
use regatta::record::shard::Asked;
use regatta::record::shards::{
    self, Files, Found, Kind, Part, PartError, Problems, SHARDS, joined_header, joined_side,
    owed_of,
};
use regatta::record::side::Side;
use regatta::record::types::{BaseId, RunHeader};
use regatta::report::files::place;
use regatta::report::text::shell_command;

/// All parts of a suite on one kind of machine.
pub struct Whole {
    /// The machine, as its runs call it.
    pub machine: String,
    /// The parts; of a comparison the head's.
    pub head: Vec<Part>,
    /// The base's, of a comparison.
    pub base: Option<Vec<Part>>,
}

/// Why there is no whole.
pub enum Gap {
    /// Parts are lost, unfinished, or do not belong together.
    Problems(Problems),
    /// What was named is no part.
    Stop(Stop),
}

impl From<Stop> for Gap {
    fn from(stop: Stop) -> Gap {
        Gap::Stop(stop)
    }
}

impl Gap {
    /// As the end of a command, after every problem was told with the command that mends it.
    pub fn told(self) -> Stop {
        match self {
            Gap::Stop(stop) => stop,
            Gap::Problems(problems) => {
                for problem in &problems.0 {
                    let again = match problem.again.is_empty() {
                        true => String::new(),
                        false => format!(":\n  {}", shell_command(&problem.again)),
                    };
                    note(format!("{}{again}", problem.said));
                }
                Stop::NotJudged(anyhow!(
                    "these are not all parts of a suite; nothing was judged or written"
                ))
            }
        }
    }
}

/// Reads every part at these paths, sorts them by the kind of machine, and keeps others from
/// measuring them until they are dropped. `again` as for [`shards::kinds`].
///
/// # Errors
/// What they lack; a path that leads to no part: exit code 2; a part that is being measured: 3.
pub fn gather(paths: &[PathBuf], again: bool) -> Result<Vec<Whole>, Gap> {
    // A file for each part is kept open.
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
    let mut files: Vec<Files> = Vec::new();
    for path in paths {
        match shards::find(path) {
            Found::Parts(found) => files.extend(found),
            Found::Nothing => {
                return Err(Gap::Stop(Stop::Usage(anyhow!(
                    "{}: there is no run of a shard; name a folder such as reports/quick/{SHARDS}, \
                     or single ones in it",
                    path.display()
                ))));
            }
        }
    }
    // A part that is named twice is one.
    let mut seen = BTreeSet::new();
    files.retain(|files| seen.insert(place(&files.head)));
    let heads: Vec<PathBuf> = files.iter().map(|files| files.head.clone()).collect();
    let bases: Vec<PathBuf> = files
        .iter()
        .filter_map(|files| files.base.clone())
        .collect();
    let kinds = |paths| -> Result<Vec<Kind>, Gap> {
        shards::kinds(read_all(paths)?, again).map_err(Gap::Problems)
    };
    let compares = !bases.is_empty();
    let heads = kinds(heads)?;
    let mut bases = kinds(bases)?;
    let wholes = heads.into_iter().map(|head| {
        let base = bases.iter().position(|base| base.machine == head.machine);
        Whole {
            base: base.map(|place| bases.remove(place).parts),
            machine: head.machine,
            head: head.parts,
        }
    });
    let wholes: Vec<Whole> = wholes.collect();
    for whole in &wholes {
        whole.has_pairs()?;
    }
    match wholes.iter().find(|whole| whole.base.is_some() != compares) {
        None => Ok(wholes),
        Some(whole) => Err(Gap::Stop(Stop::NotJudged(anyhow!(
            "the base of the comparison was not measured on {}, as its head was",
            whole.machine
        )))),
    }
}

/// Reads parts, as many at once as there are cores.
fn read_all(paths: Vec<PathBuf>) -> Result<Vec<Part>, Stop> {
    let next = AtomicUsize::new(0);
    let read: Mutex<Vec<(usize, Result<Part, PartError>)>> = Mutex::new(Vec::new());
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads.min(paths.len()) {
            scope.spawn(|| {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some(path) = paths.get(place) else {
                        return;
                    };
                    let part = Part::hold(path.clone());
                    if let Ok(mut read) = read.lock() {
                        read.push((place, part));
                    }
                }
            });
        }
    });
    let mut read = read.into_inner().unwrap_or_else(|read| read.into_inner());
    read.sort_by_key(|(place, _)| *place);
    let mut parts = Vec::new();
    let mut unreadable = Vec::new();
    for (_, part) in read {
        match part {
            Ok(part) => parts.push(part),
            Err(PartError::Record(error @ RecordError::Busy(_))) => {
                return Err(Stop::not_judged(error));
            }
            Err(PartError::Record(error)) => unreadable.push(error),
            Err(error @ PartError::Whole(_)) => return Err(Stop::usage(error)),
        }
    }
    // What the others tell of it says how it is measured again.
    match (parts.is_empty(), unreadable.first()) {
        (true, Some(_)) => Err(Stop::usage(unreadable.remove(0))),
        _ => {
            for error in &unreadable {
                note(format!("left out: {error}"));
            }
            Ok(parts)
        }
    }
}

/// A whole as it is judged.
pub struct Judged {
    /// What it found.
    pub side: Side,
    /// What it was held against.
    pub base: Option<Base>,
    /// What is said.
    pub judgement: Judgement,
}

impl Whole {
    /// When all of its parts were merged, where they were: the last of their ends.
    pub fn merged(&self) -> Option<Timestamp> {
        let base = self.base.iter().flatten();
        let ends = self.head.iter().chain(base).map(|part| {
            let end = part.run.end.as_ref();
            end.map(|end| end.finished)
        });
        let ends: Option<Vec<Timestamp>> = ends.collect();
        ends?.into_iter().max()
    }

    /// Refuses sides of a part that were not measured in turn with each other.
    fn has_pairs(&self) -> Result<(), Stop> {
        let pair = |part: &Part| part.run.header.turn.as_ref().map(|turn| turn.pair.clone());
        let base = self.base.iter().flatten();
        match self
            .head
            .iter()
            .zip(base)
            .find(|(head, base)| pair(head) != pair(base))
        {
            None => Ok(()),
            Some((head, base)) => Err(Stop::NotJudged(anyhow!(
                "{} and {} were not measured in turn with each other; measure shard {} anew, with \
                 --fresh",
                base.path.display(),
                head.path.display(),
                head.place()
            ))),
        }
    }

    /// What is to become of it.
    pub fn asked(&self) -> &Asked {
        &self.head[0].shard().asked
    }

    /// How it is judged.
    fn options(&self, strict: bool) -> Options {
        match self.asked() {
            Asked::Run => Options {
                strict,
                same_suite: true,
                ..Options::default()
            },
            Asked::Gate { .. } => Options::gate(strict),
            Asked::Compare { .. } => Options::comparison(strict),
        }
    }

    /// The headers of the runs that its parts make: the head's, and of a comparison the base's.
    pub fn headers(&self) -> (RunHeader, Option<RunHeader>) {
        let base = self.base.as_ref();
        (
            joined_header(&self.head, argv()),
            base.map(|parts| joined_header(parts, argv())),
        )
    }

    /// Judges all parts together, as runs of these headers.
    ///
    /// # Errors
    /// When the baseline that they were measured for is not there as it was: exit code 3.
    pub fn judged(
        &self,
        (head, base): &(RunHeader, Option<RunHeader>),
        store: &Store,
        strict: bool,
        label: &str,
    ) -> Result<Judged, Stop> {
        let side = joined_side(&self.head, head, label);
        let base = match (self.asked(), self.base.as_ref().zip(base.as_ref())) {
            (Asked::Gate { base: Some(id) }, _) => Some(self.baseline(store, id, &side)?),
            (_, Some((parts, header))) => {
                let of = header.turn.as_ref().map(|turn| turn.of.join(" "));
                let base = joined_side(parts, header, &of.unwrap_or_default());
                Some(Base {
                    id: BaseId::in_turn(base.label.clone()),
                    side: base.as_base_of(&side.header),
                })
            }
            _ => None,
        };
        let options = self.options(strict);
        let judgement = judge::judge(&side, base.as_ref().map(|base| &base.side), &options);
        Ok(Judged {
            side,
            base,
            judgement,
        })
    }

    /// Fresh invocations that parts had after the last round.
    pub fn fresh(&self) -> u32 {
        owed_of(&self.head).last().map_or(0, |owed| owed.fresh)
    }

    /// The next round of fresh invocations of what is not decided; `None` where nothing more would
    /// decide it.
    pub fn next_batch(&self, judged: &Judged) -> Option<Batch> {
        let (Asked::Gate { base: Some(_) } | Asked::Compare { .. }) = self.asked() else {
            return None;
        };
        let header = &judged.side.header;
        let (policy, seed) = (&header.rules.policy, header.settings.seed);
        next_batch(&judged.judgement, policy, self.fresh(), seed)
    }

    /// The baseline that the parts were measured for.
    fn baseline(&self, store: &Store, id: &BaseId, side: &Side) -> Result<Base, Stop> {
        let name = &id.name;
        let path = store.of_machine(name, &self.machine).map_err(Stop::usage)?;
        let Some(path) = path else {
            return Err(Stop::NotJudged(anyhow!(
                "the shards were measured for baseline `{name}` of {}, and there is none in {} \
                 (--baselines says where it lies)",
                self.machine,
                store.root().display()
            )));
        };
        if checksum(&path) != id.sum {
            return Err(Stop::NotJudged(anyhow!(
                "{} is not what it was when the shards were measured for it; restore it, or \
                 measure them anew",
                path.display()
            )));
        }
        let mut base = sides::whole_baseline(&path)?;
        base.keep(&side.header.suite.filter);
        Ok(Base {
            id: id.clone(),
            side: base,
        })
    }

    /// The folder that the parts lie under, where they lie as they were measured.
    pub fn folder(&self) -> Option<PathBuf> {
        let deep = 1 + usize::from(self.base.is_some());
        let of = |part: &Part| -> Option<PathBuf> {
            let folder = part.path.ancestors().nth(deep + 1)?;
            let named = folder.file_name().is_some_and(|name| name == SHARDS);
            named.then(|| folder.parent().map(Path::to_owned))?
        };
        let first = of(self.head.first()?)?;
        let one = self
            .head
            .iter()
            .all(|part| of(part).as_ref() == Some(&first));
        one.then_some(first)
    }

    /// Cases in all parts.
    pub fn cases(&self) -> usize {
        self.head
            .iter()
            .map(|part| part.run.header.plan.len())
            .sum()
    }
}
