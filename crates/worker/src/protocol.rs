//! The messages between the harness and a worker, as `docs/PROTOCOL.md` states them.
//!
//! JSON, one object a line; requests on the worker's file descriptor 3, replies
//! on 4. Types here are the wire's: they change only with [`PROTOCOL_VERSION`].

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use super::machine::DeviceState;
use super::machine::{Activity, CountedCall, INSTRUCTIONS, RecordedCall, Structure};
use crate::case::{Dtype, ParamValue, Params};
use crate::joined::Joined;
use crate::operator::{Direction, ElementType, Layers, NATIVE, Operands, Problem};
use crate::units::{Bytes, Nanoseconds, Rate, is_one, is_zero, one};
use crate::words;

/// Version of the protocol; a worker that speaks another one is not used.
pub const PROTOCOL_VERSION: u32 = 1;

/// Descriptor on which a worker reads requests.
pub const REQUEST_FD: i32 = 3;

/// Descriptor on which a worker writes replies.
pub const REPLY_FD: i32 = 4;

/// The variable that names a socket which a worker may connect to where descriptors do not reach it,
/// such as in a container.
pub const SOCKET_VARIABLE: &str = "REGATTA_SOCKET";

/// Elements of each result tensor that a worker sends back for an independent check.
pub const PROBES: usize = 16;

/// One request line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Request {
    /// Repeated in the reply.
    pub id: u64,
    /// The request.
    #[serde(flatten)]
    pub body: RequestBody,
}

/// The requests of the harness.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum RequestBody {
    /// Who are you, and what can you run? Always the first request.
    Hello {
        /// The harness's [`PROTOCOL_VERSION`].
        protocol: u32,
    },
    /// Name all calls that a script has timed, having run it to its end. Asked of a worker that
    /// says so in [`Hello::lists`].
    List,
    /// Make inputs, run the case once, check the result against float64.
    Prepare(Prepare),
    /// Time the prepared case.
    Measure(Measure),
    /// Continue a measurement that is [`Paused`](ReplyBody::Paused).
    Resume {
        /// True where the samples of the next turn are the last.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        last: bool,
    },
    /// Make calls of the prepared case, one after the other, on inputs that stay, and reply when the
    /// device is done. The harness times the request by its own clock. Asked for after `Measure`, of
    /// a worker that says so in [`Hello::repeats`].
    Repeat(Repeat),
    /// Count what one call of the prepared case does to the machine.
    Census {
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
    /// Compare results with the reference of a declared operator. Only the process of a reference is
    /// asked for this, which runs no code under test.
    Compare(Compare),
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
            RequestBody::List => "list",
            RequestBody::Prepare(_) => "prepare",
            RequestBody::Measure(_) => "measure",
            RequestBody::Resume { .. } => "resume",
            RequestBody::Repeat(_) => "repeat",
            RequestBody::Census { .. } => "census",
            RequestBody::Peak { .. } => "peak",
            RequestBody::Compare(_) => "compare",
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
    /// The problem to compute; every axis is spelled out.
    pub problem: Problem,
    /// Tensors and numbers of a declared operator's call; `None`: the problem is the
    /// native operator's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operands: Option<Box<Operands>>,
    /// A folder into which the results of the first call, and after timing those of the last, are
    /// written: each output as `NAME.f32`, its elements in logical order as little-endian float32.
    /// The harness checks them there. `None`: the worker checks them itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results: Option<PathBuf>,
    /// Parameters that are not `auto`.
    #[serde(default)]
    pub params: Params,
    /// Seed of the inputs.
    pub seed: u64,
    /// Functions whose calls the census is to count; a worker that cannot leaves the
    /// counts out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counters: Vec<Counter>,
    /// The least number of sets of inputs for the samples, those of the first call
    /// among them. Set `n` has the seed `seed + n`; 1: the inputs stay as they are.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub input_sets: u32,
    /// From which probes, and the planes and calls that are checked after timing, are drawn:
    /// another in each invocation. A worker that draws its probes repeats it in
    /// [`Prepared::draw`] and [`Checked::draw`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draw: Option<u64>,
}

