//! Parts of records that are equal in many cases.

use std::any::Any;
#[cfg(feature = "schemas")]
use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use serde::de::{DeserializeOwned, Deserializer, Error};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use rustc_hash::FxHashMap;

/// A value that is stored once for all cases that have it, and is copied on change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Shared<T>(Arc<T>);

impl<T> From<T> for Shared<T> {
    fn from(value: T) -> Shared<T> {
        Shared(Arc::new(value))
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

impl<'de, T: DeserializeOwned + Send + Sync + 'static> Deserialize<'de> for Shared<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Shared<T>, D::Error> {
        const MAX_KNOWN: usize = 1 << 14;
        thread_local! {
            /// Values by their text: a lookup takes a quarter of the time of parsing.
            static KNOWN: RefCell<FxHashMap<Box<str>, Arc<dyn Any + Send + Sync>>> =
                RefCell::default();
        }
        let text = <&RawValue>::deserialize(deserializer)?.get();
        let known = KNOWN.with_borrow(|known| known.get(text).cloned());
        if let Some(Ok(known)) = known.map(Arc::downcast) {
            return Ok(Shared(known));
        }
        let value: Arc<T> = Arc::new(serde_json::from_str(text).map_err(D::Error::custom)?);
        KNOWN.with_borrow_mut(|known| {
            if known.len() >= MAX_KNOWN {
                known.clear();
            }
            known.insert(text.into(), value.clone());
        });
        Ok(Shared(value))
    }
}

#[cfg(feature = "schemas")]
impl<T: schemars::JsonSchema> schemars::JsonSchema for Shared<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        T::json_schema(generator)
    }
}
