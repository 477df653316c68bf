//! The messages between the harness and a worker, as `docs/PROTOCOL.md` states them.
//!
//! JSON, one object a line; requests on the worker's file descriptor 3, replies
//! on 4. Types here are the wire's: they change only with [`PROTOCOL_VERSION`].

use std::collections::BTreeMap;

mod device;
mod measured;
mod peak;

use serde::{Deserialize, Serialize};

pub use self::device::{Cache, Device, DeviceKind};
pub use self::measured::{Checked, Measured, TensorError};
use self::measured::{is_one, one};
pub use self::peak::Peak;
use super::machine::{Activity, CountedCall, RecordedCall, Structure};
pub use super::machine::{DeviceState, throttle_words};
use crate::attention::{Direction, Dtype, ParamValue, Params, Problem, ProjectionKind};
use crate::units::Nanoseconds;

/// Version of the protocol; a worker that speaks another one is not used.
pub const PROTOCOL_VERSION: u32 = 1;

/// Descriptor on which a worker reads requests.
pub const REQUEST_FD: i32 = 3;

/// Descriptor on which a worker writes replies.
pub const REPLY_FD: i32 = 4;

/// Elements of each result tensor that a worker sends back for an independent check.
pub const PROBES: usize = 16;

/// One request line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Request {
    /// Repeated in the reply.
    pub id: u64,
    /// What is asked.
    #[serde(flatten)]
    pub body: RequestBody,
}

/// What the harness asks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum RequestBody {
    /// Who are you, and what can you run? Always the first request.
    Hello {
        /// The harness's [`PROTOCOL_VERSION`].
        protocol: u32,
    },
    /// Make inputs, run the case once, check the result against float64.
    Prepare(Prepare),
    /// Time the prepared case.
    Measure(Measure),
    /// Count what one call of the prepared case does to the machine.
    Census {
        /// True where only [`Census::recorded`] is asked for: the rest is known.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        times_only: bool,
        /// Hardware counters to read, by their names in CUPTI's range profiler, apart from all
        /// timing. Empty: none.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        metrics: Vec<String>,
    },
    /// Measure what the device reaches at the most; no case is prepared. A worker that does not
    /// know the request, or has nothing to measure it with, refuses.
    Peak {
        /// The storage types of interest.
        dtypes: Vec<Dtype>,
    },
    /// Forget the prepared case and free its memory.
    Release,
    /// End the process.
    Shutdown,
}

impl RequestBody {
    /// The request's name on the wire.
    pub fn name(&self) -> &'static str {
        match self {
            RequestBody::Hello { .. } => "hello",
            RequestBody::Prepare(_) => "prepare",
            RequestBody::Measure(_) => "measure",
            RequestBody::Census { .. } => "census",
            RequestBody::Peak { .. } => "peak",
            RequestBody::Release => "release",
            RequestBody::Shutdown => "shutdown",
        }
    }
}

/// Asks for a case to be made ready.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Prepare {
    /// The variant's name within the worker.
    pub variant: String,
    /// What to compute; every axis is spelled out.
    pub problem: Problem,
    /// Parameters that are not `auto`.
    #[serde(default)]
    pub params: Params,
    /// Seed of the inputs.
    pub seed: u64,
    /// Functions whose calls the census is to count; a worker that cannot leaves the
    /// counts out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counters: Vec<Counter>,
    /// Sets of inputs that the samples are to be taken on, at least, those of the first call
    /// among them. Set `n` has the seed `seed + n`; 1: the inputs stay as they are.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub input_sets: u32,
}

/// Functions whose calls are one kind of event, such as selecting a backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Counter {
    /// What the census calls them: `calls.NAME`.
    pub name: String,
    /// Each `module:qualified.name`.
    pub functions: Vec<String>,
}

/// Asks for samples of the prepared case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Measure {
    /// Untimed calls first.
    pub warmup: u32,
    /// Samples to take at the most.
    pub samples: u32,
    /// Samples to take whatever they cost.
    pub min_samples: u32,
    /// Past `min_samples`, no further sample starts after this many milliseconds.
    pub budget_ms: u64,
    /// State of the caches before each sample.
    pub cache: Cache,
    /// Capture the call into a CUDA graph and time its replays. A worker that cannot
    /// refuses; one that does says so in [`Measured::graph`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub graph: bool,
}

/// One reply line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Reply {
    /// The request's id.
    pub id: u64,
    /// The answer.
    #[serde(flatten)]
    pub body: ReplyBody,
}

/// What a worker answers. `Failed` and `Lost` may answer any request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum ReplyBody {
    /// Answers `Hello`.
    Hello(Hello),
    /// Answers `Prepare`: the case can be timed.
    Prepared(Prepared),
    /// Answers `Prepare`: this variant does not do this, in the library's own words.
    Unsupported {
        /// Why.
        reason: String,
    },
    /// The request could not be carried out; the worker lives on.
    Failed {
        /// Why.
        reason: String,
    },
    /// The request could not be carried out, and no other will be: the device is lost
    /// to this process. The harness ends it, and starts another for the next case.
    Lost {
        /// Why.
        reason: String,
    },
    /// Answers `Measure`.
    Measured(Measured),
    /// Answers `Census`.
    Census(Census),
    /// Answers `Peak`.
    Peak(Peak),
    /// Answers `Release`.
    Released,
    /// Answers `Shutdown`.
    Bye,
}