impl Prepare {
    /// Asks for a case of the native operator as it is, on one set of inputs.
    pub fn new(variant: &str, problem: Problem, seed: u64) -> Prepare {
        Prepare {
            variant: variant.to_owned(),
            problem,
            operands: None,
            results: None,
            params: Params::default(),
            seed,
            counters: Vec::new(),
            input_sets: 1,
            draw: None,
        }
    }
}

/// Asks the process of a reference how far results lie from it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Compare {
    /// Tensors and numbers of the call.
    pub operands: Operands,
    /// Seed of the inputs.
    pub seed: u64,
    /// The folder in which the results lie, as [`Prepare::results`] has it; `None`: the reference is
    /// compared with itself on inputs that are changed one by one, which says what it would notice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results: Option<PathBuf>,
}

/// Functions whose calls are one kind of event, such as selecting a backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Counter {
    /// The name in the census: `calls.NAME`.
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
    /// Past `min_samples`, no further sample starts after this many milliseconds; past 10, where
    /// ten times the fastest is less.
    pub budget_ms: u64,
    /// State of the caches before each sample.
    pub cache: Cache,
    /// Capture the call into a CUDA graph and time its replays. A worker that cannot
    /// refuses; one that does says so in [`Measured::graph`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub graph: bool,
    /// The core to take samples on, of a call that runs on one thread of a processor. A worker that
    /// does not know this lets the system choose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<u32>,
    /// Samples after which the worker replies [`Paused`](ReplyBody::Paused) and waits for
    /// [`Resume`](RequestBody::Resume), with the device idle; 0: it takes all without a pause.
    /// A worker that does not know this takes all.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pause_every: u32,
}

impl Default for Measure {
    /// One sample of a plain call, without warm-up, on whichever core, in a hot cache.
    fn default() -> Measure {
        Measure {
            warmup: 0,
            samples: 1,
            min_samples: 1,
            budget_ms: 0,
            cache: Cache::Hot,
            graph: false,
            core: None,
            pause_every: 0,
        }
    }
}

/// Asks for calls that the harness times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Repeat {
    /// Calls to make.
    pub calls: u32,
    /// The core to make them on, of a call that runs on one thread of a processor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<u32>,
    /// Replay a CUDA graph of the calls: the host takes longer to issue one than the device to
    /// run it. A worker that cannot refuses.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub graph: bool,
    /// The work of each step. A worker that cannot do it refuses.
    #[serde(default, skip_serializing_if = "RepeatStep::is_call")]
    pub step: RepeatStep,
}

/// A step that a [`Repeat`] makes as often as it says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RepeatStep {
    /// A call, on inputs that stay.
    #[default]
    Call,
    /// The inputs are turned in their memory by a number that is drawn then, and a call is made.
    ChangeAndCall,
    /// The inputs are turned, and no call is made.
    Change,
    /// Nothing: the reply has the errors of calls that were drawn.
    Check,
}

impl RepeatStep {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde passes a reference"
    )]
    fn is_call(&self) -> bool {
        *self == RepeatStep::Call
    }
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

/// The answers of a worker. `Failed` and `Lost` may answer any request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum ReplyBody {
    /// Answers `Hello`.
    Hello(Hello),
    /// Answers `List`.
    Listed {
        /// In the order in which the script makes them.
        cases: Vec<ListedCall>,
        /// As in [`Hello::files`].
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        files: Vec<PathBuf>,
    },
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
    /// The machine lacks what the request needs, such as memory or a compiler: nothing is known of
    /// the code.
    Unavailable {
        /// The missing requirement.
        reason: String,
    },
    /// The request could not be carried out, and no other will be: the device is lost
    /// to this process. The harness ends it, and starts another for the next case.
    Lost {
        /// Why.
        reason: String,
    },
    /// Answers `Measure` and `Resume`: some samples are taken, and more follow on `Resume`.
    Paused {
        /// Their times: as many as the request's `pause_every`.
        device_ns: Vec<Nanoseconds>,
    },
    /// Answers `Measure`, or the last `Resume` of it.
    Measured(Measured),
    /// Answers `Repeat`: the calls are made, and the device is done.
    Repeated {
        /// Errors against float64 of calls that were drawn, where they are asked for.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        errors: BTreeMap<String, TensorError>,
    },
    /// Answers `Census`.
    Census(Census),
    /// Answers `Peak`.
    Peak(Peak),
    /// Answers `Compare`.
    Compared {
        /// The distance of each output from the reference, by name; where an input was changed, by
        /// `INPUT OUTPUT` how far that moved the reference's output.
        errors: BTreeMap<String, TensorError>,
    },
    /// Answers `Release`.
    Released {
        /// As in [`Hello::files`].
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        files: Vec<PathBuf>,
    },
    /// Answers `Shutdown`.
    Bye,
}

