//! `[operators]`: computations that a suite declares as data.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::LazyLock;

use serde::Deserialize;

use super::document::{DocumentError, TomlDocument, TomlText, key, or_near};
use super::file::{OneOrMore, ValueOr};
use super::workers::is_identifier;
use regatta_worker::case::{Dtype, MAX_AXIS, ParamValue, is_name};
use regatta_worker::operator::draw::{Draw, DrawKind};
use regatta_worker::operator::formula::Expression;
use regatta_worker::operator::{
    AxisKind, ElementType, FormulaKind, Input, NATIVE, Operator, Operators, Output, Role,
    Tolerance, axis_name,
};

/// A computation: its axes, its inputs and its outputs.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct OperatorTable {
    /// The axes in which its problems differ, by name: a whole number is the default, `"required"` has none,
    /// and a list of words is a choice whose first is the default, and an argument of a call.
    #[serde(default)]
    pub axes: BTreeMap<String, OneOrMore<AxisValue>>,
    /// Types that its tensors may have, the default first; by default f32, f16 and bf16.
    pub dtypes: Option<OneOrMore<Dtype>>,
    /// The inputs of a call, by the names of its arguments: a shape, or a table.
    pub inputs: BTreeMap<String, ValueOr<Shape, InputTable>>,
    /// Numbers that a call gets, by the names of its arguments: numbers or formulas.
    #[serde(default)]
    pub scalars: BTreeMap<String, Expression>,
    /// The outputs of a call, in this order: a shape, or a table.
    pub outputs: BTreeMap<String, ValueOr<Shape, OutputTable>>,
    /// The inputs that a call can be differentiated by: a sweep asks for their gradients by
    /// `direction`, `forward`, `backward` or `both`.
    pub gradients: Option<OneOrMore<String>>,
    /// The conditions on the axes: `"heads % kv_heads == 0"`.
    pub requires: Option<OneOrMore<String>>,
    /// Floating-point operations of a call, as a formula of the axes.
    pub flops: Option<Expression>,
    /// Bytes that a call must move; by default those of all inputs and outputs.
    pub bytes: Option<Expression>,
    /// A function of NumPy arrays in float64, `"FILE.py:FUNCTION"`, with the operator's arguments and
    /// results, or `"regatta:NAME"`, that of a built-in operator; without one, a comparison has the
    /// base's results for a reference.
    pub reference: Option<String>,
}

/// A whole number or a word.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(
    untagged,
    expecting = "expected a whole number, \"required\", or a list of words"
)]
pub enum AxisValue {
    /// A default.
    Number(i64),
    /// A word.
    Word(String),
}

/// Extents, as a list or as a text with commas: `"batch, seq, 2 * width"`. `""` has none: one number.
pub type Shape = OneOrMore<Expression>;

/// An input.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct InputTable {
    /// The extents.
    pub shape: Shape,
    /// The type of its elements, where that is not the case's.
    pub dtype: Option<ElementType>,
    /// The draw of its contents, by default `"normal"`, and `"bernoulli"` of bool.
    pub draw: Option<String>,
    /// `data`, `state` (restored before each call), `index` or `scale`.
    pub role: Option<Role>,
    /// The input that multiplies its values of i8, e4m3 or e5m2, each number a row or a block of
    /// them: their products are as drawn. The scale itself needs no draw; of dtype e8m0 it has powers of two
    /// that follow from its blocks, as in OCP Microscaling Formats (MX) v1.0, where these are 32.
    pub scale: Option<String>,
    /// True where a case may leave it out, by the axis of its name: `bias = [true, false]` in a sweep,
    /// which is true by default. Its argument is then `None`, or not given where it has a default.
    #[serde(default)]
    pub optional: bool,
}

