//! The messages between the harness and a worker, as specified in `docs/PROTOCOL.md`.
//!
//! One JSON object a line: requests on the worker's file descriptor 3, replies on 4. The types here
//! are the wire format, which changes only with [`PROTOCOL_VERSION`].

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

/// Version of the protocol. A worker that speaks another version is not used.
pub const PROTOCOL_VERSION: u32 = 1;

/// Descriptor on which a worker reads requests.
pub const REQUEST_FD: i32 = 3;

/// Descriptor on which a worker writes replies.
pub const REPLY_FD: i32 = 4;

/// The variable that names a socket. A worker may connect to it if it cannot use the descriptors,
/// for example in a container.
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
    /// Run the script to its end and list all calls that it timed. Sent to workers that set
    /// [`Hello::lists`].
    List,
    /// Make inputs, run the case once, check the result against float64.
    Prepare(Prepare),
    /// Time the prepared case.
    Measure(Measure),
    /// Continue a measurement that is [`Paused`](ReplyBody::Paused).
    Resume {
        /// True if the samples of the next turn are the last.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        last: bool,
    },
    /// Make calls of the prepared case, one after the other, without changing inputs, and reply
    /// when the device is done. The harness times the request by its own clock. Sent after
    /// `Measure`, to workers that set [`Hello::repeats`].
    Repeat(Repeat),
    /// Count what one call of the prepared case does to the machine.
    Census {
        /// Hardware counters to read, by their names in CUPTI's range profiler, in calls that are
        /// not timed. Empty: none.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        metrics: Vec<String>,
    },
    /// Measure the peak performance of the device; no case is prepared. A worker that does not know
    /// the request, or cannot measure a peak, refuses.
    Peak {
        /// The storage types of interest.
        dtypes: Vec<Dtype>,
    },
    /// Compare results with the reference of a declared operator. Only sent to the process of a
    /// reference, which runs no code under test.
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
    /// The name of the variant within the worker.
    pub variant: String,
    /// The problem to compute, with a value for every axis.
    pub problem: Problem,
    /// Tensors and numbers of a declared operator's call. `None`: the problem is one of the native
    /// operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operands: Option<Box<Operands>>,
    /// A folder for the results of the first call, and after timing for those of the last: each
    /// output as `NAME.f32`, its elements in logical order as little-endian float32. The harness
    /// checks them there. `None`: the worker checks them itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results: Option<PathBuf>,
    /// Parameters that are not `auto`.
    #[serde(default)]
    pub params: Params,
    /// Seed of the inputs.
    pub seed: u64,
    /// Functions whose calls the census should count. A worker that cannot count them leaves the
    /// counts out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counters: Vec<Counter>,
    /// The least number of sets of inputs for the samples, including the set of the first call. Set
    /// `n` has the seed `seed + n`. 1: the inputs stay the same.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub input_sets: u32,
    /// The seed of random choices: of the probes, and of the planes and calls that are checked
    /// after timing. It differs between invocations. A worker that draws its probes repeats it in
    /// [`Prepared::draw`] and [`Checked::draw`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draw: Option<u64>,
}

impl Prepare {
    /// A request for a case of the native operator with default parameters, on one set of inputs.
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

/// Asks the process of a reference for the errors of results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Compare {
    /// Tensors and numbers of the call.
    pub operands: Operands,
    /// Seed of the inputs.
    pub seed: u64,
    /// The folder of the results, in the form of [`Prepare::results`]. `None`: the reference is
    /// compared with itself on inputs that are changed one by one, which shows the changes that it
    /// would notice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results: Option<PathBuf>,
}

/// Functions whose calls are one kind of event, such as the selection of a backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Counter {
    /// The name in the census: `calls.NAME`.
    pub name: String,
    /// The functions, each as `module:qualified.name`.
    pub functions: Vec<String>,
}

