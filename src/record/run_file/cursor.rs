//! A place in a line of JSON as regatta writes it: no spaces, no escapes, no sign before a
//! number. Whatever is written otherwise is `None` here, and left to the JSON library.

/// A place in a text.
#[derive(Clone)]
pub(super) struct Cursor<'t> {
    text: &'t str,
    at: usize,
}

/// Powers of ten that a float holds exactly.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// Digits that any `u64` has room for.
const SURE: usize = 19;

impl<'t> Cursor<'t> {
    pub(super) fn new(text: &'t str) -> Cursor<'t> {
        Cursor { text, at: 0 }
    }

    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// True at the end of the text.
    pub(super) fn ends(&self) -> bool {
        self.at == self.text.len()
    }

    /// Passes this text.
    pub(super) fn pass(&mut self, expected: &str) -> Option<()> {
        let found = self.text.as_bytes()[self.at..].starts_with(expected.as_bytes());
        found.then(|| self.at += expected.len())
    }

    /// True where the next is this byte, which is passed.
    pub(super) fn next_is(&mut self, byte: u8) -> bool {
        let is = self.byte() == Some(byte);
        self.at += usize::from(is);
        is
    }

    /// A string without an escape.
    pub(super) fn string(&mut self) -> Option<&'t str> {
        self.pass("\"")?;
        let from = self.at;
        let rest = &self.text.as_bytes()[from..];
        let length = rest
            .iter()
            .position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20))?;
        self.at += length;
        self.pass("\"")?;
        self.text.get(from..from + length)
    }

    /// The key of a member, with its colon.
    pub(super) fn key(&mut self) -> Option<&'t str> {
        let key = self.string()?;
        self.pass(":")?;
        Some(key)
    }

    /// The members of an object, each by its key.
    pub(super) fn members(
        &mut self,
        mut member: impl FnMut(&mut Cursor<'t>, &'t str) -> Option<()>,
    ) -> Option<()> {
        self.pass("{")?;
        if self.next_is(b'}') {
            return Some(());
        }
        loop {
            let key = self.key()?;
            member(self, key)?;
            if self.next_is(b'}') {
                return Some(());
            }
            self.pass(",")?;
        }
    }

    /// A list of numbers, added to what is there.
    pub(super) fn numbers(&mut self, mut take: impl FnMut(f64)) -> Option<()> {
        self.pass("[")?;
        if self.next_is(b']') {
            return Some(());
        }
        loop {
            take(self.number()?);
            if self.next_is(b']') {
                return Some(());
            }
            self.pass(",")?;
        }
    }

    /// `true` or `false`.
    pub(super) fn boolean(&mut self) -> Option<bool> {
        match self.byte()? {
            b't' => self.pass("true").map(|()| true),
            _ => self.pass("false").map(|()| false),
        }
    }

    /// A whole number.
    pub(super) fn whole(&mut self) -> Option<u64> {
        let from = self.at;
        let mut digits = 0;
        let mut value = 0u64;
        self.digits(&mut value, &mut digits)?;
        let zero_first = digits > 1 && self.text.as_bytes()[from] == b'0';
        let goes_on = matches!(self.byte(), Some(b'.' | b'e' | b'E'));
        (digits <= SURE && !zero_first && !goes_on).then_some(value)
    }

    /// Passes digits, which are added to a value and counted; `None` where there is none. Of
    /// more than [`SURE`] the value is nonsense.
    fn digits(&mut self, value: &mut u64, digits: &mut usize) -> Option<()> {
        let from = self.at;
        let bytes = self.text.as_bytes();
        while let Some(digit) = bytes.get(self.at).map(|byte| byte.wrapping_sub(b'0'))
            && digit < 10
        {
            *value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
            self.at += 1;
        }
        let passed = self.at - from;
        *digits += passed;
        (passed > 0).then_some(())
    }

    /// A number that is not negative: the float next to it.
    pub(super) fn number(&mut self) -> Option<f64> {
        let from = self.at;
        let (mut mantissa, mut digits) = (0, 0);
        self.digits(&mut mantissa, &mut digits)?;
        if digits > 1 && self.text.as_bytes()[from] == b'0' {
            return None;
        }
        let before = digits;
        if self.next_is(b'.') {
            self.digits(&mut mantissa, &mut digits)?;
        }
        let behind = digits - before;
        if let Some(b'e' | b'E') = self.byte() {
            self.at += 1;
            if !self.next_is(b'-') {
                self.next_is(b'+');
            }
            self.digits(&mut 0, &mut 0)?;
        } else if digits <= SURE && mantissa < 1 << 53 {
            // Both are exact, so that the quotient is rounded once (Clinger, 1990).
            return Some(mantissa as f64 / POWERS[behind]);
        }
        let number: f64 = self.text[from..self.at].parse().ok()?;
        number.is_finite().then_some(number)
    }

    /// An object or a list, as it stands there.
    pub(super) fn whole_value(&mut self) -> Option<&'t str> {
        let from = self.at;
        let bytes = self.text.as_bytes();
        if !matches!(self.byte()?, b'{' | b'[') {
            return None;
        }
        let mut depth = 0usize;
        loop {
            match self.byte()? {
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth = depth.checked_sub(1)?,
                b'"' => {
                    self.at += 1;
                    loop {
                        match bytes.get(self.at)? {
                            b'"' => break,
                            b'\\' => self.at += 2,
                            _ => self.at += 1,
                        }
                    }
                }
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return self.text.get(from..self.at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn number(text: &str) -> Option<f64> {
        let mut cursor = Cursor::new(text);
        cursor.number().filter(|_| cursor.ends())
    }

    #[test]
    fn what_json_does_not_allow_is_no_number() {
        for text in [
            "", "01", "1.", ".5", "-1", "1e", "1e+", "00", "1_0", "NaN", "+1", "1.e5",
        ] {
            assert_eq!(number(text), None, "{text}");
        }
        for text in [
            "0",
            "0.0",
            "1e5",
            "1E-7",
            "9007199254740993",
            "12345678901234567890.5",
        ] {
            let read = serde_json::from_str::<f64>(text).unwrap();
            assert!(number(text).is_none_or(|number| number == read), "{text}");
        }
        assert_eq!(Cursor::new("18446744073709551616").whole(), None);
        assert_eq!(Cursor::new("1.5").whole(), None);
    }

    #[test]
    fn a_value_ends_where_its_brackets_do() {
        let text = r#"{"a":[1,{"b":"}]\""}],"c":{}},"next":1"#;
        let value = Cursor::new(text).whole_value().unwrap();
        assert_eq!(value, r#"{"a":[1,{"b":"}]\""}],"c":{}}"#);
        assert_eq!(Cursor::new("]").whole_value(), None);
        assert_eq!(Cursor::new("[\"").whole_value(), None);
    }

    proptest! {
        #[test]
        fn numbers_are_those_of_the_json_library(
            value in prop_oneof![any::<f64>(), 0.0..1e9f64, (0u64..1 << 60).prop_map(|n| n as f64)]
        ) {
            prop_assume!(value.is_finite());
            let text = serde_json::to_string(&value.abs()).unwrap();
            let read: f64 = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(number(&text), Some(read));
        }

        #[test]
        fn text_of_digits_reads_as_the_json_library_reads_it(
            text in "[0-9]{1,22}(\\.[0-9]{0,22})?([eE][+-]?[0-9]{1,3})?"
        ) {
            if let Some(number) = number(&text) {
                prop_assert_eq!(serde_json::from_str::<f64>(&text).unwrap(), number);
            }
        }
    }
}
