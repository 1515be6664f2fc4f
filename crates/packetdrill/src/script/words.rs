//! The tokens of a script, one after the other.

use super::ParseError;
use super::lexer::{Placed, Token};

/// The tokens of a script, and the position up to which they were parsed.
pub(super) struct Words<'a> {
    placed: &'a [Placed],
    at: usize,
}

impl<'a> Words<'a> {
    pub(super) fn new(placed: &'a [Placed]) -> Self {
        Words { placed, at: 0 }
    }

    /// Whether the next token is on the line of the one before it.
    pub(super) fn is_same_line(&self) -> bool {
        let line = |at: usize| self.placed.get(at).map(|(_, line)| *line);
        self.at.checked_sub(1).is_some_and(|before| line(before) == line(self.at))
    }

    pub(super) fn peek(&self) -> Option<&'a Token> {
        self.placed.get(self.at).map(|(token, _)| token)
    }

    pub(super) fn peek_second(&self) -> Option<&'a Token> {
        self.placed.get(self.at + 1).map(|(token, _)| token)
    }

    pub(super) fn next(&mut self) -> Option<&'a Token> {
        let token = self.peek()?;
        self.at += 1;
        Some(token)
    }

    /// The line of the next token, or of the last.
    pub(super) fn line(&self) -> u32 {
        let place = self.placed.get(self.at).or(self.placed.last());
        place.map_or(1, |(_, line)| *line)
    }

    pub(super) fn error<T>(&self, message: &str) -> Result<T, ParseError> {
        let line = self.placed.get(self.at.saturating_sub(1)).map_or(1, |(_, line)| *line);
        Err(ParseError { line, message: message.to_owned() })
    }

    pub(super) fn accept(&mut self, mark: char) -> bool {
        let there = self.peek() == Some(&Token::Mark(mark));
        self.at += usize::from(there);
        there
    }

    pub(super) fn expect(&mut self, mark: char) -> Result<(), ParseError> {
        if self.accept(mark) {
            return Ok(());
        }
        let found = self.peek().map_or("the end".to_owned(), |token| format!("{token:?}"));
        self.at += 1;
        self.error(&format!("`{mark}` is missing before {found}"))
    }

    /// Takes a word, if it is exactly this one.
    pub(super) fn accept_word(&mut self, word: &str) -> bool {
        let there = matches!(self.peek(), Some(Token::Word(found)) if found == word);
        self.at += usize::from(there);
        there
    }

    pub(super) fn word(&mut self) -> Result<String, ParseError> {
        match self.next() {
            Some(Token::Word(word)) => Ok(word.clone()),
            other => self.error(&format!("a name is needed, not {other:?}")),
        }
    }

    pub(super) fn integer(&mut self) -> Result<i64, ParseError> {
        match self.next() {
            Some(Token::Integer(value)) => Ok(*value),
            other => self.error(&format!("a number is needed, not {other:?}")),
        }
    }

    /// Takes a number that fits its type.
    pub(super) fn fitting<T: TryFrom<i64>>(&mut self, what: &str) -> Result<T, ParseError> {
        let value = self.integer()?;
        T::try_from(value).or_else(|_| self.error(&format!("{what} is out of range: {value}")))
    }
}