/// Asks for samples of the prepared case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Measure {
    /// Calls that are made before the samples and not timed.
    pub warmup: u32,
    /// The number of samples to take, at most.
    pub samples: u32,
    /// The number of samples to take regardless of the budget.
    pub min_samples: u32,
    /// After `min_samples`, no further sample starts once this many milliseconds have passed; after
    /// 10 samples at the earliest if ten times the fastest sample is less than the budget.
    pub budget_ms: u64,
    /// State of the caches before each sample.
    pub cache: Cache,
    /// Capture the call into a CUDA graph and time its replays. A worker that cannot do so refuses;
    /// one that does sets [`Measured::graph`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub graph: bool,
    /// The core on which to take samples of a call that runs on one thread of a processor. A worker
    /// that does not know this field lets the system choose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<u32>,
    /// The number of samples after which the worker replies [`Paused`](ReplyBody::Paused) and waits
    /// for [`Resume`](RequestBody::Resume), with the device idle. 0: it takes all samples without a
    /// pause. A worker that does not know this field takes all.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pause_every: u32,
}

impl Default for Measure {
    /// One sample of a plain call, without warm-up, on any core, with a hot cache.
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
    /// The number of calls to make.
    pub calls: u32,
    /// The core on which to make calls that run on one thread of a processor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<u32>,
    /// Replay a CUDA graph of the calls, because the host takes longer to issue a call than the
    /// device to run it. A worker that cannot do so refuses.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub graph: bool,
    /// The work of each step. A worker that does not support it refuses.
    #[serde(default, skip_serializing_if = "RepeatStep::is_call")]
    pub step: RepeatStep,
}

/// One of the steps of a [`Repeat`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RepeatStep {
    /// A call. The inputs stay the same.
    #[default]
    Call,
    /// The inputs are rotated in their memory by a number that is drawn at that moment, and a call
    /// is made.
    ChangeAndCall,
    /// The inputs are rotated, and no call is made.
    Change,
    /// Nothing. The reply has the errors of calls that were chosen at random.
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

/// The replies of a worker. `Failed` and `Lost` may answer any request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum ReplyBody {
    /// Answers `Hello`.
    Hello(Hello),
    /// Answers `List`.
    Listed {
        /// The calls, in the order in which the script makes them.
        cases: Vec<ListedCall>,
        /// As in [`Hello::files`].
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        files: Vec<PathBuf>,
    },
    /// Answers `Prepare`: the case can be timed.
    Prepared(Prepared),
    /// Answers `Prepare`: the variant does not support the case. The reason is in the library's own
    /// words.
    Unsupported {
        /// The reason.
        reason: String,
    },
    /// The request failed, and the worker is still usable.
    Failed {
        /// The reason.
        reason: String,
    },
    /// The machine lacks something that the request needs, such as memory or a compiler. This says
    /// nothing about the code.
    Unavailable {
        /// The missing requirement.
        reason: String,
    },
    /// The request failed, and every other one will: this process has lost the device. The harness
    /// ends it, and starts another one for the next case.
    Lost {
        /// The reason.
        reason: String,
    },
    /// Answers `Measure` and `Resume`: some samples are taken, and more will follow after `Resume`.
    Paused {
        /// The times of these samples, as many as the request's `pause_every`.
        device_ns: Vec<Nanoseconds>,
    },
    /// Answers `Measure`, or its last `Resume`.
    Measured(Measured),
    /// Answers `Repeat`: the calls are made, and the device is done.
    Repeated {
        /// Errors against float64 of the calls that were chosen at random, if they are asked for.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        errors: BTreeMap<String, TensorError>,
    },
    /// Answers `Census`.
    Census(Census),
    /// Answers `Peak`.
    Peak(Peak),
    /// Answers `Compare`.
    Compared {
        /// The error of each output against the reference, by name. If an input was changed, the
        /// distance by which that moved an output of the reference, by `INPUT OUTPUT`.
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
    /// The device's operations with their times, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activity: Option<Activity>,
    /// Some calls, recorded in the same way as the samples before were taken, on a blocked stream
    /// if those were. Empty if nothing was timed, or if single operations cannot be timed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recorded: Vec<RecordedCall>,
    /// Some calls of which hardware counters were read. Empty if none were asked for, or if
    /// `uncounted` of the structure has a reason under `instructions`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counted: Vec<CountedCall>,
}

