//! `[[sweep]]`: lists of values that multiply into cases.

use std::collections::BTreeMap;

use toml::Value;

use super::Suite;
use super::document::{DocumentError, TomlDocument, key, name_hint, unknown_key};
use super::file::{Axes, Facets, OneOrMore, Scalar, SweepTable, ValueOr};
use super::operators::built_in;
use regatta_worker::case::{Case, MAX_AXIS, ParamValue, Params, VariantId, parameter_name};
use regatta_worker::operator::{
    AxisKind, DIRECTION, DeclaredProblem, Direction, NATIVE, Native, Operator, Point, Problem,
    axis, settable,
};

/// The largest number of cases: more are a mistake.
const MAX_CASES: usize = 100_000;

/// The path of a value that may be an element of a list.
fn element(at: &str, place: Option<usize>) -> String {
    place.map_or(at.to_owned(), |place| format!("{at}[{place}]"))
}

/// The text of each value of a list, as returned by `check`.
fn texts(
    document: &TomlDocument<'_>,
    at: &str,
    values: &OneOrMore<Scalar>,
    check: impl Fn(&Scalar) -> Result<String, String>,
) -> Result<Vec<String>, DocumentError> {
    let texts = values.iter().map(|(place, value)| {
        let wrong = |why| document.error(&element(at, place), why);
        check(value).map_err(wrong)
    });
    let texts: Vec<String> = texts.collect::<Result<_, _>>()?;
    if texts.is_empty() {
        Err(document.error(at, EMPTY))
    } else {
        Ok(texts)
    }
}

const EMPTY: &str = "an empty list makes no case; give at least one value";

/// The subject of a sweep.
enum Swept {
    Native,
    Declared(Box<Operator>),
}

impl Swept {
    /// The axes that a sweep may set.
    fn names(&self) -> Vec<&str> {
        match self {
            Swept::Native => settable().collect(),
            Swept::Declared(operator) => {
                let axes = operator.axes.keys().map(String::as_str);
                let direction = (!operator.gradients.is_empty()).then_some(DIRECTION);
                axes.chain(["dtype"]).chain(direction).collect()
            }
        }
    }

    /// A value of an axis as text.
    fn value(&self, name: &str, value: &Scalar) -> Result<String, String> {
        match self {
            Swept::Native => axis_value(name, value),
            Swept::Declared(operator) => declared_value(operator, name, value),
        }
    }

    fn problem(&self, point: &Point<'_>) -> Result<Problem, String> {
        match self {
            Swept::Native => Native::at(point)
                .map(Problem::from)
                .map_err(|error| error.to_string()),
            Swept::Declared(operator) => declared_problem(operator, point).map(Problem::Declared),
        }
    }
}

fn declared_value(operator: &Operator, name: &str, value: &Scalar) -> Result<String, String> {
    let text = value.text()?;
    if name == "dtype" {
        let allowed = operator.dtypes.iter().any(|dtype| dtype.name() == text);
        let names: Vec<&str> = operator.dtypes.iter().map(|dtype| dtype.name()).collect();
        let refused = || format!("the operator has dtypes = {}", names.join(", "));
        return allowed.then_some(text).ok_or_else(refused);
    }
    if name == DIRECTION && !operator.gradients.is_empty() {
        let direction: Direction = text.parse().map_err(|error| format!("{error}"))?;
        return Ok(direction.to_string());
    }
    match operator.axes.get(name) {
        Some(AxisKind::Words(words)) if words.contains(&text) => Ok(text),
        Some(AxisKind::Words(words)) => Err(format!("use {}", words.join(" or "))),
        _ => match &value.0 {
            Value::Integer(number) if (0..=MAX_AXIS.into()).contains(number) => Ok(text),
            Value::Integer(_) => Err(format!("must be from 0 to {MAX_AXIS}")),
            other => Err(format!(
                "expected a whole number, found {}",
                other.type_str()
            )),
        },
    }
}

/// The problem of an operator at a point, after checking that its shapes and draws can be
/// evaluated.
fn declared_problem(operator: &Operator, point: &Point<'_>) -> Result<DeclaredProblem, String> {
    let name = &operator.name;
    let mut problem = operator.example();
    for (axis, kind) in &operator.axes {
        match point.get(axis.as_str()) {
            Some(text) => drop(
                problem
                    .axes
                    .insert(axis.clone(), ParamValue::from(text.as_str())),
            ),
            None if *kind == AxisKind::Number(None) => {
                return Err(format!(
                    "axis `{axis}` of operator `{name}` has no default; give it in the sweep"
                ));
            }
            None => {}
        }
    }
    if !operator.gradients.is_empty()
        && let Some(direction) = point.get(DIRECTION)
    {
        let direction = direction.parse().map_err(|error| format!("{error}"))?;
        problem = problem.with(direction);
    }
    if let Some(dtype) = point.get("dtype") {
        problem.dtype = dtype.parse().map_err(|error| format!("{error}"))?;
    }
    let place = |key: &str, why: &str| format!("operators.{name}.{key}: {why}");
    operator
        .operands(&problem)
        .map_err(|(key, why)| place(&key, &why))?;
    let flops = operator.flops_of(&problem);
    flops.map_err(|why| place("flops", &why))?;
    let bytes = operator.bytes_of(&problem);
    bytes.map_err(|why| place("bytes", &why))?;
    Ok(problem)
}

