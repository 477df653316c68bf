//! A worker that misbehaves on request: most tests of the harness run on it.
//!
//! The variants are behaviours (`fake/steady`, `fake/dead`, ...). Times are made up
//! from the problem's FLOPs, so nothing here sleeps and no test depends on how fast
//! the machine is. Their noise is drawn from `--seed` (1), the variant, the problem and the
//! number of this start, which is counted in the file that `FAKE_STARTS` names (one byte a
//! start; without it each start is the first). So a test sees the same times whenever it runs,
//! and its invocations differ. An example rather than a binary, so that it is built with the
//! tests and never installed.

#[path = "answers.rs"]
mod answers;
#[path = "fault.rs"]
mod fault;
#[path = "script.rs"]
mod script;
#[path = "tuner.rs"]
mod tuner;
#[path = "variants.rs"]
mod variants;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::FromRawFd;
use std::path::PathBuf;
use std::process::{Command, exit};
use std::thread::sleep;
use std::time::Duration;

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use regatta_core::machine::{RecordedCall, Structure};
use regatta_worker::attention::work;
use regatta_worker::case::{CaseId, Dtype, ParamValue};
use regatta_worker::operator::Direction;
use regatta_worker::protocol::{
    Census, Device, Hello, Measure, Measured, PROTOCOL_VERSION, Parameter, Prepare, Prepared,
    REPLY_FD, VariantInfo,
};
use regatta_worker::serve::{Pause, Refusal, Worker, serve_on_descriptors};
use regatta_worker::units::{Bytes, Nanoseconds};

use answers::{Answered, answered, checked, mistake, tensors};
use variants::VARIANTS;

struct Fake {
    variants: Vec<(&'static str, &'static str)>,
    state: Option<PathBuf>,
    version: u32,
    release: String,
    /// The kind of its device.
    kind: String,
    /// The name of its device.
    device: String,
    /// The clock that it reports; without one it has one way to time a call.
    clock: Option<String>,
    absent: Option<String>,
    /// The one package that it lists, `NAME==VERSION`.
    package: Option<String>,
    /// The choice of its tuner.
    tuner: Option<String>,
    /// The ratio of its times to those of others of its kind.
    slower: f64,
    seed: u64,
    /// The files it has loaded.
    files: Vec<PathBuf>,
    /// The number of this start.
    start: u64,
    /// `base`, or nothing for any other.
    side: &'static str,
    script: script::Script,
    rng: ChaCha8Rng,
    prepared: Option<Prepare>,
    chosen: tuner::Chosen,
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| {
        let at = args.iter().position(|arg| arg == name)?;
        args.get(at + 1).cloned()
    };
    let mut version = PROTOCOL_VERSION;
    let mut absent = None;
    match value("--start").as_deref() {
        Some("exit") => {
            eprintln!("fake: cannot find libattention.so.9");
            exit(7);
        }
        Some("silent") => sleep(Duration::from_secs(3600)),
        Some("garbage") => raw_reply("Welcome to libattention 9!\n"),
        Some("version") => version = PROTOCOL_VERSION + 1,
        Some("absent") => absent = Some("libattention is not installed here".to_owned()),
        _ => {}
    }
    // A library that says how much slower it is, by a path of the command or of a variable.
    let loads = value("--loads").or_else(|| std::env::var("FAKE_LOADS").ok());
    let loaded = loads.map(|path| std::fs::canonicalize(path).expect("--loads names a file"));
    let slower = match &loaded {
        Some(path) => Some(std::fs::read_to_string(path).expect("--loads can be read")),
        None => value("--slower"),
    };
    let seed = value("--seed").map_or(1, |seed| seed.parse().expect("--seed takes a number"));
    let only = value("--variants");
    let wanted = |name: &str| {
        let only = only.as_deref();
        only.is_none_or(|only| only.split(',').any(|one| one == name))
    };
    let side = side();
    let mut fake = Fake {
        variants: VARIANTS
            .into_iter()
            .filter(|(name, _)| wanted(name))
            .collect(),
        state: value("--state").map(PathBuf::from),
        version,
        release: value("--release").unwrap_or_else(|| "1.0".to_owned()),
        kind: value("--kind").unwrap_or_else(|| "cpu".to_owned()),
        device: value("--device").unwrap_or_else(|| "fake device".to_owned()),
        clock: value("--clock"),
        tuner: value("--tuner"),
        package: value("--package"),
        absent,
        files: loaded.into_iter().collect(),
        slower: slower.map_or(1.0, |percent| {
            1.0 + percent
                .trim()
                .parse::<f64>()
                .expect("--slower takes a number")
                / 100.0
        }),
        seed,
        start: start(side),
        side,
        script: script::Script::parse(&value("--script").unwrap_or_default()),
        rng: ChaCha8Rng::seed_from_u64(seed),
        prepared: None,
        chosen: tuner::Chosen::default(),
    };
    if let Err(error) = serve_on_descriptors(&mut fake) {
        eprintln!("{error}");
        exit(1);
    }
}