impl Census {
    /// Adds hardware counters, or the reason for which they cannot be read. Does nothing if no
    /// metrics are asked for.
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
    /// Versions of everything that affects its speed: library, toolkit, driver, interpreter.
    #[serde(default)]
    pub versions: BTreeMap<String, String>,
    /// The device that it runs on.
    pub device: Device,
    /// The variants that it can run.
    pub variants: Vec<VariantInfo>,
    /// All packages installed in its environment by name, with versions: the lock of the
    /// environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub packages: BTreeMap<String, String>,
    /// The reason for which it cannot run anything here, such as a library that is not installed.
    /// None of its cases is then measured, and it need not list variants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent: Option<String>,
    /// Files of code that it has loaded, as absolute paths. For an installed package, its folder
    /// and the folder that it was installed from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<PathBuf>,
    /// True if it answers [`Repeat`](RequestBody::Repeat).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeats: bool,
    /// True if it answers [`List`](RequestBody::List): its cases are calls of a script, which have
    /// a fixed order and are not in `variants`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lists: bool,
}

/// A call that a script has timed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct ListedCall {
    /// The function that contains the call, and the function that it times.
    pub variant: String,
    /// Values of the script's variables around the call.
    #[serde(default)]
    pub params: Params,
    /// The file and line of the call.
    #[serde(default)]
    pub place: String,
    /// As in [`Prepared::outputs`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<OutputSample>,
}

/// A sample of an array that a call returned, for comparison in another process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct OutputSample {
    /// The shape.
    pub shape: Vec<u64>,
    /// The type, as its library names it: `bfloat16`.
    pub dtype: String,
    /// Elements at places that depend only on the number of elements; `null` for one that is not
    /// finite.
    pub values: Vec<Option<f64>>,
    /// Euclidean norms of the array's parts, in memory order.
    pub norms: Vec<Option<f64>>,
}

/// One variant of a worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct VariantInfo {
    /// The name within the worker.
    pub name: String,
    /// A description in one line.
    #[serde(default)]
    pub summary: String,
    /// The storage types that it supports.
    pub dtypes: Vec<Dtype>,
    /// The directions that it supports.
    pub directions: Vec<Direction>,
    /// The layers of the native operator that it supports.
    #[serde(flatten)]
    pub layers: Layers,
    /// The arguments, if it computes declared operators. `None`: it computes only the native
    /// operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Arguments>,
    /// The parameters, by name. `auto` is always allowed.
    #[serde(default)]
    pub parameters: BTreeMap<String, Parameter>,
    /// True if it stores the whole score matrix in memory.
    #[serde(default)]
    pub stores_scores: bool,
    /// True if it rounds float32 products to TF32. Its results then have that tolerance.
    #[serde(default)]
    pub tf32: bool,
}

impl VariantInfo {
    /// The reason for which it does not compute this kind of problem, if any.
    pub fn refusal(&self, problem: &Problem) -> Option<String> {
        if let Some(problem) = problem.native() {
            return problem.refusal(self);
        }
        let (name, operator) = (&self.name, problem.axis("operator").unwrap_or_default());
        let refused = || format!("`{name}` computes {NATIVE}, not operator `{operator}`");
        self.arguments.is_none().then(refused)
    }

    /// Checks a problem and parameters against the variant's declaration. `worker` is its worker's
    /// name.
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

/// The arguments of a function that computes declared operators. Arguments are passed by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Arguments {
    /// Arguments that a call must pass.
    pub required: Vec<String>,
    /// Arguments that a call may pass.
    #[serde(default)]
    pub optional: Vec<String>,
    /// True if it accepts any other arguments as well.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub any: bool,
    /// True if its framework computes the gradients of a call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub differentiated: bool,
    /// Types of elements that its framework's arrays cannot have, each with the reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lacks: BTreeMap<ElementType, String>,
    /// The reason for which the function computes only declared operators, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only_declared: Option<String>,
}

