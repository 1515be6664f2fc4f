//! Python between `%{` and `}%`: assertions over `struct tcp_info`, assignments and `print`.

use std::collections::HashMap;

use super::Runner;
use super::evaluate::{Value, evaluate};
use crate::script::symbols;
use crate::sockets::TcpInfo;

/// Variables that the code has assigned.
#[derive(Clone, Debug, Default)]
pub(super) struct Variables(HashMap<String, Value>);

impl Runner {
    /// Runs code on the connection as it is now.
    pub(super) fn code(&mut self, text: &str) -> Result<(), String> {
        let fd = self.peer.as_ref().and_then(|peer| peer.fd).ok_or("no socket to ask")?;
        let info = self.host.info(fd).map_err(|_| "the socket has no tcp_info")?;
        for statement in statements(text) {
            self.statement(&statement, &info).map_err(|why| format!("`{statement}`: {why}"))?;
        }
        Ok(())
    }

    fn statement(&mut self, statement: &str, info: &TcpInfo) -> Result<(), String> {
        if let Some(rest) = statement.strip_prefix("assert ") {
            let condition = split_top(rest.trim(), ',').remove(0);
            let value = self.value(&condition, info)?;
            return if value.is_true() { Ok(()) } else { Err(self.names(&condition, info)) };
        }
        if statement.starts_with("print") || statement.starts_with("import ") {
            return Ok(());
        }
        if let Some((name, operator, rest)) = assignment(statement) {
            let mut value = self.value(rest, info)?;
            if let Some(operator) = operator {
                value = self.value(&format!("{name} {operator} ({rest})"), info)?;
            }
            self.variables.0.insert(name.to_owned(), value);
            return Ok(());
        }
        Err("this Python is not supported".to_owned())
    }

    fn value(&self, text: &str, info: &TcpInfo) -> Result<Value, String> {
        evaluate(text, &|name| {
            self.variables
                .0
                .get(name)
                .copied()
                .or_else(|| member(info, name).map(Value::Integer))
                .or_else(|| symbols::value(name).map(Value::Integer))
        })
    }

    /// The values of all members of tcp_info that a condition names.
    fn names(&self, condition: &str, info: &TcpInfo) -> String {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let mut out = String::from("it does not hold");
        for name in condition.split(|c| !is_part(c)) {
            if let Some(value) = member(info, name) {
                out += &format!(", {name} is {value}");
            } else if let Some(value) = self.variables.0.get(name) {
                out += &format!(", {name} is {value:?}");
            }
        }
        out
    }
}

fn member(info: &TcpInfo, name: &str) -> Option<i64> {
    match name {
        "tcpi_snd_wscale" => Some((info.get("tcpi_wscales")? & 15) as i64),
        "tcpi_rcv_wscale" => Some((info.get("tcpi_wscales")? >> 4) as i64),
        _ => info.get(name).map(|value| value as i64),
    }
}

/// Statements, without comments.
fn statements(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| split_top(line, '#').remove(0));
    let parts = lines.flat_map(|line| split_top(&line, ';'));
    parts.map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
}

/// Parts between marks that are outside of quotes and parentheses; at least one.
fn split_top(text: &str, mark: char) -> Vec<String> {
    let mut out = vec![String::new()];
    let (mut depth, mut quote) = (0i32, None);
    for c in text.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '(' | '[') => depth += 1,
            (None, ')' | ']') => depth -= 1,
            (None, c) if c == mark && depth == 0 => {
                out.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = out.last_mut() {
            last.push(c);
        }
    }
    out
}

/// Parses `name = value` or `name += value`.
fn assignment(statement: &str) -> Option<(&str, Option<&str>, &str)> {
    let (left, right) = statement.split_once('=')?;
    if right.starts_with('=') || left.ends_with(['!', '<', '>']) {
        return None;
    }
    let left = left.trim_end();
    let (name, operator) = match left.strip_suffix(['+', '-', '*', '/']) {
        Some(name) => (name.trim(), left.get(name.len()..)),
        None => (left.trim(), None),
    };
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then_some((name, operator, right.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_stand_on_lines_or_between_semicolons() {
        assert_eq!(
            statements("a = 1; b = 2 # why\n assert a == 'x;y'"),
            ["a = 1", "b = 2", "assert a == 'x;y'"]
        );
    }

    #[test]
    fn assignments_are_told_from_comparisons() {
        assert_eq!(assignment("cwnd += 10"), Some(("cwnd", Some("+"), "10")));
        assert_eq!(assignment("cwnd = f(1)"), Some(("cwnd", None, "f(1)")));
        assert_eq!(assignment("a == 1"), None);
        assert_eq!(assignment("a >= 1"), None);
    }

    #[test]
    fn a_condition_ends_at_a_comma_outside_of_parentheses() {
        assert_eq!(split_top("min(1,2) == 1, 'no, %d' % x", ',')[0], "min(1,2) == 1");
    }
}
