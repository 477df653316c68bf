//! The types of a suite's file and of `regatta.toml`. Serde reads them, and the schema of a suite
//! is generated from them.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, Error, IntoDeserializer, MapAccess, SeqAccess, Visitor};

use super::environment::Environment;
use super::operators::OperatorTable;
use super::workers::Build;
use super::{Ignored, Metric};
use regatta_worker::protocol::Cache;

/// A suite: the cases, how to measure them, and the demands on the results.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SuiteFile {
    /// The purpose, in one line.
    pub description: Option<String>,
    /// A suite whose cases and rules this one starts from: a file beside it, or a built-in one.
    pub extends: Option<String>,
    /// Computations of your own, by name: a table, or the path of a file that has its keys.
    #[serde(default)]
    pub operators: BTreeMap<String, ValueOr<String, OperatorTable>>,
    /// Named sets of axes, which `shapes` of a sweep may refer to.
    #[serde(default)]
    pub shapes: BTreeMap<String, Axes>,
    /// The taking of samples.
    #[serde(default)]
    pub measure: MeasureTable,
    /// The policy of the judge.
    #[serde(default)]
    pub policy: PolicyTable,
    /// The sweeps of cases: each is a product of its lists.
    #[serde(default)]
    pub sweep: Vec<SweepTable>,
    /// The demands on a single run, without any baseline.
    #[serde(default)]
    pub expect: Vec<ExpectTable>,
    /// Values that variants get, by variant and parameter, in place of those that cases ask for;
    /// the cases keep their ids. A table has the values by those that they replace.
    #[serde(default)]
    pub set: Replacements,
    /// The build of the code under test; `regatta build` measures it.
    pub build: Option<Build>,
    /// The interpreters of workers, by name: an environment with a worker's name is that worker's,
    /// `default` is that of all others.
    #[serde(default)]
    pub environments: BTreeMap<String, Environment>,
    /// Workers of your own, by name: a Python function (`bench.py:softmax`), a CUDA file
    /// (`kernels.cu`), a benchmark script (`script:bench.py`), or the words of a command.
    #[serde(default)]
    pub workers: BTreeMap<String, OneOrMore<String>>,
}

/// `regatta.toml`: environments and workers of every suite that is measured in its folder.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ConfigFile {
    /// The interpreters of workers, by name; a suite's own values take precedence.
    #[serde(default)]
    pub environments: BTreeMap<String, Environment>,
    /// Workers of your own, by name; a suite's own take precedence.
    #[serde(default)]
    pub workers: BTreeMap<String, OneOrMore<String>>,
}

/// The taking of samples; a missing key has the value of the extended suite, or its default.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MeasureTable {
    /// The planned number of starts of each worker process, by default 5; open cases are measured
    /// in up to 35.
    pub invocations: Option<Within<1, 1000>>,
    /// The largest number of timed calls of a case in an invocation, by default 20; 5 are taken
    /// whatever they cost.
    pub samples: Option<Within<1, 100_000>>,
    /// Milliseconds after which no further sample of a case begins, by default 200; 10 are taken if
    /// ten of the fastest fit into that time.
    pub budget_ms: Option<Within<1, 3_600_000>>,
    /// Seconds that a worker may take over one request, by default 120; loading its library is
    /// part of the first.
    pub timeout_s: Option<Within<1, 100_000>>,
    /// The last-level cache before each sample: by default hot for workers on a processor, cold for
    /// those on a GPU.
    pub cache: Option<Cache>,
    /// Count the instructions of each kernel by hardware counters; needs root or a driver that
    /// permits it.
    pub instructions: Option<bool>,
}

/// The policy of the judge; a missing key has the value of the extended suite, or its default.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PolicyTable {
    /// The smallest relative change that counts: of the device time, by default 0.05, or of several
    /// metrics by name.
    pub threshold: Option<ValueOr<f64, BTreeMap<Metric, f64>>>,
    /// The change that another day may bring when a stored run is compared; by default 0.01 on a
    /// GPU and 0.03 on a CPU.
    pub day: Option<f64>,
    /// Patterns of cases that may be unsupported or fail; `*` is any text.
    pub optional: Option<Vec<String>>,
    /// The differences that are not judged: metrics (`host`), kinds of structure (`launches`), or
    /// such changes of the kernels, counts or parameters with a name (`copies:*elementwise*`).
    pub ignore: Option<OneOrMore<Ignored>>,
}

