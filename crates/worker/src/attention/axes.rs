//! The table of a problem's axes: their names, the form of their values, and their defaults.
//!
//! Ids, facets, selectors, sweeps and checks follow from it. A new axis is a row here and a field
//! of [`Attention`]. `tests/vectors/axes.json` has the table for other languages.

use super::{Attention, Layout, Mask, Projection, ProjectionKind, Varlen};
use crate::case::{Dtype, ParseError};
use crate::operator::Direction;

/// One axis.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    /// The name in suites, selectors and reports, and on the wire except for the axes of a
    /// projection.
    pub name: &'static str,
    /// The description for a schema.
    about: &'static str,
    /// The form of its values.
    pub(super) form: Form,
    /// The default.
    pub(super) unset: Unset,
    get: fn(&Attention) -> Option<String>,
    set: fn(&mut Attention, &str) -> Result<(), ParseError>,
}

/// The form of an axis's values: in a suite, and as a token of an id.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    /// A whole number from 1 to [`MAX_AXIS`](crate::case::MAX_AXIS). In an id it follows these
    /// letters.
    Number(&'static str),
    /// One of a few words, each in the form for suites and the form for ids.
    Choice(fn() -> Vec<AxisWord>),
    /// The name of a [`Mask`].
    Mask,
    /// A [`Varlen`]. In an id it follows these letters.
    Lengths(&'static str),
    /// One of a few words. In an id it is the prefix of the [`Form::Width`].
    Layer(fn() -> Vec<AxisWord>),
    /// A whole number, as [`Form::Number`]. In an id it follows the short word of the axis with
    /// this name.
    Width(&'static str),
}

/// A word that an axis can have: the form for suites, selectors, reports and the wire; and the form
/// for ids.
pub type AxisWord = (&'static str, &'static str);

/// The default of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unset {
    /// None: a value must be given. The text is the name under which to ask for it.
    Refused(&'static str),
    /// This value.
    Is(&'static str),
    /// The value of this other axis.
    As(&'static str),
    /// The problem is without a value.
    Absent,
    /// The problem is without a value, unless this other axis is given: then this one must be, too.
    With(&'static str),
}

/// Sets both `seq_q` and `seq_k` in sweeps and selectors.
pub const SEQ: &str = "seq";

/// The axes that [`SEQ`] stands for.
pub const SEQ_AXES: [&str; 2] = ["seq_q", "seq_k"];

/// An axis that is a number, in the field with its name.
macro_rules! number {
    ($field:ident, $letters:literal, $unset:expr, $about:literal) => {
        Axis {
            name: stringify!($field),
            about: $about,
            form: Form::Number($letters),
            unset: $unset,
            get: |problem| Some(problem.$field.to_string()),
            set: |problem, text| {
                problem.$field = whole(text)?;
                Ok(())
            },
        }
    };
}

/// An axis that is a value of an enum, in the field with its name.
macro_rules! choice {
    ($field:ident, $type:ty, $short:expr, $unset:literal, $about:literal) => {
        Axis {
            name: stringify!($field),
            about: $about,
            form: Form::Choice(|| <$type>::ALL.map(|one| (one.name(), $short(one))).to_vec()),
            unset: Unset::Is($unset),
            get: |problem| Some(problem.$field.to_string()),
            set: |problem, text| {
                problem.$field = text.parse()?;
                Ok(())
            },
        }
    };
}

/// An axis that is a number, in the projection's field with its name.
macro_rules! of_projection {
    ($field:ident, $form:expr, $about:literal) => {
        Axis {
            name: stringify!($field),
            about: $about,
            form: $form,
            unset: Unset::With("projection"),
            get: |problem| {
                problem
                    .projection
                    .map(|projection| projection.$field.to_string())
            },
            set: |problem, text| {
                if let Some(of) = &mut problem.projection {
                    of.$field = whole(text)?;
                }
                Ok(())
            },
        }
    };
}

/// Axes whose values follow from the lengths of a ragged batch.
const OF_LENGTHS: [&str; 3] = ["batch", "seq_q", "seq_k"];

/// Axes that a projection uses. All others must have their defaults.
#[rustfmt::skip]
const OF_PROJECTIONS: [&str; 8] = [
    "batch", "heads", "seq_q", "head_dim", "dtype", "projection", "hidden", "ranks",
];

/// Every axis. An axis comes after those that its value or default depends on.
#[rustfmt::skip]
pub const AXES: &[Axis] = &[
    number!(batch, "b", Unset::Is("1"), "Sequences in a batch, by default 1."),
    number!(heads, "h", Unset::Is("1"), "Query heads, by default 1."),
    number!(kv_heads, "kv", Unset::As("heads"), "Key-value heads, by default as many as `heads`."),
    number!(seq_q, "s", Unset::Refused(SEQ), "Queries of a sequence."),
    number!(seq_k, "sk", Unset::As("seq_q"), "Keys of a sequence, by default as many as queries."),
    number!(head_dim, "d", Unset::Refused("head_dim"), "Width of a head of queries and keys."),
    number!(head_dim_v, "dv", Unset::As("head_dim"), "Width of a head of values, by default `head_dim`."),
    Axis {
        name: "varlen",
        about: "Lengths of the sequences of a ragged batch: `100+200`.",
        form: Form::Lengths("v"),
        unset: Unset::Absent,
        get: |problem| problem.varlen.as_ref().map(ToString::to_string),
        set: |problem, text| {
            let lengths: Varlen = text.parse()?;
            problem.batch = lengths.q.len() as u32;
            problem.seq_q = lengths.q.iter().copied().max().unwrap_or(0);
            problem.seq_k = lengths.k.iter().copied().max().unwrap_or(0);
            problem.varlen = Some(lengths);
            Ok(())
        },
    },
    choice!(dtype, Dtype, Dtype::name, "f32", "Type of the inputs and results, by default f32."),
    Axis {
        name: "mask",
        about: "full (the default), causal, window-LEFT-RIGHT; with -tl or -br where there are not as many \
                keys as queries.",
        form: Form::Mask,
        unset: Unset::Is("full"),
        get: |problem| Some(problem.mask.name(problem.is_square())),
        set: |problem, text| {
            problem.mask = Mask::parse(text, problem.is_square())?;
            Ok(())
        },
    },
    choice!(layout, Layout, Layout::name, "bshd", "Order of the axes in memory, by default bshd."),
    choice!(direction, Direction, Direction::short, "forward", "The result, its gradients, or both; by default forward."),
    Axis {
        name: "projection",
        about: "A linear layer around attention, in place of attention.",
        form: Form::Layer(|| ProjectionKind::ALL.map(|one| (one.name(), one.short())).to_vec()),
        unset: Unset::Absent,
        get: |problem| problem.projection.map(|projection| projection.kind.to_string()),
        set: |problem, text| {
            problem.projection = Some(Projection {
                kind: text.parse()?,
                hidden: 0,
                ranks: 0,
            });
            Ok(())
        },
    },
    of_projection!(hidden, Form::Width("projection"), "Width of the rows that a projection reads or writes."),
    of_projection!(ranks, Form::Number("r"), "GPUs over which the rows of a projection are spread."),
];

/// True for an axis whose value needs no name in a sentence: `bf16`, `causal`.
pub fn is_plain(name: &str) -> bool {
    ["mask", "dtype", "direction", "projection"].contains(&name)
}

/// The description of a name that a sweep may set.
pub fn about(name: &str) -> &str {
    let alias = (name == SEQ).then_some("`seq_q` and `seq_k` alike.");
    alias.or_else(|| Some(axis(name)?.about)).unwrap_or(name)
}

/// The names that a sweep may set: every axis, and [`SEQ`].
pub fn settable() -> impl Iterator<Item = &'static str> {
    AXES.iter().flat_map(|axis| {
        let alias = (axis.name == SEQ_AXES[0]).then_some(SEQ);
        alias.into_iter().chain([axis.name])
    })
}

/// The axis of this name.
pub fn axis(name: &str) -> Option<&'static Axis> {
    AXES.iter().find(|axis| axis.name == name)
}

fn whole(text: &str) -> Result<u32, ParseError> {
    let number = text.parse();
    number.map_err(|_| ParseError::new(format!("`{text}` is not a whole number")))
}

impl Axis {
    /// True if its value follows from the lengths of a ragged batch.
    pub fn is_of_lengths(&self) -> bool {
        OF_LENGTHS.contains(&self.name)
    }

    /// True if a projection uses it.
    pub fn is_of_projections(&self) -> bool {
        OF_PROJECTIONS.contains(&self.name)
    }

    /// True for a whole number.
    pub fn is_number(&self) -> bool {
        matches!(self.form, Form::Number(_) | Form::Width(_))
    }

    /// True if its token in an id is only the value, or a short word for it.
    pub fn is_token(&self) -> bool {
        matches!(self.form, Form::Choice(_) | Form::Mask)
    }

    /// True if its default is the value of another axis.
    pub fn follows_another(&self) -> bool {
        matches!(self.unset, Unset::As(_))
    }

    /// The key of its token in an id, which may have each key once.
    pub(super) fn says(&self) -> &'static str {
        match self.form {
            Form::Lengths(_) => SEQ_AXES[0],
            Form::Width(_) => "the projection",
            _ => self.name,
        }
    }

    /// The value in a problem, as suites write it; `None` if the problem has none.
    pub fn value(&self, problem: &Attention) -> Option<String> {
        (self.get)(problem)
    }

    /// Sets the value. Axes before it in the table must be set already.
    ///
    /// # Errors
    /// The text is not one of its values.
    pub fn set(&self, problem: &mut Attention, text: &str) -> Result<(), ParseError> {
        (self.set)(problem, text)
    }

    /// Checks a value from a suite, and returns it as reports write it.
    ///
    /// # Errors
    /// The text is not one of its values, whatever the other axes are.
    pub fn check(&self, text: &str) -> Result<String, ParseError> {
        match self.form {
            Form::Number(_) | Form::Width(_) => whole(text).map(|number| number.to_string()),
            Form::Mask => text.parse::<Mask>().map(|_| text.to_owned()),
            Form::Lengths(_) => text.parse::<Varlen>().map(|lengths| lengths.to_string()),
            Form::Choice(words) | Form::Layer(words) => {
                let words = words();
                let names = || words.iter().map(|(name, _)| *name);
                let known = names().find(|name| *name == text);
                let unknown = || ParseError::one_of(self.name, text, names());
                known.map(str::to_owned).ok_or_else(unknown)
            }
        }
    }

    /// The default value in a problem.
    pub fn unset_value(&self, problem: &Attention) -> Option<String> {
        match self.unset {
            Unset::Is(text) => Some(text.to_owned()),
            Unset::As(other) => axis(other)?.value(problem),
            Unset::Refused(_) | Unset::Absent | Unset::With(_) => None,
        }
    }

    /// The token in an id; `None` for a default.
    pub(super) fn token(&self, problem: &Attention) -> Option<String> {
        if self.is_of_lengths() && problem.varlen.is_some() {
            return None;
        }
        let value = self.value(problem)?;
        if Some(&value) == self.unset_value(problem).as_ref() {
            return None;
        }
        match self.form {
            Form::Number(letters) | Form::Lengths(letters) => Some(format!("{letters}{value}")),
            Form::Mask => Some(value),
            Form::Layer(_) => None,
            Form::Choice(words) => {
                let (_, short) = words().into_iter().find(|(name, _)| *name == value)?;
                Some(short.to_owned())
            }
            Form::Width(of) => {
                let width = axis(of)?;
                let name = width.value(problem)?;
                let (_, short) = width.words().into_iter().find(|word| word.0 == name)?;
                Some(format!("{short}{value}"))
            }
        }
    }

    /// The words that it can have; empty unless it is a choice of words.
    pub fn words(&self) -> Vec<AxisWord> {
        match self.form {
            Form::Choice(words) | Form::Layer(words) => words(),
            _ => Vec::new(),
        }
    }

    /// The place of its token in an id. The lengths of a ragged batch are at the place of the
    /// sequence length.
    pub(super) fn place(&self) -> usize {
        let at = |name| AXES.iter().position(|axis| axis.name == name);
        at(self.says()).or(at(self.name)).unwrap_or(AXES.len())
    }
}