/// The side of a comparison that this worker is of, by the log that it writes: both sides' workers
/// start at the same time.
fn side() -> &'static str {
    let log = std::fs::read_link("/proc/self/fd/1").unwrap_or_default();
    let has = |name: &str| log.components().any(|part| part.as_os_str() == name);
    // A run that is compared with nothing may lie in a folder of this name.
    if has("reports") && has("base") {
        "base"
    } else {
        ""
    }
}

/// Counts this start: those of its side before it, by `FAKE_STARTS`.
fn start(side: &str) -> u64 {
    let Some(path) = std::env::var_os("FAKE_STARTS") else {
        return 0;
    };
    let mut path = PathBuf::from(path);
    if side == "base" {
        path.set_extension(side);
    }
    let file = OpenOptions::new().append(true).create(true).open(path);
    let mut file = file.expect("FAKE_STARTS can be written");
    file.write_all(b".").expect("FAKE_STARTS can be written");
    file.metadata().map_or(0, |data| data.len())
}

/// Writes on the reply channel behind the protocol's back.
fn raw_reply(text: &str) {
    // SAFETY: the harness opened it; it is not closed here.
    let mut replies = std::mem::ManuallyDrop::new(unsafe { File::from_raw_fd(REPLY_FD) });
    replies
        .write_all(text.as_bytes())
        .expect("the channel is open");
}

impl Fake {
    /// Counts the starts since "loses-device" took the device for good: one line each.
    fn starts_since_the_loss(&self) -> Option<usize> {
        let path = self.state.as_ref()?;
        let text = std::fs::read_to_string(path).ok()?;
        let lost = text.strip_prefix("lost\n")?;
        let starts = lost.lines().count() + 1;
        std::fs::write(path, format!("{text}start\n")).expect("the state can be written");
        Some(starts)
    }

    /// The hello in place of a library that is not there: a device, and no variant.
    fn nothing(&self, reason: &str) -> Hello {
        Hello {
            absent: Some(reason.to_owned()),
            protocol: self.version,
            worker: "fake".to_owned(),
            device: Device {
                kind: "cpu".to_owned(),
                name: "stand-in".to_owned(),
                memory_bytes: Bytes(1 << 30),
                facts: BTreeMap::new(),
            },
            ..Hello::default()
        }
    }

    /// Draws the times of a case from what it is, this start and the seed.
    fn deal(&mut self, case: &Prepare) {
        let label = format!(
            "{}{} {} {} {}",
            self.side, self.seed, self.start, case.variant, case.problem
        );
        self.rng = ChaCha8Rng::seed_from_u64(CaseId(label.into()).drawn(0));
    }

    fn noise(&mut self, width: f64) -> f64 {
        1.0 + width * (self.rng.random::<f64>() - 0.5)
    }
}

