//! What many records have in common, kept once.
//!
//! A hundred thousand cases launch a few hundred kernels in a few thousand ways, and the two
//! runs of a comparison launch the same.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A value that others may hold too. Who changes it has one of their own from then on.
#[derive(Debug, Default)]
pub struct Shared<T>(Arc<T>);

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Shared<T> {
        Shared(Arc::clone(&self.0))
    }
}

impl<T> From<T> for Shared<T> {
    fn from(value: T) -> Shared<T> {
        Shared(Arc::new(value))
    }
}

impl<T: PartialEq> PartialEq for Shared<T> {
    fn eq(&self, other: &Shared<T>) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }
}

impl<T: Serialize> Serialize for Shared<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Shared<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Shared<T>, D::Error> {
        T::deserialize(deserializer).map(Shared::from)
    }
}

/// Written as the value is.
#[cfg(feature = "schemas")]
impl<T: schemars::JsonSchema> schemars::JsonSchema for Shared<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        T::json_schema(generator)
    }
}

/// Values by the JSON that they were read from. The text is not kept: 128 bits of two hashes
/// whose keys nobody knows stand for it.
#[derive(Debug)]
pub struct Pool<T> {
    keys: [RandomState; 2],
    known: HashMap<[u64; 2], Shared<T>>,
}

impl<T> Default for Pool<T> {
    fn default() -> Pool<T> {
        Pool {
            keys: [RandomState::new(), RandomState::new()],
            known: HashMap::new(),
        }
    }
}

impl<T: DeserializeOwned> Pool<T> {
    /// The value of this JSON; `None` where there is none that it stands for.
    pub fn value(&mut self, json: &str) -> Option<Shared<T>> {
        let key = [&self.keys[0], &self.keys[1]].map(|key| key.hash_one(json));
        if let Some(known) = self.known.get(&key) {
            return Some(known.clone());
        }
        let value: Shared<T> = serde_json::from_str(json).ok()?;
        self.known.insert(key, value.clone());
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_text_is_one_value_until_somebody_changes_it() {
        let mut pool: Pool<Vec<u32>> = Pool::default();
        let first = pool.value("[1,2]").unwrap();
        let mut second = pool.value("[1,2]").unwrap();
        assert!(Arc::ptr_eq(&first.0, &second.0));
        assert!(pool.value("[1,").is_none());
        second.push(3);
        assert_eq!((&*first, &*second), (&vec![1, 2], &vec![1, 2, 3]));
        assert_eq!(serde_json::to_string(&second).unwrap(), "[1,2,3]");
    }
}