/// What one call of the prepared case does, counted apart from timing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Census {
    /// What it launches and allocates.
    #[serde(flatten)]
    pub structure: Structure,
    /// What the device did and when, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activity: Option<Activity>,
    /// Some calls, recorded as the samples before were taken: behind the gate where those were.
    /// Empty where nothing was timed, or single operations cannot be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recorded: Vec<RecordedCall>,
    /// Some calls, of which hardware counters were read. Empty where none were asked for, or
    /// `uncounted` of the structure says under `instructions` why they cannot be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counted: Vec<CountedCall>,
}

/// A worker introduces itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Hello {
    /// The protocol version it speaks.
    pub protocol: u32,
    /// Its name: `cpu`, `torch`, `jax`, ...
    pub worker: String,
    /// Versions of what decides its speed: library, toolkit, driver, interpreter.
    #[serde(default)]
    pub versions: BTreeMap<String, String>,
    /// What it runs on.
    pub device: Device,
    /// What it can run.
    pub variants: Vec<VariantInfo>,
    /// Everything installed beside it, name and version: the lock of its environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub packages: BTreeMap<String, String>,
    /// Why nothing of it can run here, such as a library that is not installed. Then every
    /// case of it is unsupported, and it need not name a variant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent: Option<String>,
}

/// One variant of a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct VariantInfo {
    /// Its name within the worker.
    pub name: String,
    /// What it is, in a line.
    #[serde(default)]
    pub summary: String,
    /// Storage types it takes.
    pub dtypes: Vec<Dtype>,
    /// Directions it runs.
    pub directions: Vec<Direction>,
    /// Projections it computes; empty: it computes attention.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub projections: Vec<ProjectionKind>,
    /// Its parameters, by name. `auto` is always allowed.
    #[serde(default)]
    pub parameters: BTreeMap<String, Parameter>,
    /// True when it keeps the whole score matrix in memory.
    #[serde(default)]
    pub stores_scores: bool,
    /// True when float32 products are rounded to TF32: it is held to that
    /// tolerance.
    #[serde(default)]
    pub tf32: bool,
}

impl VariantInfo {
    /// Why it does not compute such a problem at all, if so.
    ///
    /// The worker cannot be left to say so: one that does not know of projections
    /// ignores the field, as the protocol has it, and computes attention.
    pub fn refusal(&self, problem: &Problem) -> Option<String> {
        let name = &self.name;
        match &problem.projection {
            None if self.projections.is_empty() => None,
            None => Some(format!("`{name}` does projections, not attention")),
            Some(asked) if self.projections.contains(&asked.kind) => None,
            Some(_) if self.projections.is_empty() => {
                Some(format!("`{name}` does attention, not projections"))
            }
            Some(asked) => Some(format!("`{name}` does no {} projection", asked.kind)),
        }
    }
}

/// What values a parameter takes beside `auto`: on the wire, the word
/// `"integer"` or a list of words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Parameter {
    /// A number.
    Integer(IntegerWord),
    /// One of these words.
    Words(Vec<String>),
}

/// The word `integer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum IntegerWord {
    /// Its only value.
    Integer,
}

impl Parameter {
    /// A parameter that takes a number.
    pub const INTEGER: Parameter = Parameter::Integer(IntegerWord::Integer);

    /// True when the parameter can take this value.
    pub fn allows(&self, value: &ParamValue) -> bool {
        match (self, value) {
            (_, value) if value.is_auto() => true,
            (Parameter::Integer(_), ParamValue::Int(_)) => true,
            (Parameter::Words(words), ParamValue::Word(word)) => words.contains(word),
            _ => false,
        }
    }
}

/// A part of a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Taken {
    /// How long, all of it together.
    pub ns: Nanoseconds,
    /// How often.
    pub count: u64,
}

/// A case is ready.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Prepared {
    /// What each parameter became, so far as the variant knows:
    /// `num_splits_key` asked as `auto` may read 157 here.
    #[serde(default)]
    pub effective: BTreeMap<String, ParamValue>,
    /// Those of `effective` that a tuner chose by itself, by timing what it may choose from or
    /// by a rule of a library's own, and that nobody asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tuned: Vec<String>,
    /// Difference from the float64 reference for each result (`out`; `dq`, `dk`, `dv`).
    #[serde(default)]
    pub errors: BTreeMap<String, TensorError>,
    /// [`PROBES`] elements of each result, for the harness's own check.
    pub probes: BTreeMap<String, Vec<Option<f64>>>,
    /// The first call, compilation and plan building included.
    pub first_call_ns: Nanoseconds,
    /// What of it was compiling, loading and the like, by such a word; none of them within
    /// another. With any told, what is not named did not happen. `None`: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_call_parts: Option<BTreeMap<String, Taken>>,
    /// Problems of about the case's size that one call works off: layers, lengths.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub problems: u32,
}