/// The structure of one call of the prepared case, counted apart from timing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Census {
    /// The launches and allocations.
    #[serde(flatten)]
    pub structure: Structure,
    /// The device's work with its times, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activity: Option<Activity>,
    /// Some calls, recorded as the samples before were taken: on a blocked stream where those were.
    /// Empty where nothing was timed, or single operations cannot be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recorded: Vec<RecordedCall>,
    /// Some calls, of which hardware counters were read. Empty where none were asked for, or
    /// `uncounted` of the structure says under `instructions` why they cannot be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counted: Vec<CountedCall>,
}

impl Census {
    /// Puts in what hardware counters tell, or why they cannot be read; nothing where no metrics
    /// are asked for.
    pub fn count(
        &mut self,
        metrics: &[String],
        counted: impl FnOnce(&[String]) -> Result<Vec<CountedCall>, String>,
    ) {
        if metrics.is_empty() {
            return;
        }
        match counted(metrics) {
            Ok(counted) => self.counted = counted,
            Err(reason) => {
                let uncounted = &mut self.structure.uncounted;
                uncounted.insert(INSTRUCTIONS.to_owned(), reason);
            }
        }
    }
}

/// A worker introduces itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Hello {
    /// The protocol version it speaks.
    pub protocol: u32,
    /// The name: `cpu`, `torch`, `jax`, ...
    pub worker: String,
    /// Versions of what decides its speed: library, toolkit, driver, interpreter.
    #[serde(default)]
    pub versions: BTreeMap<String, String>,
    /// The device that it runs on.
    pub device: Device,
    /// The variants that it can run.
    pub variants: Vec<VariantInfo>,
    /// Everything installed beside it, name and version: the lock of its environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub packages: BTreeMap<String, String>,
    /// Why nothing of it can run here, such as a library that is not installed. Then no
    /// case of it is measured, and it need not name a variant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent: Option<String>,
    /// Files of code that it has loaded, by absolute paths; of an installed package its folder, and
    /// the one that it was installed from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<PathBuf>,
    /// True where it answers [`Repeat`](RequestBody::Repeat).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeats: bool,
    /// True where it answers [`List`](RequestBody::List): its cases are calls of a script, which
    /// come in one order, and `variants` names none of them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lists: bool,
}

/// A call that a script has timed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct ListedCall {
    /// The function that it stands in and the function that it times.
    pub variant: String,
    /// Values of the script around it.
    #[serde(default)]
    pub params: Params,
    /// The file and line of the script.
    #[serde(default)]
    pub place: String,
    /// As in [`Prepared::outputs`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<OutputSample>,
}

/// As much of an array that a call returned as another process can compare.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct OutputSample {
    /// The shape.
    pub shape: Vec<u64>,
    /// The type, as its library names it: `bfloat16`.
    pub dtype: String,
    /// Elements at places that follow from the number of elements; `null` where one is not finite.
    pub values: Vec<Option<f64>>,
    /// Euclidean norms of its parts, in the order of memory.
    pub norms: Vec<Option<f64>>,
}