/// Some cases: the product of variants, shapes, axes and parameters.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct SweepTable {
    /// The operator to compute: one of `[operators]` or a built-in one; by default that of
    /// regatta's own kernels.
    pub operator: Option<String>,
    /// `worker/name` or `worker/name@environment`.
    #[cfg_attr(feature = "schemas", schemars(required))]
    pub variants: Option<OneOrMore<String>>,
    /// Axes that belong together, or names of `shapes`; a shape's value of an axis overrides that
    /// of the sweep.
    pub shapes: Option<OneOrMore<ValueOr<String, Axes>>>,
    /// Values of the variant's parameters by name; `auto` leaves the choice to it.
    #[serde(default)]
    pub params: BTreeMap<String, OneOrMore<Scalar>>,
    /// All other keys: axes.
    #[serde(flatten)]
    pub axes: Axes,
}

/// A relation between cases of one run, or a limit on one of their figures.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ExpectTable {
    /// A sentence; by default the demand in words.
    pub name: Option<String>,
    /// The cases that must meet it, by axes, parameters, `variant`, `worker` or `environment`.
    pub case: Option<Facets>,
    /// The cases that they are compared with: the best of those that are equal in everything that
    /// neither selector names.
    pub against: Option<Facets>,
    /// With `against`: the largest allowed ratio.
    pub within: Option<f64>,
    /// With `against` a metric, by default `device`; else a figure of a call (`launches`,
    /// `copies`, `blocks`, `sm_fill`, a count, `calls:module:function`) or `build_seconds`.
    pub metric: Option<String>,
    /// Pattern of the kernels to which `launches`, `blocks` or `sm_fill` applies.
    pub kernel: Option<String>,
    /// Largest allowed value.
    pub at_most: Option<f64>,
    /// Smallest allowed value.
    pub at_least: Option<f64>,
}

/// Values by variant and parameter: one that replaces any value, or several by the values that they
/// replace.
pub type Replacements = BTreeMap<String, BTreeMap<String, ValueOr<Scalar, ByReplaced>>>;

/// Values by the values that they replace.
pub type ByReplaced = BTreeMap<String, Scalar>;

/// Values by facet.
pub type Facets = BTreeMap<String, OneOrMore<Scalar>>;

/// Lists of values by axis.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct Axes(pub Facets);

/// A whole number, a word, or true or false, which are words. Other types are refused where the
/// expected type is known.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct Scalar(pub toml::Value);

impl Scalar {
    /// The text of the scalar.
    ///
    /// # Errors
    /// When it has another type.
    pub fn text(&self) -> Result<String, String> {
        match &self.0 {
            toml::Value::Integer(number) => Ok(number.to_string()),
            toml::Value::String(word) => Ok(word.clone()),
            toml::Value::Boolean(value) => Ok(value.to_string()),
            other => Err(format!(
                "expected a number or a string, found {}",
                other.type_str()
            )),
        }
    }
}

/// A value, or a list of values.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(untagged))]
pub enum OneOrMore<T> {
    /// The value alone.
    One(T),
    /// A list.
    More(Vec<T>),
}

impl<T> OneOrMore<T> {
    /// The values, with their indices if it is a list.
    pub fn iter(&self) -> impl Iterator<Item = (Option<usize>, &T)> {
        let (values, is_list) = match self {
            OneOrMore::One(value) => (std::slice::from_ref(value), false),
            OneOrMore::More(values) => (&values[..], true),
        };
        let places = values.iter().enumerate();
        places.map(move |(place, value)| (is_list.then_some(place), value))
    }
}

/// A value, or a table in its place.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(untagged))]
pub enum ValueOr<V, T> {
    /// The value.
    Value(V),
    /// The table.
    Table(T),
}

/// A visitor's methods for values that are neither a list nor a table.
macro_rules! values {
    ($made:expr) => {
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("another value")
        }
        fn visit_i64<E: Error>(self, value: i64) -> Result<Self::Value, E> {
            Deserialize::deserialize(value.into_deserializer()).map($made)
        }
        fn visit_f64<E: Error>(self, value: f64) -> Result<Self::Value, E> {
            Deserialize::deserialize(value.into_deserializer()).map($made)
        }
        fn visit_bool<E: Error>(self, value: bool) -> Result<Self::Value, E> {
            Deserialize::deserialize(value.into_deserializer()).map($made)
        }
        fn visit_str<E: Error>(self, value: &str) -> Result<Self::Value, E> {
            Deserialize::deserialize(value.into_deserializer()).map($made)
        }
    };
}

