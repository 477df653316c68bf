//! Texts that a document says once and names by their place.

use std::collections::HashMap;

/// Each text once, in the order in which they came.
#[derive(Default)]
pub(super) struct Strings {
    places: HashMap<String, usize>,
    texts: Vec<String>,
}

impl Strings {
    /// The place of a text.
    pub(super) fn place(&mut self, text: impl Into<String>) -> usize {
        let text = text.into();
        if let Some(place) = self.places.get(&text) {
            return *place;
        }
        let place = self.texts.len();
        self.texts.push(text.clone());
        self.places.insert(text, place);
        place
    }

    /// All of them.
    pub(super) fn into_texts(self) -> Vec<String> {
        self.texts
    }
}
