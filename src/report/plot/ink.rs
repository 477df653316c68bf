//! What marks mean, from which the page makes colours.

/// What a mark means; the page decides what colour that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    /// Labels.
    Text,
    /// Labels of less weight.
    Muted,
    /// Grid lines and axes.
    Grid,
    /// The band of changes too small to count.
    Band,
    /// The base.
    Base,
    /// The head.
    Head,
    /// Slower than it should be.
    Slow,
    /// Faster.
    Fast,
    /// What the implementation chose by itself.
    Auto,
}

impl Ink {
    /// The name in the style sheet.
    pub fn class(self) -> &'static str {
        match self {
            Ink::Text => "text",
            Ink::Muted => "muted",
            Ink::Grid => "grid",
            Ink::Band => "band",
            Ink::Base => "base",
            Ink::Head => "head",
            Ink::Slow => "slow",
            Ink::Fast => "fast",
            Ink::Auto => "auto",
        }
    }
}