/// An output.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct OutputTable {
    /// The extents.
    pub shape: Shape,
    /// The type of its elements, where that is not the case's.
    pub dtype: Option<ElementType>,
    /// The largest relative L2 error, or one for each type; by default 5e-6 in f32, 2e-3 in f16,
    /// 1e-2 in bf16, and else none: whole numbers and bool are compared exactly.
    pub tolerance: Option<Tolerance>,
    /// The input that a call overwrites with it, instead of returning it; that input's role is
    /// `state`.
    pub in_place: Option<String>,
}

/// The declarations of the built-in operators.
const BUILT_IN: &str = include_str!("operators.toml");

/// The prefix of a built-in operator's reference, before its name.
pub const BUILT_IN_REFERENCE: &str = "regatta:";

/// The built-in operators, by name.
pub fn built_in() -> &'static Operators {
    static OPERATORS: LazyLock<Operators> = LazyLock::new(|| {
        let source = TomlText {
            label: "built-in operators".to_owned(),
            text: BUILT_IN.to_owned(),
        };
        let read = || -> Result<Operators, DocumentError> {
            let (document, written) = TomlDocument::read::<BTreeMap<String, _>>(&source)?;
            let declared = |(name, mut table): (String, OperatorTable)| {
                table.reference = Some(format!("{BUILT_IN_REFERENCE}{name}"));
                Ok((name.clone(), declared(&document, &name, &name, table)?))
            };
            written.into_iter().map(declared).collect()
        };
        read().unwrap_or_else(|error| panic!("{error}"))
    });
    &OPERATORS
}

/// The largest number of axes, inputs or outputs of an operator.
const MAX_NAMES: usize = 32;

/// Reads `[operators]`, and adds them to those of a suite.
///
/// # Errors
/// The first invalid value.
pub(super) fn read(
    document: &TomlDocument<'_>,
    written: BTreeMap<String, ValueOr<String, OperatorTable>>,
    operators: &mut Operators,
) -> Result<(), DocumentError> {
    for (name, operator) in written {
        let at = key("operators", &name);
        if !is_name(&name) || name == NATIVE {
            let error = format!(
                "this cannot name an operator: `{NATIVE}` is built in, and a name has letters, digits, \
                 `-`, `_` and `.`"
            );
            return Err(document.error(&at, error));
        }
        let operator = match operator {
            ValueOr::Table(table) => declared(document, &at, &name, table)?,
            ValueOr::Value(path) => {
                let path = document.folder().join(&path);
                let label = path.display().to_string();
                let text = fs::read_to_string(&path).map_err(|error| {
                    document.error(&at, format!("cannot read {label}: {error}"))
                })?;
                let source = TomlText { label, text };
                let (document, table): (_, OperatorTable) = TomlDocument::read(&source)?;
                declared(&document, "", &name, table)?
            }
        };
        operators.insert(name, operator);
    }
    Ok(())
}