/// The lists of values of some axes, each checked to be valid for its axis.
fn axes<'s>(
    document: &TomlDocument<'_>,
    at: &str,
    axes: &Axes,
    swept: &'s Swept,
    beside: &[&'static str],
) -> Result<BTreeMap<&'s str, Vec<String>>, DocumentError> {
    let mut lists = BTreeMap::new();
    let names = swept.names();
    for (name, values) in &axes.0 {
        let at = key(at, name);
        let Some(axis) = names.iter().copied().find(|known| known == name) else {
            let known: Vec<&str> = beside
                .iter()
                .copied()
                .chain(names.iter().copied())
                .collect();
            let why = match swept {
                Swept::Declared(operator) if name == DIRECTION => format!(
                    "operator `{}` is forward alone: name the inputs that it is differentiated by, \
                     as in gradients = [\"x\"]",
                    operator.name
                ),
                _ => unknown_key(name, &known),
            };
            return Err(document.error(&at, why));
        };
        let texts = texts(document, &at, values, |value| swept.value(axis, value))?;
        lists.insert(axis, texts);
    }
    Ok(lists)
}

fn axis_value(name: &str, value: &Scalar) -> Result<String, String> {
    match axis(name) {
        Some(axis) if !axis.is_number() => match &value.0 {
            Value::String(word) => axis.check(word).map_err(|error| error.to_string()),
            other => Err(format!("expected a string, found {}", other.type_str())),
        },
        // `seq` is one, too.
        _ => match &value.0 {
            Value::Integer(number) if (1..=MAX_AXIS.into()).contains(number) => {
                Ok(number.to_string())
            }
            Value::Integer(_) => Err(format!("must be from 1 to {MAX_AXIS}")),
            other => Err(format!(
                "expected a whole number, found {}",
                other.type_str()
            )),
        },
    }
}

/// The value of a parameter, if it is valid in a case id.
pub(super) fn parameter(value: &Scalar) -> Result<ParamValue, String> {
    value.text()?.parse().map_err(|error| format!("{error}"))
}

/// The keys of a sweep other than its axes.
const BESIDE: [&str; 4] = ["variants", "operator", "shapes", "params"];

/// Adds the cases of a sweep to those of a suite; `named` are the shapes that have names.
///
/// # Errors
/// The first invalid value.
pub(super) fn sweep(
    document: &TomlDocument<'_>,
    at: &str,
    table: &SweepTable,
    named: &BTreeMap<String, Axes>,
    suite: &mut Suite,
) -> Result<(), DocumentError> {
    let written = Written {
        document,
        at,
        table,
    };
    let swept = written.swept(suite)?;
    let variants = written.variants(&swept, suite)?;
    let shapes = written.shapes(&swept, named)?;
    let params = written.params(&swept)?;
    let shapes_made = shapes.iter().map(size).fold(0, usize::saturating_add);
    let made = [variants.len(), shapes_made, size(&params)];
    let made = made.iter().fold(1usize, |all, n| all.saturating_mul(*n));
    if made.saturating_add(suite.cases.len()) > MAX_CASES {
        let before = match suite.cases.len() {
            0 => String::new(),
            before => format!(" beside the {before} that are there already"),
        };
        let error = format!(
            "makes {made} cases{before}, and a suite has at most {MAX_CASES}; give fewer values"
        );
        return Err(document.error(at, error));
    }
    let params: Vec<Params> = product(&params).iter().map(parameters).collect();
    for point in shapes.iter().flat_map(product) {
        let problem = swept.problem(&point).map_err(|error| {
            let values: Vec<String> = point.iter().map(|(k, v)| format!("{k} = {v}")).collect();
            let place = match &values[..] {
                [] => String::new(),
                values => format!(" (at {})", values.join(", ")),
            };
            document.error(at, format!("{error}{place}"))
        })?;
        for variant in &variants {
            suite.cases.extend(params.iter().map(|params| Case {
                variant: variant.clone(),
                problem: problem.clone(),
                params: params.clone(),
            }));
        }
    }
    Ok(())
}

/// A sweep with its place in the document.
struct Written<'a> {
    document: &'a TomlDocument<'a>,
    at: &'a str,
    table: &'a SweepTable,
}

