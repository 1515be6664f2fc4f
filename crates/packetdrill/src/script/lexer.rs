//! From characters to tokens.

use super::ParseError;

/// A token of the language.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Token {
    /// `12`, `-1`, `0x1f`.
    Integer(i64),
    /// `0.1`, as it was written.
    Float(String),
    /// A name.
    Word(String),
    /// Between double quotes, escapes resolved.
    Text(String),
    /// Between backquotes.
    Command(String),
    /// Between `%{` and `}%`.
    Code(String),
    /// `--name`, without the dashes.
    Option(String),
    /// `...`
    Ellipsis,
    /// Any other character.
    Mark(char),
}

/// A token, and the line on which it begins.
pub(super) type Placed = (Token, u32);

/// All tokens of a script.
pub(super) fn words(text: &str) -> Result<Vec<Placed>, ParseError> {
    let mut lexer = Lexer { rest: text, line: 1 };
    let mut out = Vec::new();
    loop {
        lexer.skip_space()?;
        let line = lexer.line;
        match lexer.next()? {
            Some(token) => out.push((token, line)),
            None => return Ok(out),
        }
    }
}

struct Lexer<'a> {
    rest: &'a str,
    line: u32,
}

impl<'a> Lexer<'a> {
    fn error<T>(&self, message: &str) -> Result<T, ParseError> {
        Err(ParseError { line: self.line, message: message.to_owned() })
    }

    /// Takes `len` bytes from the rest.
    fn take(&mut self, len: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(len);
        self.rest = rest;
        self.line += taken.matches('\n').count() as u32;
        taken
    }

    /// Takes all before `end`, and `end` itself, which must come.
    fn take_to(&mut self, end: &str, what: &str) -> Result<&'a str, ParseError> {
        match self.rest.find(end) {
            Some(at) => {
                let taken = self.take(at);
                self.take(end.len());
                Ok(taken)
            }
            None => self.error(&format!("{what} has no end")),
        }
    }

    fn skip_space(&mut self) -> Result<(), ParseError> {
        loop {
            let space = self.rest.len() - self.rest.trim_start().len();
            self.take(space);
            if self.rest.starts_with("//") {
                self.take(self.rest.find('\n').unwrap_or(self.rest.len()));
            } else if self.rest.starts_with("/*") {
                self.take(2);
                self.take_to("*/", "a comment")?;
            } else {
                return Ok(());
            }
        }
    }

    fn next(&mut self) -> Result<Option<Token>, ParseError> {
        let Some(first) = self.rest.chars().next() else { return Ok(None) };
        let token = match first {
            '`' => {
                self.take(1);
                Token::Command(self.take_to("`", "a command")?.to_owned())
            }
            '"' => {
                self.take(1);
                self.text()?
            }
            '%' if self.rest.starts_with("%{") => {
                self.take(2);
                Token::Code(self.take_to("}%", "a piece of code")?.to_owned())
            }
            '-' if self.rest.starts_with("--") => {
                self.take(2);
                let len = word_len(self.rest);
                Token::Option(self.take(len).to_owned())
            }
            '.' if self.rest.starts_with("...") => {
                self.take(3);
                Token::Ellipsis
            }
            _ => self.number_word_or_mark(first)?,
        };
        Ok(Some(token))
    }

    fn text(&mut self) -> Result<Token, ParseError> {
        let mut out = String::new();
        let mut chars = self.rest.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    self.take(at + 1);
                    return Ok(Token::Text(out));
                }
                '\\' => match chars.next() {
                    Some((_, 'n')) => out.push('\n'),
                    Some((_, 'r')) => out.push('\r'),
                    Some((_, 't')) => out.push('\t'),
                    Some((_, '0')) => out.push('\0'),
                    Some((_, other)) => out.push(other),
                    None => break,
                },
                other => out.push(other),
            }
        }
        self.error("a string has no end")
    }

    fn number_word_or_mark(&mut self, first: char) -> Result<Token, ParseError> {
        let float = float_len(self.rest);
        let integer = integer_len(self.rest);
        let word = word_len(self.rest);
        if float > 0 && float >= word {
            return Ok(Token::Float(self.take(float).to_owned()));
        }
        if integer > 0 && integer >= word {
            let text = self.take(integer);
            return match text.parse() {
                Ok(value) => Ok(Token::Integer(value)),
                Err(_) => self.error("a number is too large"),
            };
        }
        if let Some(digits) = self.rest[..word].strip_prefix("0x")
            && let Ok(value) = i64::from_str_radix(digits, 16)
        {
            self.take(word);
            return Ok(Token::Integer(value));
        }
        if word > 0 {
            return Ok(Token::Word(self.take(word).to_owned()));
        }
        self.take(first.len_utf8());
        Ok(Token::Mark(first))
    }
}

fn span(text: &str, belongs: impl Fn(char) -> bool) -> usize {
    text.find(|c| !belongs(c)).unwrap_or(text.len())
}

fn word_len(text: &str) -> usize {
    span(text, |c| c.is_ascii_alphanumeric() || c == '_')
}

/// Length of `[-]?[0-9]+`; 0 if there is none.
fn integer_len(text: &str) -> usize {
    let sign = usize::from(text.starts_with('-'));
    match span(&text[sign..], |c| c.is_ascii_digit()) {
        0 => 0,
        digits => sign + digits,
    }
}

/// Length of `[-]?[0-9]*[.][0-9]+`; 0 if there is none.
fn float_len(text: &str) -> usize {
    let sign = usize::from(text.starts_with('-'));
    let whole = sign + span(&text[sign..], |c| c.is_ascii_digit());
    if !text[whole..].starts_with('.') {
        return 0;
    }
    match span(&text[whole + 1..], |c| c.is_ascii_digit()) {
        0 => 0,
        digits => whole + 1 + digits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<Token> {
        words(text).unwrap().into_iter().map(|(token, _)| token).collect()
    }

    #[test]
    fn an_interval_of_a_call_is_a_number_dots_and_a_number() {
        let float = |text: &str| Token::Float(text.to_owned());
        assert_eq!(tokens("0.1...0.2"), [float("0.1"), Token::Ellipsis, float("0.2")]);
        assert_eq!(
            tokens("+0...0.01"),
            [Token::Mark('+'), Token::Integer(0), Token::Ellipsis, float("0.01")]
        );
    }

    #[test]
    fn flags_and_sequence_numbers_come_apart() {
        let word = |text: &str| Token::Word(text.to_owned());
        assert_eq!(
            tokens("P. 1:3(2)"),
            [
                word("P"),
                Token::Mark('.'),
                Token::Integer(1),
                Token::Mark(':'),
                Token::Integer(3),
                Token::Mark('('),
                Token::Integer(2),
                Token::Mark(')'),
            ]
        );
        assert_eq!(tokens("a1b2 0x1f -1"), [word("a1b2"), Token::Integer(31), Token::Integer(-1)]);
    }

    #[test]
    fn lines_are_counted_through_comments_and_code() {
        let placed = words("// one\n/* two\nthree */ %{\n x }% \n last").unwrap();
        assert_eq!(placed[0].1, 3);
        assert_eq!(placed[1], (Token::Word("last".to_owned()), 5));
    }

    #[test]
    fn a_token_without_an_end_is_an_error_with_its_line() {
        for text in ["\n`x", "\n\"x", "\n%{ x", "\n/* x"] {
            assert_eq!(words(text).unwrap_err().line, 2, "{text}");
        }
    }
}