/// One variant of a worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct VariantInfo {
    /// The name within the worker.
    pub name: String,
    /// A summary in one line.
    #[serde(default)]
    pub summary: String,
    /// Storage types it takes.
    pub dtypes: Vec<Dtype>,
    /// Directions it runs.
    pub directions: Vec<Direction>,
    /// The layers of the native operator that it computes.
    #[serde(flatten)]
    pub layers: Layers,
    /// The arguments, where it computes declared operators; `None`: it computes the native one
    /// alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Arguments>,
    /// The parameters, by name. `auto` is always allowed.
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
    pub fn refusal(&self, problem: &Problem) -> Option<String> {
        if let Some(problem) = problem.native() {
            return problem.refusal(self);
        }
        let (name, operator) = (&self.name, problem.axis("operator").unwrap_or_default());
        let refused = || format!("`{name}` computes {NATIVE}, not operator `{operator}`");
        self.arguments.is_none().then(refused)
    }

    /// Checks a problem and parameters against what the variant of `worker` declares.
    ///
    /// # Errors
    /// The part that the variant does not support.
    pub fn check(&self, worker: &str, problem: &Problem, params: &Params) -> Result<(), String> {
        let variant = format!("{worker}/{}", self.name);
        if let Some(reason) = self.refusal(problem) {
            return Err(reason);
        }
        if !self.dtypes.contains(&problem.dtype()) {
            let known = self.dtypes.iter().joined(" and ");
            return Err(format!("{variant} takes {known}, not {}", problem.dtype()));
        }
        if let Some(problem) = problem.native()
            && !self.directions.contains(&problem.direction)
        {
            return Err(format!("{variant} has no {}", problem.direction));
        }
        for (name, value) in params.iter() {
            let allowed = match self.parameters.get(name) {
                None => return Err(format!("{variant} has no parameter `{name}`")),
                Some(parameter) if parameter.allows(value) => continue,
                Some(Parameter::Integer) => "an integer".to_owned(),
                Some(Parameter::Words(words)) => words.join(" or "),
            };
            return Err(format!("`{name}` of {variant} is {allowed}, not `{value}`"));
        }
        Ok(())
    }
}

/// The arguments of a function that computes declared operators. It is called by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Arguments {
    /// Those that a call has to give.
    pub required: Vec<String>,
    /// Those that it may give.
    #[serde(default)]
    pub optional: Vec<String>,
    /// True where it takes others as well.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub any: bool,
    /// True where its framework finds the gradients of a call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub differentiated: bool,
    /// Why arrays of its framework cannot have a type of elements, by that type.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lacks: BTreeMap<ElementType, String>,
    /// Why the function computes declared operators alone, where it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only_declared: Option<String>,
}

impl Arguments {
    /// Why a call with these operands cannot be made, if so.
    pub fn objection(&self, operands: &Operands) -> Option<String> {
        let inputs = operands.inputs.iter().map(|input| input.name.as_str());
        let given: Vec<&str> = inputs
            .chain(operands.scalars.keys().map(String::as_str))
            .collect();
        let listed = given.join(", ");
        let all = || self.required.iter().chain(&self.optional);
        let takes = |name: &str| all().any(|one| one == name);
        if let Some(lacking) = self
            .required
            .iter()
            .find(|name| !given.contains(&name.as_str()) && !operands.left_out.contains(name))
        {
            return Some(format!(
                "it takes an argument `{lacking}`, and the operator's inputs and scalars are {listed}: \
                 give it one of their names, or a default"
            ));
        }
        let inputs = operands.inputs.iter();
        let inputs = inputs.map(|input| ("input", &input.name, input.dtype));
        let outputs = operands.outputs.iter();
        let outputs = outputs.map(|output| ("output", &output.name, output.dtype));
        let why = inputs.chain(outputs).find_map(|(kind, name, dtype)| {
            let why = self.lacks.get(&dtype)?;
            Some(format!(
                "{why}, which {kind} `{name}` is: give it another dtype"
            ))
        });
        if why.is_some() {
            return why;
        }
        let all = match all().joined(", ") {
            all if all.is_empty() => "nothing by name".to_owned(),
            all => all,
        };
        // A function that takes none of the outputs' gradients is differentiated.
        let gradients = operands.gradients.as_ref();
        let of_outputs = gradients.map_or(&[][..], |gradients| &gradients.given);
        let computes_them = of_outputs.iter().any(|name| takes(name));
        if gradients.is_some() && !computes_them && !self.differentiated {
            let names = of_outputs.join(", ");
            return Some(format!(
                "it takes {all}, and NumPy and CuPy differentiate no function: add `{names}`, and \
                 return the gradients"
            ));
        }
        let left = given.iter().find(|name| {
            let is_of_output = of_outputs.iter().any(|one| one == *name);
            let is_needed = if is_of_output {
                computes_them
            } else {
                !self.any
            };
            is_needed && !takes(name)
        })?;
        Some(format!(
            "it takes {all}, and no `{left}`, which is an input or a scalar of the operator: add the \
             argument, by that name"
        ))
    }
}