impl Arguments {
    /// The reason for which a call with these operands cannot be made, if any.
    pub fn objection(&self, operands: &Operands) -> Option<String> {
        let inputs = operands.inputs.iter().map(|input| input.name.as_str());
        let given: Vec<&str> = inputs
            .chain(operands.scalars.keys().map(String::as_str))
            .chain(operands.words.keys().map(String::as_str))
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
                "it takes an argument `{lacking}`, and the operator's are {listed}: give it one of \
                 their names, or a default"
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
        // If a function takes no gradients of outputs, the framework differentiates it.
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
            "it takes {all}, and no `{left}`, which is an argument of the operator: add it, by that \
             name"
        ))
    }
}

/// The values that a parameter has besides `auto`: on the wire the word `"integer"`, or a list of
/// words.
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
    /// True if the parameter can have this value.
    pub fn allows(&self, value: &ParamValue) -> bool {
        match (self, value) {
            (_, value) if value.is_auto() => true,
            (Parameter::Integer, ParamValue::Int(_)) => true,
            (Parameter::Words(words), ParamValue::Word(word)) => words.contains(word),
            _ => false,
        }
    }
}

/// The time of one kind of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Taken {
    /// The total time.
    pub ns: Nanoseconds,
    /// The number of times that it was done.
    pub count: u64,
}

/// A case is ready.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Prepared {
    /// The effective value of each parameter, as far as the variant knows it. If `num_splits_key`
    /// is `auto`, this may have 157 for it.
    #[serde(default)]
    pub effective: BTreeMap<String, ParamValue>,
    /// The names in `effective` that a tuner chose without being asked to, by timing several values
    /// or by a rule of the library.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tuned: Vec<String>,
    /// Difference from the float64 reference for each result (`out`; `dq`, `dk`, `dv`).
    #[serde(default)]
    pub errors: BTreeMap<String, TensorError>,
    /// [`PROBES`] elements of each result, for the harness's own check.
    pub probes: BTreeMap<String, Vec<Option<f64>>>,
    /// The seed from which the probes were drawn. `None`: they are at fixed places.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draw: Option<u64>,
    /// The time of the first call, including compilation and planning.
    pub first_call_ns: Nanoseconds,
    /// Parts of the first call that do not overlap: `compiling`, `tracing`, `tuning`, `loading` or
    /// `planning`. If any is reported, the others did not happen. `None`: unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_call_parts: Option<BTreeMap<String, Taken>>,
    /// The number of problems of about the case's size that one call computes: layers, lengths.
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
    /// A [`DeviceKind`]. It is text, so that an unknown kind gets an error message of its own,
    /// instead of one about a malformed reply.
    pub kind: String,
    /// Marketing name, for example `NVIDIA H200`.
    pub name: String,
    /// Memory a case may use.
    pub memory_bytes: Bytes,
    /// Facts by which devices are comparable or not: `sms`, `driver`, `cuda`, `power_limit_w`,
    /// `mig`. All of them are part of the machine's fingerprint.
    #[serde(default)]
    pub facts: BTreeMap<String, String>,
}

impl Device {
    /// The kind, if it is known.
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
        /// An NVIDIA GPU.
        Cuda = "cuda",
    }
}