impl Written<'_> {
    /// The operator, which the suite then has.
    fn swept(&self, suite: &mut Suite) -> Result<Swept, DocumentError> {
        let name = match self.table.operator.as_deref() {
            None | Some(NATIVE) => return Ok(Swept::Native),
            Some(name) => name,
        };
        let Some(operator) = suite.operators.get(name).or(built_in().get(name)) else {
            let known = suite.operators.keys().chain(built_in().keys());
            let hint = name_hint(name, known.map(String::as_str).chain([NATIVE]));
            let error = format!("no such operator; {hint}");
            return Err(self.document.error(&key(self.at, "operator"), error));
        };
        let operator = operator.clone();
        suite.operators.insert(name.to_owned(), operator.clone());
        Ok(Swept::Declared(Box::new(operator)))
    }

    /// The variants; their places are stored in the suite.
    fn variants(&self, swept: &Swept, suite: &mut Suite) -> Result<Vec<VariantId>, DocumentError> {
        let Some(written) = &self.table.variants else {
            // A misspelt key is named first.
            axes(self.document, self.at, &self.table.axes, swept, &BESIDE)?;
            return Err(self.document.error(self.at, "`variants` is missing"));
        };
        let at = key(self.at, "variants");
        let mut variants = Vec::new();
        for (place, written) in written.iter() {
            let at = element(&at, place);
            let wrong = |error| self.document.error(&at, format!("{error}"));
            let id: VariantId = written.parse().map_err(wrong)?;
            let origin = suite.origins.entry(id.clone());
            origin.or_insert_with(|| self.document.place(&at));
            variants.push(id);
        }
        if variants.is_empty() {
            return Err(self.document.error(&at, EMPTY));
        }
        Ok(variants)
    }

    /// The lists of values of each shape. A shape's value of an axis overrides the sweep's.
    fn shapes<'s>(
        &self,
        swept: &'s Swept,
        named: &BTreeMap<String, Axes>,
    ) -> Result<Vec<BTreeMap<&'s str, Vec<String>>>, DocumentError> {
        let document = self.document;
        let beside = axes(document, self.at, &self.table.axes, swept, &BESIDE)?;
        let Some(written) = &self.table.shapes else {
            return Ok(vec![beside]);
        };
        let at = key(self.at, "shapes");
        let mut shapes = Vec::new();
        for (place, shape) in written.iter() {
            let at = element(&at, place);
            let (shape, at) = match shape {
                ValueOr::Table(shape) => (shape, at),
                ValueOr::Value(name) => match named.get(name) {
                    Some(shape) => (shape, key("shapes", name)),
                    None => {
                        let known: Vec<&str> = named.keys().map(String::as_str).collect();
                        let error = unknown_key(name, &known).replace("key", "shape");
                        return Err(document.error(&at, error));
                    }
                },
            };
            let mut shape = axes(document, &at, shape, swept, &[])?;
            for (name, values) in &beside {
                shape.entry(*name).or_insert_with(|| values.clone());
            }
            shapes.push(shape);
        }
        if shapes.is_empty() {
            return Err(document.error(&at, EMPTY));
        }
        Ok(shapes)
    }

    /// The lists of values of each parameter.
    fn params(&self, swept: &Swept) -> Result<BTreeMap<&str, Vec<String>>, DocumentError> {
        let mut params = BTreeMap::new();
        for (name, values) in &self.table.params {
            let at = key(&key(self.at, "params"), name);
            let wrong = |error: String| self.document.error(&at, error);
            parameter_name(name).map_err(|error| wrong(error.to_string()))?;
            if let Swept::Declared(operator) = swept
                && (operator.axes.contains_key(name)
                    || operator.inputs.contains_key(name)
                    || operator.scalars.contains_key(name))
            {
                let error =
                    "cannot name a parameter: it is an axis, an input or a scalar of the operator";
                return Err(wrong(error.to_owned()));
            }
            let text = |value: &Scalar| parameter(value).map(|value| value.to_string());
            params.insert(name.as_str(), texts(self.document, &at, values, text)?);
        }
        Ok(params)
    }
}

/// The number of points in the product of some lists.
fn size(lists: &BTreeMap<&str, Vec<String>>) -> usize {
    let lengths = lists.values().map(Vec::len);
    lengths.fold(1, usize::saturating_mul)
}

/// The product of some lists.
fn product<'a>(lists: &BTreeMap<&'a str, Vec<String>>) -> Vec<BTreeMap<&'a str, String>> {
    lists
        .iter()
        .fold(vec![BTreeMap::new()], |points, (name, values)| {
            let with = |point: &BTreeMap<&'a str, String>, value: &String| {
                let mut point = point.clone();
                point.insert(*name, value.clone());
                point
            };
            let longer = points
                .iter()
                .flat_map(|point| values.iter().map(move |value| with(point, value)));
            longer.collect()
        })
}

/// The parameters at a point of their product.
fn parameters(point: &BTreeMap<&str, String>) -> Params {
    let mut params = Params::default();
    for (name, text) in point {
        params.set(name, ParamValue::from(text.as_str()));
    }
    params
}

/// The facets that a selector names, and their values as texts.
pub(super) fn facets(
    document: &TomlDocument<'_>,
    at: &str,
    facets: &Facets,
) -> Result<BTreeMap<String, Vec<String>>, DocumentError> {
    let lists = facets.iter().map(|(name, values)| {
        let texts = texts(document, &key(at, name), values, Scalar::text)?;
        Ok((name.clone(), texts))
    });
    lists.collect()
}
