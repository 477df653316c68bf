//! What marks mean, from which the page makes colours.

/// Kinds that have a colour of their own.
pub(crate) const COLOURS: usize = 7;

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
    /// One of several kinds that are told apart by colour, from 0; all beyond the last
    /// colour look alike.
    Kind(u8),
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
            Ink::Kind(number) => {
                const KINDS: [&str; COLOURS] = ["k0", "k1", "k2", "k3", "k4", "k5", "k6"];
                KINDS.get(usize::from(number)).unwrap_or(&"kx")
            }
        }
    }
}