impl Worker for Fake {
    fn hello(&mut self) -> Result<Hello, Refusal> {
        if let Some(starts) = self.starts_since_the_loss() {
            return Err(Refusal::Failed(format!("no device; start {starts}")));
        }
        if let Some(reason) = &self.absent {
            return Ok(self.nothing(reason));
        }
        Ok(Hello {
            files: self.files.clone(),
            protocol: self.version,
            worker: "fake".to_owned(),
            versions: [("fake".to_owned(), self.release.clone())]
                .into_iter()
                .chain(self.clock.clone().map(|clock| ("clock".to_owned(), clock)))
                .collect(),
            device: Device {
                kind: self.kind.clone(),
                name: self.device.clone(),
                memory_bytes: Bytes(1 << 30),
                facts: BTreeMap::from([
                    ("model".to_owned(), "fake".to_owned()),
                    ("sms".to_owned(), "132".to_owned()),
                ]),
            },
            packages: (self.package.iter())
                .filter_map(|package| package.split_once("=="))
                .map(|(name, version)| (name.to_owned(), version.to_owned()))
                .collect(),
            variants: self
                .variants
                .iter()
                .map(|(name, summary)| VariantInfo {
                    name: (*name).to_owned(),
                    summary: (*summary).to_owned(),
                    dtypes: Dtype::ALL.to_vec(),
                    directions: Direction::ALL.to_vec(),
                    parameters: [
                        ("num_splits_key", Parameter::Integer),
                        ("slower_percent", Parameter::Integer),
                        ("fault", Parameter::Words(fault::words())),
                    ]
                    .into_iter()
                    .chain(tuner::parameters(name))
                    .map(|(name, kind)| (name.to_owned(), kind))
                    .collect(),
                    ..VariantInfo::default()
                })
                .collect(),
            ..Hello::default()
        })
    }