/// The operator that a table declares.
fn declared(
    document: &TomlDocument<'_>,
    at: &str,
    name: &str,
    table: OperatorTable,
) -> Result<Operator, DocumentError> {
    let refused = |(name, why): Refusal| document.error(&key(at, &name), why);
    let mut axes = declared_axes(&table.axes).map_err(refused)?;
    let dtypes = table.dtypes.map_or(Dtype::ALL.to_vec(), |dtypes| {
        dtypes.iter().map(|(_, dtype)| *dtype).collect()
    });
    let repeated = || Some(format!("`{}` stands there twice", twice(&dtypes)?));
    let empty = dtypes
        .is_empty()
        .then(|| "an empty list allows no case".to_owned());
    if let Some(why) = empty.or_else(repeated) {
        return Err(refused(("dtypes".into(), why)));
    }
    let scales: BTreeSet<String> = table.inputs.values().filter_map(scale_of).collect();
    let mut inputs = BTreeMap::new();
    for (name, written) in table.inputs {
        let input = declared_input(&name, written, scales.contains(&name)).map_err(refused)?;
        if matches!(axes.get(&name), Some(AxisKind::Words(_))) {
            return Err(refused((format!("inputs.{name}"), WORDS_NAME.to_owned())));
        }
        if input.optional && axes.insert(name.clone(), AxisKind::optional()).is_some() {
            let why = "it is an axis of its name, and another has this name: rename one";
            return Err(refused((format!("inputs.{name}.optional"), why.to_owned())));
        }
        inputs.insert(name, input);
    }
    check_scalars(&table.scalars, &inputs, &axes).map_err(refused)?;
    let mut outputs = Vec::new();
    let mut written = table.outputs;
    for name in document.in_order(&key(at, "outputs"), written.keys()) {
        if let Some(written) = written.remove(&name) {
            outputs.push(declared_output(name, written, &inputs).map_err(refused)?);
        }
    }
    let counts = [
        ("axes", axes.len()),
        ("inputs", inputs.len()),
        ("outputs", outputs.len()),
    ];
    for (name, count) in counts {
        if count > MAX_NAMES || (count == 0 && name != "axes") {
            let why = format!("there are {count}; an operator has 1 to {MAX_NAMES}");
            return Err(refused((name.to_owned(), why)));
        }
    }
    let reference = table.reference.as_deref();
    let reference = reference
        .map(|text| reference_of(document, text))
        .transpose();
    let gradients = table.gradients.iter().flat_map(OneOrMore::iter);
    let requires = table.requires.iter().flat_map(OneOrMore::iter);
    let operator = Operator {
        name: name.to_owned(),
        axes,
        dtypes,
        inputs,
        scalars: table.scalars,
        outputs,
        gradients: gradients.map(|(_, name)| name.clone()).collect(),
        requires: requires
            .map(|(_, text)| Expression::Formula(text.clone()))
            .collect(),
        flops: table.flops,
        bytes: table.bytes,
        reference: reference.map_err(|why| refused(("reference".to_owned(), why)))?,
    };
    check_formulas(document, at, &operator)?;
    let objection = operator.objection_to_scale();
    let objection = objection.or_else(|| operator.objection_to_optional());
    let gradients = || Some(("gradients".to_owned(), operator.objection_to_gradients()?));
    match objection.or_else(gradients) {
        Some(objection) => Err(refused(objection)),
        None => Ok(operator),
    }
}

/// A key of an operator's table, and the reason why its value is invalid.
type Refusal = (String, String);

fn declared_axes(
    written: &BTreeMap<String, OneOrMore<AxisValue>>,
) -> Result<BTreeMap<String, AxisKind>, Refusal> {
    let mut axes = BTreeMap::new();
    for (name, value) in written {
        let refused = |why: String| (format!("axes.{name}"), why);
        axis_name(name).map_err(|why| refused(why.to_string()))?;
        axes.insert(name.clone(), axis_kind(value).map_err(refused)?);
    }
    Ok(axes)
}

fn declared_input(
    name: &str,
    written: ValueOr<Shape, InputTable>,
    is_scale: bool,
) -> Result<Input, Refusal> {
    let refused = |key: &str, why: String| (format!("inputs.{name}{key}"), why);
    let table = match written {
        ValueOr::Table(table) => table,
        ValueOr::Value(shape) => InputTable {
            shape,
            dtype: None,
            draw: None,
            role: None,
            scale: None,
            optional: false,
        },
    };
    if !is_identifier(name) {
        return Err(refused("", NO_ARGUMENT.to_owned()));
    }
    if table.optional {
        axis_name(name).map_err(|why| refused(".optional", why.to_string()))?;
    }
    let draw: Draw<Expression> = match &table.draw {
        None if is_scale && table.dtype != Some(ElementType::E8m0) => Draw::open(),
        None => Draw::usual(table.dtype),
        Some(text) => text
            .parse()
            .map_err(|why| refused(".draw", format!("{why}")))?,
    };
    let role = if draw.kind.is_whole() && draw.kind != DrawKind::Bernoulli {
        Role::Index
    } else if is_scale {
        Role::Scale
    } else {
        Role::Data
    };
    Ok(Input {
        shape: extents(&table.shape),
        dtype: table.dtype.or(draw.kind.usual_type()),
        draw,
        role: table.role.unwrap_or(role),
        scale: table.scale,
        optional: table.optional,
    })
}