/// The values of a parameter beside `auto`: on the wire, the word
/// `"integer"` or a list of words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Parameter {
    /// A number.
    Integer,
    /// One of these words.
    #[serde(untagged)]
    Words(Vec<String>),
}

impl Parameter {
    /// True when the parameter can take this value.
    pub fn allows(&self, value: &ParamValue) -> bool {
        match (self, value) {
            (_, value) if value.is_auto() => true,
            (Parameter::Integer, ParamValue::Int(_)) => true,
            (Parameter::Words(words), ParamValue::Word(word)) => words.contains(word),
            _ => false,
        }
    }
}

/// A part of a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Taken {
    /// The total time.
    pub ns: Nanoseconds,
    /// The number of times.
    pub count: u64,
}

/// A case is ready.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Prepared {
    /// The effective value of each parameter, as far as the variant knows:
    /// `num_splits_key` asked as `auto` may read 157 here.
    #[serde(default)]
    pub effective: BTreeMap<String, ParamValue>,
    /// Those of `effective` that a tuner chose by itself, by timing what it may choose from or
    /// by a rule of a library's own, without being asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tuned: Vec<String>,
    /// Difference from the float64 reference for each result (`out`; `dq`, `dk`, `dv`).
    #[serde(default)]
    pub errors: BTreeMap<String, TensorError>,
    /// [`PROBES`] elements of each result, for the harness's own check.
    pub probes: BTreeMap<String, Vec<Option<f64>>>,
    /// From what the probes were drawn; `None`: they lie where they always do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draw: Option<u64>,
    /// The first call, compilation and plan building included.
    pub first_call_ns: Nanoseconds,
    /// The parts of it, which do not overlap, by a word: `compiling`, `tracing`, `tuning`, `loading`
    /// or `planning`. If any is reported, those without a name did not happen. `None`: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_call_parts: Option<BTreeMap<String, Taken>>,
    /// Problems of about the case's size that one call covers: layers, lengths.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub problems: u32,
    /// The arrays that a script's call returned: the harness compares them with those of
    /// the other side of a pair.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<OutputSample>,
}

/// The device a worker runs on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Device {
    /// A [`DeviceKind`]. Text, so that an unknown one is refused in words, not as a
    /// malformed reply.
    pub kind: String,
    /// Marketing name, for example `NVIDIA H200`.
    pub name: String,
    /// Memory a case may use.
    pub memory_bytes: Bytes,
    /// Facts that make two devices comparable or not: `sms`, `driver`, `cuda`,
    /// `power_limit_w`, `mig`. All of them enter the machine's fingerprint.
    #[serde(default)]
    pub facts: BTreeMap<String, String>,
}

impl Device {
    /// The kind, if it is a known one.
    pub fn known_kind(&self) -> Option<DeviceKind> {
        self.kind.parse().ok()
    }
}

words! {
    "kind of device",
    /// A kind of device that a worker may run on.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum DeviceKind {
        /// The processor: calls are timed by the host's clock.
        Cpu = "cpu",
        /// A GPU of NVIDIA's.
        Cuda = "cuda",
    }
}

impl DeviceKind {
    /// All words there are, for a message.
    pub fn names() -> String {
        DeviceKind::ALL.map(DeviceKind::name).join(", ")
    }
}

words! {
    "state of the cache",
    /// State of the last-level cache before a sample.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
    #[serde(rename_all = "lowercase")]
    pub enum Cache {
        /// Flushed.
        Cold = "cold",
        /// As the call before left it.
        Hot = "hot",
    }
}

/// The distance of a result tensor from the float64 reference.
///
/// `None` stands for a figure that is not finite, which JSON cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct TensorError {
    /// `‖result - reference‖₂ / ‖reference‖₂` over the whole tensor.
    pub relative_l2: Option<f64>,
    /// `max |result - reference|` over the whole tensor.
    pub max_abs: Option<f64>,
}

