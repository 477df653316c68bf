//! One attention computation with a value for every axis, and its text forms: as values of axes,
//! and as a part of a case's id.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::axes::{AXES, Axis, Form, SEQ, SEQ_AXES, Unset, axis, settable};
use super::{Layout, Mask, Projection, Varlen, results};
use crate::case::{Dtype, MAX_AXIS, ParseError, refuse};
use crate::joined::Joined;
use crate::operator::Direction;

/// One attention computation: `softmax(mask(q kᵀ / √head_dim)) v`, or its gradient.
///
/// Shapes, in logical order: `q [batch, seq_q, heads, head_dim]`,
/// `k [batch, seq_k, kv_heads, head_dim]`, `v [batch, seq_k, kv_heads, head_dim_v]`,
/// `out` and `dout [batch, seq_q, heads, head_dim_v]`. Query head `h` reads
/// key-value head `h / (heads / kv_heads)`. A ragged batch has `batch` sequences,
/// `seq_q` and `seq_k` are its longest, and its tensors are packed
/// `[total, heads, head_dim]`.
///
/// With a `projection`, it is that linear layer around attention instead, on activations of these
/// sizes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Attention {
    /// Independent sequences.
    pub batch: u32,
    /// Query heads.
    pub heads: u32,
    /// Key-value heads: `heads` for MHA, fewer for GQA, 1 for MQA. Divides `heads`.
    pub kv_heads: u32,
    /// Queries of each sequence (the longest, if ragged).
    pub seq_q: u32,
    /// Keys of each sequence (the longest, if ragged).
    pub seq_k: u32,
    /// Elements of one query and key vector.
    pub head_dim: u32,
    /// Elements of one value vector.
    pub head_dim_v: u32,
    /// Storage type of every tensor.
    pub dtype: Dtype,
    /// The keys that a query sees.
    pub mask: Mask,
    /// Physical order of the axes of `q, k, v, out, dout`.
    pub layout: Layout,
    /// The passes that are timed.
    pub direction: Direction,
    /// Sequence lengths of a ragged batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub varlen: Option<Varlen>,
    /// The sequence-parallel linear layer that is computed in place of attention.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub projection: Option<Projection>,
}

impl Attention {
    /// A square, unmasked forward problem with one head in f32: other axes at their defaults.
    pub fn new(seq: u32, head_dim: u32) -> Attention {
        Attention {
            batch: 1,
            heads: 1,
            kv_heads: 1,
            seq_q: seq,
            seq_k: seq,
            head_dim,
            head_dim_v: head_dim,
            dtype: Dtype::F32,
            mask: Mask::FULL,
            layout: Layout::Bshd,
            direction: Direction::Forward,
            varlen: None,
            projection: None,
        }
    }

    /// The problem with default values of axes that do not affect the values of results: the
    /// layout, and whether a gradient is computed together with forward or alone.
    pub fn same_values(&self) -> Attention {
        let direction = if self.direction.has_backward() {
            Direction::Both
        } else {
            Direction::Forward
        };
        Attention {
            layout: Layout::Bshd,
            ..self.with(direction)
        }
    }

    /// The problem with the same results and also gradients.
    pub fn with_gradients(&self) -> Option<Attention> {
        let is_layer = self.projection.is_some();
        (!is_layer).then(|| self.with(Direction::Both))
    }