fn check_scalars(
    scalars: &BTreeMap<String, Expression>,
    inputs: &BTreeMap<String, Input>,
    axes: &BTreeMap<String, AxisKind>,
) -> Result<(), Refusal> {
    for name in scalars.keys() {
        let refused = |why: &str| Err((format!("scalars.{name}"), why.to_owned()));
        if !is_identifier(name) {
            return refused(NO_ARGUMENT);
        }
        if inputs.contains_key(name) {
            return refused("an input has this name");
        }
        if matches!(axes.get(name), Some(AxisKind::Words(_))) {
            return refused(WORDS_NAME);
        }
    }
    Ok(())
}

fn declared_output(
    name: String,
    written: ValueOr<Shape, OutputTable>,
    inputs: &BTreeMap<String, Input>,
) -> Result<Output, Refusal> {
    let refused = |key: &str, why: String| Err((format!("outputs.{name}{key}"), why));
    let table = match written {
        ValueOr::Table(table) => table,
        ValueOr::Value(shape) => OutputTable {
            shape,
            dtype: None,
            tolerance: None,
            in_place: None,
        },
    };
    if !is_identifier(&name) {
        return refused("", NO_ARGUMENT.to_owned());
    }
    if let Some(state) = &table.in_place
        && (inputs.get(state)).is_none_or(|input| input.role != Role::State)
    {
        let why = format!("no input `{state}` has role = \"state\"");
        return refused(".in_place", why);
    }
    if table
        .tolerance
        .as_ref()
        .is_some_and(|tolerance| !sound(tolerance))
    {
        let why = "a relative L2 error is above 0 and at most 1: 1e-2 is 1 %";
        return refused(".tolerance", why.to_owned());
    }
    Ok(Output {
        shape: extents(&table.shape),
        dtype: table.dtype,
        tolerance: table.tolerance,
        in_place: table.in_place,
        name,
    })
}

fn scale_of(written: &ValueOr<Shape, InputTable>) -> Option<String> {
    match written {
        ValueOr::Table(table) => table.scale.clone(),
        ValueOr::Value(_) => None,
    }
}

/// Refuses an invalid formula, or one that names an axis which the operator does not have.
fn check_formulas(
    document: &TomlDocument<'_>,
    at: &str,
    operator: &Operator,
) -> Result<(), DocumentError> {
    let figures = operator.figures(&operator.example());
    for (name, formula, kind) in operator.formulas() {
        // A shape may be a text with commas, whose parts have no place of their own, and a
        // requirement may be a single value.
        let whole = key(at, &name);
        let above = whole.split(['[']).next().unwrap_or(&whole);
        let table = above.strip_suffix(".shape").unwrap_or(above);
        let places = [whole.as_str(), above, table];
        let place = places.into_iter().find(|path| document.has(path));
        let error = |why: String| document.error(place.unwrap_or(at), why);
        if let Some(unknown) = formula
            .unknown_name(&figures)
            .map_err(|why| error(format!("`{formula}`: {why}")))?
        {
            let axes = operator.axes.iter();
            let numbers = axes.filter(|(_, kind)| !matches!(kind, AxisKind::Words(_)));
            let names: Vec<&str> = numbers.map(|(name, _)| name.as_str()).collect();
            let near = or_near(&unknown, names.iter().copied());
            let axes = if names.is_empty() {
                "none".to_owned()
            } else {
                names.join(", ")
            };
            let why = match operator.axes.get(&unknown) {
                Some(AxisKind::Words(_)) => "is an axis of words, and a formula has numbers",
                _ => "is not an axis of the operator",
            };
            return Err(error(format!("`{unknown}` {why}{near} (axes: {axes})")));
        }
        // A formula without a value for the example may have one for another problem.
        if kind == FormulaKind::Condition
            && let Err(why) = formula.holds(&figures)
            && why.contains("write a condition")
        {
            return Err(error(why));
        }
    }
    Ok(())
}