/// Samples of the prepared case, one entry a call in each list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Measured {
    /// The device's time for the call.
    pub device_ns: Vec<Nanoseconds>,
    /// The host's time to issue the call; empty where the two are one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_ns: Vec<Nanoseconds>,
    /// The host's time of a reference operation of the same framework, right after each
    /// call; empty without one. Host time is judged as a ratio to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_reference_ns: Vec<Nanoseconds>,
    /// Processor time of the worker's process in each call, over all its threads, where it
    /// runs on the processor; empty where unknown. A call that waited for a core took more of
    /// the wall's time than of this one's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpu_ns: Vec<Nanoseconds>,
    /// The number of times that the system took a core from the worker's process while it was still
    /// computing, in each sample (`ru_nivcsw` of getrusage); empty where unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preempted: Vec<u32>,
    /// Pages of memory that the system gave the worker's process in each call when it touched them
    /// first (`ru_minflt` of getrusage); empty where unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub page_faults: Vec<u32>,
    /// Threads of the worker's process that computed in each call, where it runs on the
    /// processor; empty where unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<u32>,
    /// Time that these threads were ready in each call and had no core, all together; empty where
    /// unknown. A call on one thread has it taken out of `device_ns`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waited_ns: Vec<Nanoseconds>,
    /// The core on which all samples were taken, where one was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<u32>,
    /// Clock of the device at each sample in MHz, or one value that all samples had; empty where
    /// unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clock_mhz: Vec<f64>,
    /// Most memory in use, where known: of the device during the call, or resident memory of the
    /// worker's process while the samples were taken (`VmHWM`), where it runs on the processor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_bytes: Option<Bytes>,
    /// Growth of resident memory a call, where it grew steadily over the samples: in each of four
    /// quarters, and by 512 KiB in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growth_bytes_per_call: Option<f64>,
    /// State of the device right after the samples, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<DeviceState>,
    /// True when the call itself waits for the device, so that `device_ns` holds waits
    /// for the host.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub synchronised: bool,
    /// True when these are replays of a CUDA graph, as asked for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub graph: bool,
    /// Sets of inputs that there were, those of the first call among them; 1 where the
    /// worker does not change them.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub input_sets: u32,
    /// Why there were fewer than asked for, such as short memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_sets_reason: Option<String>,
    /// The results of the last timed call, checked after it. `None`: the worker does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked: Option<Checked>,
}

impl Measured {
    /// The lists of times, by their names.
    pub fn times(&self) -> [(&'static str, &[Nanoseconds]); 4] {
        [
            ("device_ns", &self.device_ns),
            ("host_ns", &self.host_ns),
            ("host_reference_ns", &self.host_reference_ns),
            ("cpu_ns", &self.cpu_ns),
        ]
    }

    /// A list that has neither nothing nor an entry for each device time, as a sentence.
    pub fn uneven(&self) -> Option<String> {
        let samples = self.device_ns.len();
        let lists = self.times().map(|(name, list)| (name, list.len()));
        let clocks = match self.clock_mhz.len() {
            1 => samples,
            clocks => clocks,
        };
        let others = [
            ("preempted", self.preempted.len()),
            ("page_faults", self.page_faults.len()),
            ("threads", self.threads.len()),
            ("waited_ns", self.waited_ns.len()),
            ("clock_mhz", clocks),
        ];
        let mut lists = lists.into_iter().chain(others);
        let (name, there) = lists.find(|(_, there)| *there > 0 && *there != samples)?;
        Some(format!("{samples} device times, but {there} of {name}"))
    }

    /// The clock at a sample, where it is known.
    pub fn clock_at(&self, sample: usize) -> Option<f64> {
        let all = || self.clock_mhz.first().filter(|_| self.clock_mhz.len() == 1);
        self.clock_mhz.get(sample).or_else(all).copied()
    }

    /// The same as a run keeps it: times to 0.1 ns, finer than any clock, and one clock where all
    /// samples had the same.
    pub fn kept(mut self) -> Measured {
        for list in [
            &mut self.device_ns,
            &mut self.host_ns,
            &mut self.host_reference_ns,
            &mut self.cpu_ns,
            &mut self.waited_ns,
        ] {
            for time in list.iter_mut().filter(|time| time.0 >= 1.0) {
                time.0 = (time.0 * 10.0).round() / 10.0;
            }
        }
        if self.clock_mhz.windows(2).all(|two| two[0] == two[1]) {
            self.clock_mhz.truncate(1);
        }
        self
    }
}

/// The check of the last timed call's results, and of drawn others, against float64 after the samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Checked {
    /// Seed of the inputs it was given: `seed + 1` of [`Prepare`], or `seed` where there is
    /// one set alone.
    pub seed: u64,
    /// As in [`Prepared`]; of the key-value heads that were compared.
    #[serde(default)]
    pub errors: BTreeMap<String, TensorError>,
    /// As in [`Prepared`], of the whole result.
    pub probes: BTreeMap<String, Vec<Option<f64>>>,
    /// As in [`Prepared`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draw: Option<u64>,
    /// The timed call, counted from 1, whose errors these are, where they are larger than the
    /// last one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<u32>,
}