    /// The results, each with the direction whose limit applies to it.
    pub fn results(&self) -> &'static [(&'static str, Direction)] {
        results(self.direction)
    }

    /// A clause that names the formula, for messages about functions that may compute another one.
    pub fn formula(&self) -> &'static str {
        match &self.projection {
            None => {
                "the operator is softmax attention, out = softmax(mask(q kᵀ / √head_dim)) v in \
                 float64, and its gradients (docs/PROTOCOL.md, \"The problem\"); for another formula, \
                 declare an operator (docs/OPERATORS.md)"
            }
            Some(_) => "the operator is a projection (docs/PROTOCOL.md, \"Projections\")",
        }
    }

    /// The same problem in another direction.
    pub fn with(&self, direction: Direction) -> Attention {
        Attention {
            direction,
            ..self.clone()
        }
    }

    /// True if both alignments of a mask are equivalent.
    pub fn is_square(&self) -> bool {
        match &self.varlen {
            Some(lengths) => lengths.q == lengths.k,
            None => self.seq_q == self.seq_k,
        }
    }

    /// `(seq_q, seq_k)` of each sequence.
    pub fn sequences(&self) -> Vec<(usize, usize)> {
        match &self.varlen {
            Some(lengths) => lengths
                .q
                .iter()
                .zip(&lengths.k)
                .map(|(&q, &k)| (q as usize, k as usize))
                .collect(),
            None => vec![(self.seq_q as usize, self.seq_k as usize); self.batch as usize],
        }
    }

    /// The number of queries over all sequences.
    pub fn total_q(&self) -> u64 {
        match &self.varlen {
            Some(lengths) => lengths.total_q(),
            None => u64::from(self.batch) * u64::from(self.seq_q),
        }
    }

    /// The number of keys over all sequences.
    pub fn total_k(&self) -> u64 {
        match &self.varlen {
            Some(lengths) => lengths.total_k(),
            None => u64::from(self.batch) * u64::from(self.seq_k),
        }
    }
}

/// Values of some axes by name, including [`SEQ`], as suites write them.
pub type Point<'a> = BTreeMap<&'a str, String>;

/// The axes in the order of their tokens.
static IN_ORDER: LazyLock<Vec<&'static Axis>> = LazyLock::new(|| {
    let mut axes: Vec<_> = AXES.iter().collect();
    axes.sort_by_key(|axis| axis.place());
    axes
});