impl DeviceKind {
    /// All kinds, for a message.
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
        /// As the previous call left it.
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

/// Samples of the prepared case. Each list has one entry for each call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Measured {
    /// The device's time for the call.
    pub device_ns: Vec<Nanoseconds>,
    /// The host's time to issue the call. Empty if it is the same as the device's time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_ns: Vec<Nanoseconds>,
    /// The host's time of a reference operation of the same framework, right after each call. Empty
    /// without such an operation. Host time is judged as a ratio to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_reference_ns: Vec<Nanoseconds>,
    /// CPU time of the worker's process in each call, over all its threads, if it runs on the
    /// processor; empty if unknown. If a call waits for a core, its wall time grows and its CPU
    /// time does not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpu_ns: Vec<Nanoseconds>,
    /// For each sample, the number of times that the system took a core from the worker's process
    /// while it was computing (`ru_nivcsw` of getrusage); empty if unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preempted: Vec<u32>,
    /// For each call, the pages of memory that the system gave the worker's process on first touch
    /// (`ru_minflt` of getrusage); empty if unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub page_faults: Vec<u32>,
    /// The number of threads of the worker's process that computed in each call, if it runs on the
    /// processor; empty if unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<u32>,
    /// The total time in which these threads were ready and had no core, for each call; empty if
    /// unknown. If a call runs on one thread, this is already subtracted from its `device_ns`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waited_ns: Vec<Nanoseconds>,
    /// The core on which all samples were taken, if one was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<u32>,
    /// The device's clock in MHz at each sample, or a single value if all samples had the same;
    /// empty if unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clock_mhz: Vec<f64>,
    /// The peak memory in use, if known: of the device during the call, or if it runs on the
    /// processor the resident memory of the worker's process while samples were taken (`VmHWM`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_bytes: Option<Bytes>,
    /// Growth of resident memory for each call, if it grew steadily over the samples: in each of
    /// four quarters, and by 512 KiB in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growth_bytes_per_call: Option<f64>,
    /// State of the device right after the samples, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<DeviceState>,
    /// True if the call itself waits for the device, so that `device_ns` includes waits for the
    /// host.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub synchronised: bool,
    /// True if these are replays of a CUDA graph, as requested.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub graph: bool,
    /// The number of sets of inputs, including the set of the first call. 1 if the worker does not
    /// change inputs.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub input_sets: u32,
    /// The reason for fewer sets than requested, such as too little memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_sets_reason: Option<String>,
    /// The check of the last timed call's results, made after timing. `None`: the worker makes
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked: Option<Checked>,
}

impl Measured {
    /// The lists of times, with their names.
    pub fn times(&self) -> [(&'static str, &[Nanoseconds]); 4] {
        [
            ("device_ns", &self.device_ns),
            ("host_ns", &self.host_ns),
            ("host_reference_ns", &self.host_reference_ns),
            ("cpu_ns", &self.cpu_ns),
        ]
    }

    /// A sentence about a list that is neither empty nor as long as the list of device times.
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

    /// The clock at a sample, if known.
    pub fn clock_at(&self, sample: usize) -> Option<f64> {
        let all = || self.clock_mhz.first().filter(|_| self.clock_mhz.len() == 1);
        self.clock_mhz.get(sample).or_else(all).copied()
    }

    /// The samples as a run stores them: times rounded to 0.1 ns, finer than any clock, and a
    /// single clock value if all samples had the same.
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

/// The check against float64 of the results of the last timed call, and of some calls chosen at
/// random. It is made after the samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Checked {
    /// Seed of the last call's inputs: `seed + 1` of [`Prepare`], or `seed` if there is only one
    /// set.
    pub seed: u64,
    /// As in [`Prepared`], over the key-value heads that were compared.
    #[serde(default)]
    pub errors: BTreeMap<String, TensorError>,
    /// As in [`Prepared`], over the whole result.
    pub probes: BTreeMap<String, Vec<Option<f64>>>,
    /// As in [`Prepared`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draw: Option<u64>,
    /// The timed call with the largest errors, counted from 1, if that is not the last call.
    /// `errors` are those of this call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<u32>,
}

impl Checked {
    /// Replaces the error of a result by a timed call's if that is larger.
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
    /// Samples of plain calls on one set of inputs, without any sample.
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

/// The highest rates that a worker measured on its device: in a product of matrices and in a copy.
/// A kernel can be compared with these, as nothing reaches the figures on a data sheet.
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

/// A thousand times the rate of a device of 2026: 10^18 FLOP/s, 10^15 B/s.
const FASTEST: f64 = 1e6;

/// The longest text that names the function that was called, in characters.
const MAX_LINE: usize = 200;

impl Peak {
    /// True if nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.tflops.is_empty() && self.gbps.is_none()
    }

    /// Removes figures that no device can have, and cuts the text that names the function.
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
