//! Arguments of system calls.

use super::lexer::Token;
use super::words::Words;
use super::{ParseError, symbols};

/// An argument, or a part of one.
#[derive(Clone, PartialEq, Debug)]
pub enum Expression {
    /// `...`: a value that the runner chooses, or that does not matter.
    Ellipsis,
    /// A number.
    Integer(i64),
    /// A name, such as a constant of the kernel's ABI.
    Word(String),
    /// Text.
    Text(String),
    /// `a|b`.
    Or(Box<Expression>, Box<Expression>),
    /// `[a, b]`.
    List(Vec<Expression>),
    /// `{name=value, ...}`: a structure.
    Structure(Vec<(String, Expression)>),
    /// `{a, b}`.
    Tuple(Vec<Expression>),
    /// `htons(80)`.
    Function(String, Vec<Expression>),
}

impl Expression {
    /// Its value as a number: constants are looked up, flags are joined, and a list of one number counts as
    /// the number. The error is a message.
    pub fn integer(&self) -> Result<i64, String> {
        match self {
            Expression::Integer(value) => Ok(*value),
            Expression::Word(name) => {
                symbols::value(name).ok_or_else(|| format!("`{name}` is not known"))
            }
            Expression::Or(left, right) => Ok(left.integer()? | right.integer()?),
            Expression::List(items) => match items.as_slice() {
                [one] => one.integer(),
                _ => Err("a number is needed, not a list".to_owned()),
            },
            Expression::Function(name, arguments) => match (name.as_str(), arguments.as_slice()) {
                ("htons", [value]) => Ok(i64::from((value.integer()? as u16).to_be())),
                _ => Err(format!("function `{name}` is not known")),
            },
            other => Err(format!("a number is needed, not {other:?}")),
        }
    }

    /// A member of a structure.
    pub fn member(&self, name: &str) -> Option<&Expression> {
        let Expression::Structure(members) = self else { return None };
        members.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// The items of a list.
    pub fn items(&self) -> Option<&[Expression]> {
        match self {
            Expression::List(items) => Some(items),
            _ => None,
        }
    }
}

/// Parses one expression.
pub(super) fn expression(words: &mut Words<'_>) -> Result<Expression, ParseError> {
    let mut left = operand(words)?;
    while words.accept('|') {
        left = Expression::Or(Box::new(left), Box::new(operand(words)?));
    }
    Ok(left)
}

/// Parses expressions with commas between them, up to and including `end`.
pub(super) fn list(words: &mut Words<'_>, end: char) -> Result<Vec<Expression>, ParseError> {
    let mut out = Vec::new();
    if words.accept(end) {
        return Ok(out);
    }
    loop {
        out.push(expression(words)?);
        if words.accept(end) {
            return Ok(out);
        }
        words.expect(',')?;
    }
}

fn operand(words: &mut Words<'_>) -> Result<Expression, ParseError> {
    let Some(token) = words.next() else { return words.error("an expression is missing") };
    Ok(match token.clone() {
        Token::Ellipsis => Expression::Ellipsis,
        Token::Integer(value) => Expression::Integer(value),
        Token::Text(mut text) => {
            while let Some(Token::Text(more)) = words.peek() {
                text.push_str(more);
                words.next();
            }
            // `"abc"...`: more may follow.
            if words.peek() == Some(&Token::Ellipsis) {
                words.next();
            }
            Expression::Text(text)
        }
        Token::Word(name) if words.accept('(') => Expression::Function(name, list(words, ')')?),
        Token::Word(name) => Expression::Word(name),
        Token::Mark('[') => Expression::List(list(words, ']')?),
        Token::Mark('{') => braces(words)?,
        other => return words.error(&format!("an expression cannot begin with {other:?}")),
    })
}

/// Parses the inside of `{` and `}`.
fn braces(words: &mut Words<'_>) -> Result<Expression, ParseError> {
    if !matches!(
        (words.peek(), words.peek_second()),
        (Some(Token::Word(_)), Some(Token::Mark('=' | '(')))
    ) {
        return Ok(Expression::Tuple(list(words, '}')?));
    }
    let mut members = Vec::new();
    loop {
        let name = words.word()?;
        // `msg_iov(3)=[..]`: the count is that of the list as well.
        if words.accept('(') {
            list(words, ')')?;
        }
        words.expect('=')?;
        members.push((name, expression(words)?));
        if words.accept('}') {
            return Ok(Expression::Structure(members));
        }
        words.expect(',')?;
    }
}