/// The axis that makes a batch ragged, if the point has it.
fn lengths(point: &Point<'_>) -> Option<&'static Axis> {
    let of_lengths = |axis: &&Axis| matches!(axis.form, Form::Lengths(_));
    let mut lengths = AXES.iter().filter(of_lengths);
    lengths.find(|axis| point.contains_key(axis.name))
}

impl Attention {
    /// The problem at a point of a sweep.
    ///
    /// # Errors
    /// An axis without a default is missing, or the values contradict each other.
    pub fn at(point: &Point<'_>) -> Result<Attention, ParseError> {
        let given = |name: &str| point.contains_key(name);
        if given(SEQ) && SEQ_AXES.iter().any(|axis| given(axis)) {
            refuse!("`seq` sets both `seq_q` and `seq_k`; give either it or those two");
        }
        let lengths = lengths(point);
        let fixed = |name: &str| name == SEQ || axis(name).is_some_and(|axis| axis.is_of_lengths());
        if let Some(lengths) = lengths
            && let Some(axis) = settable().find(|name| fixed(name) && given(name))
        {
            let lengths = lengths.name;
            refuse!("`{lengths}` fixes `{axis}`; leave `{axis}` out");
        }
        let mut problem = Attention::new(0, 0);
        for axis in AXES {
            let alias = SEQ_AXES.contains(&axis.name).then_some(SEQ);
            let text = point
                .get(axis.name)
                .or_else(|| point.get(alias?))
                .cloned()
                .or_else(|| axis.unset_value(&problem));
            match (text, axis.unset) {
                _ if axis.is_of_lengths() && lengths.is_some() => {}
                (Some(_), Unset::With(of)) if !given(of) => {
                    refuse!(
                        "`{axis}` belongs to a projection; add `projection = \"all-gather\"` or \
                         `\"reduce-scatter\"`, or leave `{axis}` out",
                        axis = axis.name
                    );
                }
                (None, Unset::With(of)) if given(of) => {
                    refuse!("a projection needs `{}`; give it in the sweep", axis.name);
                }
                (None, Unset::Refused(name)) => {
                    refuse!("`{name}` has no default; give it in the sweep");
                }
                (Some(text), _) => axis.set(&mut problem, &text)?,
                (None, _) => {}
            }
        }
        problem.validated()
    }

    /// Checks that the axes fit together, and puts the mask into canonical form.
    ///
    /// # Errors
    /// An axis is zero, `kv_heads` does not divide `heads`, ragged lengths contradict `batch`,
    /// `seq_q`, `seq_k` or `layout`, or an axis is set that a projection does not have.
    pub fn validated(mut self) -> Result<Attention, ParseError> {
        for axis in AXES {
            if let Form::Number(_) | Form::Width(_) = axis.form
                && let Some(text) = axis.value(&self)
                && text
                    .parse()
                    .is_ok_and(|n: u32| !(1..=MAX_AXIS).contains(&n))
            {
                refuse!("{} is {text}; it must be from 1 to {MAX_AXIS}", axis.name);
            }
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            refuse!(
                "kv_heads = {} does not divide heads = {}",
                self.kv_heads,
                self.heads
            );
        }
        if let Some(lengths) = &self.varlen {
            let longest = |lengths: &[u32]| lengths.iter().copied().max().unwrap_or(0);
            if lengths.q.len() != self.batch as usize
                || longest(&lengths.q) != self.seq_q
                || longest(&lengths.k) != self.seq_k
            {
                refuse!(
                    "varlen {lengths} fixes batch = {}, seq_q = {} and seq_k = {}; leave those out",
                    lengths.q.len(),
                    longest(&lengths.q),
                    longest(&lengths.k)
                );
            }
            if self.layout != Layout::Bshd {
                refuse!("a varlen batch is packed [total, heads, head_dim]: layout must be `bshd`");
            }
        }
        self.mask = self.mask.canonical(self.is_square());
        if let Some(projection) = &self.projection {
            projection.validate(&self)?;
        }
        Ok(self)
    }
}

impl fmt::Display for Attention {
    /// The canonical form used in case ids: `h8,s2048,d64,bf16,causal,bwd`.
    ///
    /// Sequence length and head dimension always appear. Every other axis appears only if it
    /// differs from its default (`b1`, `h1`, `kv` = `h`, `sk` = `s`, `dv` = `d`, `f32`, `full`,
    /// `bshd`, `fwd`, no projection).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tokens = IN_ORDER.iter().filter_map(|axis| axis.token(self));
        f.write_str(&tokens.joined(","))
    }
}