/// An element of a list, so that an error about its value has its place.
#[derive(Deserialize)]
struct ListElement<T>(T);

struct OneOrMoreVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for OneOrMoreVisitor<T> {
    type Value = OneOrMore<T>;

    values!(OneOrMore::One);

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<OneOrMore<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(OneOrMore::One)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<OneOrMore<T>, A::Error> {
        let elements = Vec::deserialize(SeqAccessDeserializer::new(seq))?;
        let values = elements.into_iter().map(|ListElement(value)| value);
        Ok(OneOrMore::More(values.collect()))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMore<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<OneOrMore<T>, D::Error> {
        deserializer.deserialize_any(OneOrMoreVisitor(PhantomData))
    }
}

struct ValueOrVisitor<V, T>(PhantomData<(V, T)>);

impl<'de, V: Deserialize<'de>, T: Deserialize<'de>> Visitor<'de> for ValueOrVisitor<V, T> {
    type Value = ValueOr<V, T>;

    values!(ValueOr::Value);

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ValueOr<V, T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(ValueOr::Table)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<ValueOr<V, T>, A::Error> {
        V::deserialize(SeqAccessDeserializer::new(seq)).map(ValueOr::Value)
    }
}

impl<'de, V: Deserialize<'de>, T: Deserialize<'de>> Deserialize<'de> for ValueOr<V, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ValueOr<V, T>, D::Error> {
        deserializer.deserialize_any(ValueOrVisitor(PhantomData))
    }
}

/// A whole number within a range, which is also in the schema.
#[derive(Clone, Copy, Debug)]
pub struct Within<const MIN: u32, const MAX: u32>(pub u32);

impl<'de, const MIN: u32, const MAX: u32> Deserialize<'de> for Within<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = i64::deserialize(deserializer)?;
        let within = u32::try_from(number).ok();
        let within = within.filter(|number| (MIN..=MAX).contains(number));
        let wrong = || D::Error::custom(format!("must be from {MIN} to {MAX}"));
        within.map(Within).ok_or_else(wrong)
    }
}

/// Schemas of types that are not plain structures.
#[cfg(feature = "schemas")]
mod schemas {
    use std::borrow::Cow;

    use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

    use super::{Axes, Scalar, Within};
    use regatta_worker::case::MAX_AXIS;
    use regatta_worker::operator::{about, axis, settable};

    impl<const MIN: u32, const MAX: u32> JsonSchema for Within<MIN, MAX> {
        fn schema_name() -> Cow<'static, str> {
            format!("From{MIN}To{MAX}").into()
        }

        fn inline_schema() -> bool {
            true
        }

        fn json_schema(_: &mut SchemaGenerator) -> Schema {
            json_schema!({ "type": "integer", "minimum": MIN, "maximum": MAX })
        }
    }

    impl JsonSchema for Scalar {
        fn schema_name() -> Cow<'static, str> {
            "Scalar".into()
        }

        fn json_schema(_: &mut SchemaGenerator) -> Schema {
            json_schema!({
                "description": "A whole number, a word, or true or false.",
                "type": ["integer", "string", "boolean"]
            })
        }
    }

    impl JsonSchema for Axes {
        fn schema_name() -> Cow<'static, str> {
            "Axes".into()
        }

        /// One property an axis, by the list of axes.
        fn json_schema(_: &mut SchemaGenerator) -> Schema {
            let properties = settable().map(|name| {
                let words = axis(name).map_or(Vec::new(), |axis| axis.words());
                let value = if !words.is_empty() {
                    let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
                    json_schema!({ "enum": names })
                } else if axis(name).is_none_or(|axis| axis.is_number()) {
                    // `seq` is one, too.
                    json_schema!({ "type": "integer", "minimum": 1, "maximum": MAX_AXIS })
                } else {
                    json_schema!({ "type": "string" })
                };
                let list = json_schema!({ "type": "array", "items": value, "minItems": 1 });
                let description = about(name);
                let schema = json_schema!({ "description": description, "anyOf": [value, list] });
                (name.to_owned(), schema.to_value())
            });
            let properties: serde_json::Map<String, serde_json::Value> = properties.collect();
            json_schema!({
                "description": "Lists of values by axis.",
                "type": "object",
                "properties": properties,
                // Axes of declared operators.
                "additionalProperties": {
                    "anyOf": [
                        { "type": ["integer", "string"] },
                        { "type": "array", "items": { "type": ["integer", "string"] }, "minItems": 1 }
                    ]
                }
            })
        }
    }
}