    fn prepare(&mut self, request: &Prepare) -> Result<Prepared, Refusal> {
        if let Some(reason) = &self.absent {
            return Err(Refusal::Unsupported(reason.clone()));
        }
        if !self
            .variants
            .iter()
            .any(|(name, _)| *name == request.variant)
        {
            let name = &request.variant;
            return Err(Refusal::Failed(format!("unknown variant `{name}`")));
        }
        let request = &self.script.acted(request, self.start);
        println!("fake: preparing {}", request.variant);
        self.deal(request);
        match request.variant.as_str() {
            "silent" => sleep(Duration::from_secs(3600)),
            #[allow(
                clippy::zombie_processes,
                reason = "a child left behind is what is tested"
            )]
            "forking" => {
                let child = Command::new("sleep").arg("3600").spawn();
                let child = child.expect("sleep is everywhere");
                if let Some(state) = &self.state {
                    std::fs::write(state, child.id().to_string()).expect("state is writable");
                }
                sleep(Duration::from_secs(3600));
            }
            "garbage" => raw_reply("tuning 24 configurations...\n"),
            "unsupported" => {
                return Err(Refusal::Unsupported(
                    "needs compute capability 9.0".to_owned(),
                ));
            }
            _ => {}
        }
        let problem = request.problem.attention().map_err(Refusal::Unsupported)?;
        let right = tensors(problem, request.seed)?;
        let (factor, error) = mistake(&request.variant);
        let Answered { errors, probes } = answered(problem, &right, factor, |_| error);
        let splits = splits(request) as i64;
        let chosen = tuner::chosen(request, self.tuner.as_deref(), self.state.as_deref())?;
        let own = [("num_splits_key".to_owned(), ParamValue::Int(splits))].into_iter();
        let prepared = Prepared {
            tuned: chosen.tuned.clone(),
            effective: own.chain(chosen.effective()).collect(),
            errors,
            probes,
            draw: None,
            first_call_ns: fault::of(request).first_call().0,
            first_call_parts: fault::of(request).first_call().1,
            outputs: Vec::new(),
            problems: 1,
        };
        self.prepared = Some(request.clone());
        self.chosen = chosen;
        Ok(prepared)
    }

    fn measure(&mut self, request: &Measure, pause: Pause<'_>) -> Result<Measured, Refusal> {
        let case = self.prepared.clone().ok_or("no case is prepared")?;
        match case.variant.as_str() {
            "dead" => {
                eprintln!("fake: CUDA error 700: an illegal memory access was encountered");
                exit(7);
            }
            "loses-device" => {
                if let Some(state) = &self.state {
                    std::fs::write(state, "lost\n").map_err(|error| error.to_string())?;
                }
                let reason = "cuStreamSynchronize failed: CUDA_ERROR_ILLEGAL_ADDRESS (700)";
                return Err(Refusal::Lost(reason.to_owned()));
            }
            _ => {}
        }
        let fault = fault::of(&case);
        let slower = self.slower
            * self.chosen.slows()
            * fault.slows()
            * match case.params.get("slower_percent") {
                ParamValue::Int(percent) => 1.0 + percent as f64 / 100.0,
                ParamValue::Word(_) => 1.0,
            };
        let base = (1e4 + case.problem.attention().map_or(0.0, work::flops) * 1e-2) * slower
            / splits(&case) as f64;
        let base = base
            * match case.variant.as_str() {
                "slow" => 2.0,
                "noisy" => self.noise(0.4),
                _ => self.noise(0.004),
            };
        let count = match case.variant.as_str() {
            "eager" => 2 * request.samples,
            _ => request.samples,
        };
        let mut device_ns: Vec<Nanoseconds> = (0..count)
            .map(|_| match case.variant.as_str() {
                "impossible" => 0.0,
                _ => base * self.noise(0.01),
            })
            .map(Nanoseconds)
            .collect();
        let turn = request.pause_every as usize;
        let mut taken = turn;
        while turn > 0 && taken < device_ns.len() {
            if pause(device_ns[taken - turn..taken].to_vec())? {
                device_ns.truncate(taken + turn);
            }
            taken += turn;
        }
        let gpu = case.variant == "gpu";
        let samples = if gpu { device_ns.len() } else { 0 };
        let rotates = case.input_sets > 1 && case.variant != "older";
        Ok(Measured {
            device_ns,
            host_ns: vec![fault.host_time(); samples],
            clock_mhz: vec![fault.clock_mhz(); samples],
            input_sets: if rotates { case.input_sets } else { 1 },
            checked: rotates.then(|| checked(&case)).transpose()?,
            state: if gpu { fault.state() } else { None },
            peak_bytes: gpu.then(|| fault.peak()),
            synchronised: gpu && fault.opens_the_gate(),
            ..Measured::default()
        })
    }

    fn census(&mut self, metrics: &[String]) -> Result<Census, Refusal> {
        let case = self.prepared.as_ref().ok_or("no case is prepared")?;
        let (fault, gpu) = (fault::of(case), case.variant == "gpu");
        let structure = if gpu {
            fault.census()?
        } else {
            Structure {
                counts: BTreeMap::from([("threads".to_owned(), splits(case))]),
                ..Structure::default()
            }
        };
        let mut census = Census {
            structure,
            activity: if gpu { fault.activity() } else { None },
            ..Census::default()
        };
        // Three calls as the clock had them: the device's record of one.
        let calls = census.activity.clone().map(|activity| RecordedCall {
            time_ns: None,
            operations: activity.operations,
            calls: activity
                .calls
                .into_iter()
                .chain(fault.asked_when_timed())
                .collect(),
        });
        census.recorded = calls.into_iter().cycle().take(3).collect();
        census.count(metrics, |metrics| fault.counted(metrics));
        Ok(census)
    }

    fn release(&mut self) {
        let case = self.prepared.take();
        if case.is_some_and(|case| case.variant == "clings") {
            eprintln!("fake: double free or corruption");
            exit(7);
        }
    }
}

/// The rule of the fake kernel: automatic is four splits, a sentinel becomes one.
fn splits(case: &Prepare) -> u64 {
    match case.params.get("num_splits_key") {
        ParamValue::Int(splits) => splits.clamp(1, 8) as u64,
        ParamValue::Word(_) => 4,
    }
}
