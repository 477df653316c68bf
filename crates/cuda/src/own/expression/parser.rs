//! How a formula is read.

use std::iter::Peekable;
use std::str::Chars;

use super::node::{Node, Operator, Relation};

/// Deepest nesting of parentheses and functions.
const DEEPEST: usize = 32;

/// Reads a text from its beginning, character by character.
pub(super) struct Parser<'a> {
    rest: Peekable<Chars<'a>>,
    known: &'a dyn Fn(&str) -> bool,
    depth: usize,
}

impl<'a> Parser<'a> {
    /// A reader of formulas whose names are all `known`.
    pub(super) fn new(text: &'a str, known: &'a dyn Fn(&str) -> bool) -> Parser<'a> {
        Parser {
            rest: text.chars().peekable(),
            known,
            depth: 0,
        }
    }

    /// A formula, to the end of the text.
    pub(super) fn whole(&mut self) -> Result<Node, String> {
        let node = self.sum()?;
        self.end()?;
        Ok(node)
    }

    /// Two formulas and what is between them, to the end of the text.
    pub(super) fn condition(&mut self) -> Result<(Node, Relation, Node), String> {
        let left = self.sum()?;
        let first = self.next_symbol();
        let orequal = first.is_some() && self.rest.next_if_eq(&'=').is_some();
        let relation = match (first, orequal) {
            (Some('='), true) => Relation::Equal,
            (Some('!'), true) => Relation::Unequal,
            (Some('<'), true) => Relation::LessOrEqual,
            (Some('<'), false) => Relation::Less,
            (Some('>'), true) => Relation::GreaterOrEqual,
            (Some('>'), false) => Relation::Greater,
            _ => return Err("write a condition, such as `head_dim == 64`".to_owned()),
        };
        let right = self.sum()?;
        self.end()?;
        Ok((left, relation, right))
    }

    fn end(&mut self) -> Result<(), String> {
        match self.peek() {
            None => Ok(()),
            Some(more) => Err(format!("`{more}` is not understood here")),
        }
    }

    /// The next character that is no space.
    fn peek(&mut self) -> Option<char> {
        while self.rest.next_if(|c| c.is_whitespace()).is_some() {}
        self.rest.peek().copied()
    }

    fn next_symbol(&mut self) -> Option<char> {
        self.peek()?;
        self.rest.next()
    }

    fn takes(&mut self, symbol: char) -> bool {
        self.peek() == Some(symbol) && self.rest.next().is_some()
    }

    fn sum(&mut self) -> Result<Node, String> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(format!("this is nested more than {DEEPEST} deep"));
        }
        let mut left = self.product()?;
        loop {
            let operator = match self.peek() {
                Some('+') => Operator::Add,
                Some('-') => Operator::Subtract,
                _ => break,
            };
            self.rest.next();
            left = Node::Of(operator, Box::new((left, self.product()?)));
        }
        self.depth -= 1;
        Ok(left)
    }

    fn product(&mut self) -> Result<Node, String> {
        let mut left = self.factor()?;
        loop {
            let operator = match self.peek() {
                Some('*') => Operator::Multiply,
                Some('/') => Operator::Divide,
                Some('%') => Operator::Remainder,
                _ => return Ok(left),
            };
            self.rest.next();
            left = Node::Of(operator, Box::new((left, self.factor()?)));
        }
    }

    fn factor(&mut self) -> Result<Node, String> {
        match self.peek() {
            Some('-') => {
                self.rest.next();
                // A second sign would be a slip; `factor` alone would nest without bound.
                Ok(Node::Negative(Box::new(self.plain()?)))
            }
            _ => self.plain(),
        }
    }

    fn plain(&mut self) -> Result<Node, String> {
        match self.peek() {
            Some('(') => {
                self.rest.next();
                let inner = self.sum()?;
                self.closed()?;
                Ok(inner)
            }
            Some(c) if c.is_ascii_digit() => {
                let digits = self.word(|c| c.is_ascii_digit() || c == '_');
                let number = digits.replace('_', "").parse();
                let number = number.map_err(|_| format!("{digits} is too large"))?;
                Ok(Node::Number(number))
            }
            Some(c) if c.is_ascii_alphabetic() => {
                let name = self.word(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
                self.named(name)
            }
            Some(other) => Err(format!("`{other}` is not understood here")),
            None => Err("something is missing at the end".to_owned()),
        }
    }

    fn named(&mut self, name: String) -> Result<Node, String> {
        let function = match name.as_str() {
            "min" => Some(Operator::Least),
            "max" => Some(Operator::Most),
            "ceil_div" => Some(Operator::CeilDivide),
            _ => None,
        };
        if let Some(function) = function.filter(|_| self.takes('(')) {
            let first = self.sum()?;
            if !self.takes(',') {
                return Err(format!("`{name}` takes two figures, with a comma between"));
            }
            let second = self.sum()?;
            self.closed()?;
            return Ok(Node::Of(function, Box::new((first, second))));
        }
        match (self.known)(&name) {
            true => Ok(Node::Name(name)),
            false => Err(format!("there is no `{name}`")),
        }
    }

    fn closed(&mut self) -> Result<(), String> {
        match self.takes(')') {
            true => Ok(()),
            false => Err("a `)` is missing".to_owned()),
        }
    }

    fn word(&mut self, part: impl Fn(char) -> bool) -> String {
        let mut word = String::new();
        while let Some(c) = self.rest.next_if(|c| part(*c)) {
            word.push(c);
        }
        word
    }
}
