//! A figure of a case, with its name.

use serde::Serialize;

/// A named figure.
#[derive(Clone, Serialize)]
pub struct Fact {
    pub name: String,
    pub value: String,
    /// True when head and base do not agree on it.
    pub differs: bool,
}

/// One in which head and base agree.
pub fn fact(name: &str, value: String) -> Fact {
    Fact {
        name: name.to_owned(),
        value,
        differs: false,
    }
}