/// A parsed token of an id.
struct IdToken {
    /// The key of the token, which an id may have once.
    about: &'static str,
    /// Axes with values, as suites write them.
    values: Vec<(&'static str, String)>,
}

/// Parses a token of an id. A token of no other axis is a mask. `None` if the letters of an axis
/// are followed by something that is not a number.
fn read_token(token: &str) -> Option<IdToken> {
    let digits = token.find(|c: char| c.is_ascii_digit());
    let (letters, rest) = token.split_at(digits.unwrap_or(token.len()));
    let number = || rest.parse::<u32>().ok().map(|number| number.to_string());
    let mut mask = None;
    for axis in AXES {
        let values = match axis.form {
            Form::Number(own) if own == letters => vec![(axis.name, number()?)],
            Form::Lengths(own) if own == letters => vec![(axis.name, rest.to_owned())],
            Form::Choice(words) => match words().iter().find(|word| word.1 == token) {
                Some((name, _)) => vec![(axis.name, (*name).to_owned())],
                None => continue,
            },
            Form::Width(of) => {
                let words = super::axes::axis(of)?.words();
                match words.iter().find(|word| word.1 == letters) {
                    Some((name, _)) => vec![(of, (*name).to_owned()), (axis.name, number()?)],
                    None => continue,
                }
            }
            Form::Mask => {
                mask = Some(axis);
                continue;
            }
            _ => continue,
        };
        return Some(IdToken {
            about: axis.says(),
            values,
        });
    }
    mask.map(|axis| IdToken {
        about: axis.says(),
        values: vec![(axis.name, token.to_owned())],
    })
}

impl FromStr for Attention {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Attention, ParseError> {
        let mut point = Point::new();
        let mut about = BTreeSet::new();
        for token in text.split(',') {
            let token_read = read_token(token)
                .ok_or_else(|| ParseError::new(format!("`{token}` in `{text}` is not an axis")))?;
            if !about.insert(token_read.about) {
                refuse!(
                    "`{token}` in `{text}` says a second time what {} is",
                    token_read.about
                );
            }
            point.extend(token_read.values);
        }
        Attention::at(&point)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn an_id_says_a_thing_once() {
        for (id, says) in [
            ("s8,s9,d8", "says a second time what seq_q is"),
            ("s8,v9,d8", "says a second time what seq_q is"),
            (
                "s8,d8,ag8,rs8,r2",
                "says a second time what the projection is",
            ),
            ("s8,d8,bf16,f16", "says a second time what dtype is"),
            ("s8,d8,causal,x9", "says a second time what mask is"),
            ("b2,v8+8,d8", "`varlen` fixes `batch`"),
            ("sx,s8,d8", "`sx` is not a mask"),
            ("s,d8", "`s` in `s,d8` is not an axis"),
            ("d8", "`seq` has no default"),
            ("s8", "`head_dim` has no default"),
        ] {
            let error = id.parse::<Attention>().unwrap_err().to_string();
            assert!(error.contains(says), "{id}: {error}");
        }
    }

    /// A problem in which no axis is at its default, except those of a projection.
    fn example() -> Attention {
        "b2,h4,kv2,s16,sk24,d8,dv4,bf16,window-3-1-br,bhsd,bwd"
            .parse()
            .unwrap()
    }

    /// The table for other languages, and a problem on the wire.
    fn vector() -> Value {
        let row = |axis: &Axis| {
            let words: Vec<_> = axis.words().iter().map(|(name, _)| *name).collect();
            let (form, letters) = match axis.form {
                Form::Number(letters) => ("number", Some(letters)),
                Form::Lengths(letters) => ("lengths", Some(letters)),
                Form::Choice(_) | Form::Layer(_) => ("choice", None),
                Form::Mask => ("mask", None),
                Form::Width(_) => ("number", None),
            };
            let unset = match axis.unset {
                Unset::Is(text) => json!({ "is": text }),
                Unset::As(other) => json!({ "as": other }),
                Unset::Refused(_) => json!("refused"),
                Unset::Absent => json!("absent"),
                Unset::With(of) => json!({ "with": of }),
            };
            json!({
                "name": axis.name, "form": form, "letters": letters, "words": words,
                "unset": unset, "example": axis.value(&example()),
            })
        };
        let axes: Vec<Value> = AXES.iter().map(row).collect();
        json!({ "axes": axes, "id": example().to_string(), "wire": example() })
    }

    /// Set `REGATTA_WRITE_VECTORS=1` to write the file again.
    #[test]
    fn other_languages_see_this_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors/axes.json");
        let text = serde_json::to_string_pretty(&vector()).unwrap() + "\n";
        if std::env::var_os("REGATTA_WRITE_VECTORS").is_some() {
            std::fs::write(path, &text).unwrap();
        }
        let there = std::fs::read_to_string(path).unwrap();
        assert!(
            there == text,
            "{path} is of another table; rewrite it: REGATTA_WRITE_VECTORS=1 cargo test -p \
             regatta-worker"
        );
        let axes = ["seq_q", "mask"].map(|name| axis(name).unwrap().value(&example()));
        assert_eq!(
            axes,
            [Some("16".to_owned()), Some("window-3-1-br".to_owned())]
        );
    }
}