impl Checked {
    /// Puts the error of a timed call in the place of a smaller one.
    pub fn add_call(&mut self, result: &str, error: TensorError, call: u32) {
        // A value that is not finite is worse than any number.
        let size = |of: &TensorError| of.relative_l2.unwrap_or(f64::INFINITY);
        if let Some(before) = self.errors.get_mut(result)
            && size(&error) > size(before)
        {
            (*before, self.call) = (error, Some(call));
        }
    }
}

impl Default for Measured {
    /// No samples yet, of one plain call each.
    fn default() -> Measured {
        Measured {
            device_ns: Vec::new(),
            host_ns: Vec::new(),
            host_reference_ns: Vec::new(),
            cpu_ns: Vec::new(),
            preempted: Vec::new(),
            page_faults: Vec::new(),
            threads: Vec::new(),
            waited_ns: Vec::new(),
            core: None,
            clock_mhz: Vec::new(),
            peak_bytes: None,
            growth_bytes_per_call: None,
            state: None,
            synchronised: false,
            graph: false,
            input_sets: 1,
            input_sets_reason: None,
            checked: None,
        }
    }
}

/// The most that a worker's device did in a product of matrices and in a copy: what a kernel can
/// be held beside, since the figure on a data sheet is one that nothing reaches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Peak {
    /// The rate of products of large square matrices of random numbers, in TFLOP/s, by storage type;
    /// float32 without TF32. A type that was not measured is left out.
    pub tflops: BTreeMap<Dtype, Rate>,
    /// The rate of a copy that no cache holds, in GB/s: bytes read and bytes written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gbps: Option<f64>,
    /// The function that was called, in a line.
    pub how: String,
}

/// A thousand times what a device of 2026 reaches: 10^18 FLOP/s, 10^15 B/s.
const FASTEST: f64 = 1e6;

/// Characters of a line that says what was called.
const MAX_LINE: usize = 200;

impl Peak {
    /// True where nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.tflops.is_empty() && self.gbps.is_none()
    }

    /// The same without figures that no device has, and with a line of what was called.
    pub fn sound(mut self) -> Peak {
        let real = |figure: f64| figure > 0.0 && figure <= FASTEST;
        self.how = self.how.chars().take(MAX_LINE).collect();
        self.tflops.retain(|_, rate| real(rate.0));
        self.gbps = self.gbps.filter(|rate| real(*rate));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_device_reaches_is_left_out() {
        let text = r#"{"tflops":{"bf16":790.5,"f32":-1.0},"gbps":0.0,"how":"a product"}"#;
        let peak: Peak = serde_json::from_str(text).unwrap();
        let sound = peak.sound();
        assert_eq!(sound.tflops, BTreeMap::from([(Dtype::Bf16, Rate(790.5))]));
        assert_eq!(sound.gbps, None);
        assert!(!sound.is_empty());
        let text = format!(
            r#"{{"tflops":{{"f32":1e308}},"gbps":1e9,"how":"{}"}}"#,
            "é".repeat(9999)
        );
        let sound = serde_json::from_str::<Peak>(&text).unwrap().sound();
        assert!(sound.is_empty());
        assert_eq!(sound.how.chars().count(), 200);
    }
}
