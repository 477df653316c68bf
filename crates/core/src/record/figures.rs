//! Figures by name: a small map, of which a run has one for each case.

use std::fmt;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// Figures by name, sorted, in one block of memory.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[cfg_attr(
    feature = "schemas",
    schemars(with = "std::collections::BTreeMap<String, f64>", inline)
)]
pub struct NamedFigures(Vec<(Box<str>, f64)>);

impl NamedFigures {
    /// Sets a figure, or raises an existing one of this name to the larger value.
    pub fn raise(&mut self, name: impl AsRef<str> + Into<Box<str>>, figure: f64) {
        let place = self
            .0
            .binary_search_by(|(known, _)| (**known).cmp(name.as_ref()));
        match place {
            Ok(place) => self.0[place].1 = self.0[place].1.max(figure),
            Err(place) => {
                self.0.reserve_exact(1);
                self.0.insert(place, (name.into(), figure));
            }
        }
    }

    /// The figures by name, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(name, figure)| (&**name, *figure))
    }

    /// True for an empty map.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for NamedFigures {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Visitor<'de> for NamedFigures {
    type Value = NamedFigures;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("figures by name")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<NamedFigures, A::Error> {
        while let Some((name, figure)) = map.next_entry::<Box<str>, f64>()? {
            self.raise(name, figure);
        }
        Ok(self)
    }
}

impl<'de> Deserialize<'de> for NamedFigures {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<NamedFigures, D::Error> {
        deserializer.deserialize_map(NamedFigures::default())
    }
}