const NO_ARGUMENT: &str = "this cannot name an argument of a Python function: use letters, digits \
                           and `_`, a letter or `_` first";

const WORDS_NAME: &str = "a call is given the word of the axis of this name: rename one";

/// The extents that a shape lists; a text lists them with commas.
fn extents(shape: &Shape) -> Vec<Expression> {
    let each = shape.iter().flat_map(|(_, formula)| match formula {
        Expression::Formula(text) if text.trim().is_empty() => vec![],
        Expression::Formula(text) => split(text),
        other => vec![other.clone()],
    });
    each.collect()
}

fn split(text: &str) -> Vec<Expression> {
    let parts = regatta_worker::operator::draw::split_arguments(text);
    parts
        .iter()
        .map(|part| Expression::from_text(part))
        .collect()
}

fn sound(tolerance: &Tolerance) -> bool {
    let sound = |value: &f64| *value > 0.0 && *value <= 1.0;
    match tolerance {
        Tolerance::One(value) => sound(value),
        Tolerance::ByType(values) => values.values().all(sound),
    }
}

/// The first element that equals an earlier one.
fn twice<T: PartialEq>(list: &[T]) -> Option<&T> {
    let mut places = list.iter().enumerate();
    let again = places.find(|(place, one)| list[..*place].contains(one));
    again.map(|(_, one)| one)
}

fn axis_kind(value: &OneOrMore<AxisValue>) -> Result<AxisKind, String> {
    match value {
        OneOrMore::One(AxisValue::Word(word)) if word == "required" => Ok(AxisKind::Number(None)),
        OneOrMore::One(AxisValue::Number(number)) => {
            let number = u32::try_from(*number).ok().filter(|one| *one <= MAX_AXIS);
            let number = number.ok_or_else(|| format!("must be from 0 to {MAX_AXIS}"))?;
            Ok(AxisKind::Number(Some(number)))
        }
        OneOrMore::One(AxisValue::Word(_)) => Err(
            "write a default, \"required\" for an axis without one, or a list of words".to_owned(),
        ),
        OneOrMore::More(words) => {
            let word = |value: &AxisValue| match value {
                AxisValue::Word(word) => match word.parse() {
                    Ok(ParamValue::Word(word)) => Ok(word),
                    _ => Err(format!("`{word}` is no word that can stand in a case id")),
                },
                AxisValue::Number(number) => Err(format!(
                    "{number} is no word; an axis of numbers has one default, and a sweep lists its \
                     values"
                )),
            };
            let words: Vec<String> = words.iter().map(word).collect::<Result<_, _>>()?;
            if words.is_empty() {
                return Err("an empty list has no default".to_owned());
            }
            match twice(&words) {
                Some(word) => Err(format!("`{word}` stands there twice")),
                None => Ok(AxisKind::Words(words)),
            }
        }
    }
}

/// `FILE.py:FUNCTION`, the file from where regatta runs; or the reference of a built-in operator.
fn reference_of(document: &TomlDocument<'_>, text: &str) -> Result<String, String> {
    let wrong = || "write a Python file and its function: \"reference.py:rmsnorm\"".to_owned();
    if let Some(name) = text.strip_prefix(BUILT_IN_REFERENCE) {
        let is_known = BUILT_IN.contains(&format!("[{name}]"));
        let unknown = || format!("no built-in operator has the name `{name}`; see `regatta list`");
        return is_known.then(|| text.to_owned()).ok_or_else(unknown);
    }
    let (file, function) = text.rsplit_once(':').ok_or_else(wrong)?;
    if !file.ends_with(".py") || !is_identifier(function) {
        return Err(wrong());
    }
    let path = document.folder().join(file);
    if !path.is_file() {
        return Err(format!("the file {} does not exist", path.display()));
    }
    Ok(format!("{}:{function}", path.display()))
}

#[cfg(test)]
mod tests;
