//! Expressions of Python over numbers.

/// A number.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Value {
    /// An integer.
    Integer(i64),
    /// A floating-point number.
    Float(f64),
}

impl Value {
    pub(super) fn is_true(self) -> bool {
        self.float() != 0.0
    }

    fn float(self) -> f64 {
        match self {
            Value::Integer(value) => value as f64,
            Value::Float(value) => value,
        }
    }
}

/// Value of an expression; `lookup` gives the values of names.
pub(super) fn evaluate(
    text: &str,
    lookup: &dyn Fn(&str) -> Option<Value>,
) -> Result<Value, String> {
    let words = words(text)?;
    let mut parser = Parser { words: &words, at: 0, lookup };
    let value = parser.either()?;
    match parser.words.get(parser.at) {
        None => Ok(value),
        Some(word) => Err(format!("`{word}` is too much")),
    }
}

/// Numbers, names and operators.
fn words(text: &str) -> Result<Vec<String>, String> {
    let mut out = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let len = if first.is_ascii_alphanumeric() || first == '_' || first == '.' {
            let belongs = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
            rest.find(|c| !belongs(c)).unwrap_or(rest.len())
        } else {
            let double = ["==", "!=", "<=", ">=", "//", "<<", ">>"];
            match double.iter().any(|operator| rest.starts_with(operator)) {
                true => 2,
                false if "+-*/%&|()<>,~".contains(first) => 1,
                false => return Err(format!("`{first}` is not supported")),
            }
        };
        out.push(rest[..len].to_owned());
        rest = rest[len..].trim_start();
    }
    Ok(out)
}

struct Parser<'a> {
    words: &'a [String],
    at: usize,
    lookup: &'a dyn Fn(&str) -> Option<Value>,
}

/// Operators of two numbers, in order of precedence, the lowest first.
const LEVELS: [&[&str]; 5] = [&["|"], &["&"], &["<<", ">>"], &["+", "-"], &["*", "/", "//", "%"]];

const COMPARISONS: [&str; 6] = ["==", "!=", "<=", ">=", "<", ">"];

impl Parser<'_> {
    fn accept(&mut self, word: &str) -> bool {
        let there = self.words.get(self.at).is_some_and(|found| found == word);
        self.at += usize::from(there);
        there
    }

    fn accept_any(&mut self, of: &[&'static str]) -> Option<&'static str> {
        of.iter().copied().find(|word| self.accept(word))
    }

    fn either(&mut self) -> Result<Value, String> {
        let mut value = self.both()?;
        while self.accept("or") {
            let right = self.both()?;
            value = if value.is_true() { value } else { right };
        }
        Ok(value)
    }

    fn both(&mut self) -> Result<Value, String> {
        let mut value = self.negation()?;
        while self.accept("and") {
            let right = self.negation()?;
            value = if value.is_true() { right } else { value };
        }
        Ok(value)
    }

    fn negation(&mut self) -> Result<Value, String> {
        if self.accept("not") {
            return Ok(truth(!self.negation()?.is_true()));
        }
        self.comparison()
    }

    /// `a < b <= c` holds if both do.
    fn comparison(&mut self) -> Result<Value, String> {
        let mut left = self.level(0)?;
        let mut holds = None;
        while let Some(operator) = self.accept_any(&COMPARISONS) {
            let right = self.level(0)?;
            let (a, b) = (left.float(), right.float());
            let this = match operator {
                "==" => a == b,
                "!=" => a != b,
                "<=" => a <= b,
                ">=" => a >= b,
                "<" => a < b,
                _ => a > b,
            };
            holds = Some(holds.unwrap_or(true) && this);
            left = right;
        }
        Ok(holds.map_or(left, truth))
    }

    fn level(&mut self, level: usize) -> Result<Value, String> {
        let Some(operators) = LEVELS.get(level) else { return self.operand() };
        let mut left = self.level(level + 1)?;
        while let Some(operator) = self.accept_any(operators) {
            let right = self.level(level + 1)?;
            left = apply(operator, left, right)?;
        }
        Ok(left)
    }

    fn operand(&mut self) -> Result<Value, String> {
        if self.accept("(") {
            let value = self.either()?;
            return self.close(value);
        }
        if self.accept("-") {
            return apply("-", Value::Integer(0), self.operand()?);
        }
        let Some(word) = self.words.get(self.at) else { return Err("it ends early".to_owned()) };
        self.at += 1;
        if let Ok(value) = word.parse::<i64>() {
            return Ok(Value::Integer(value));
        }
        if let Some(value) =
            word.strip_prefix("0x").and_then(|hex| i64::from_str_radix(hex, 16).ok())
        {
            return Ok(Value::Integer(value));
        }
        if word.starts_with(|c: char| c.is_ascii_digit() || c == '.')
            && let Ok(value) = word.parse::<f64>()
        {
            return Ok(Value::Float(value));
        }
        if self.accept("(") {
            return self.function(word);
        }
        match word.as_str() {
            "True" => Ok(truth(true)),
            "False" => Ok(truth(false)),
            name => (self.lookup)(name).ok_or_else(|| format!("`{name}` has no value")),
        }
    }

    fn function(&mut self, name: &str) -> Result<Value, String> {
        let mut arguments = vec![self.either()?];
        while self.accept(",") {
            arguments.push(self.either()?);
        }
        let value = match (name, arguments.as_slice()) {
            ("abs", [Value::Integer(value)]) => Value::Integer(value.abs()),
            ("abs", [Value::Float(value)]) => Value::Float(value.abs()),
            ("int", [value]) => Value::Integer(value.float() as i64),
            ("min", [first, rest @ ..]) => {
                rest.iter().fold(*first, |a, b| if b.float() < a.float() { *b } else { a })
            }
            ("max", [first, rest @ ..]) => {
                rest.iter().fold(*first, |a, b| if b.float() > a.float() { *b } else { a })
            }
            _ => return Err(format!("function `{name}` is not supported")),
        };
        self.close(value)
    }

    fn close(&mut self, value: Value) -> Result<Value, String> {
        if self.accept(")") { Ok(value) } else { Err("`)` is missing".to_owned()) }
    }
}

fn truth(value: bool) -> Value {
    Value::Integer(i64::from(value))
}

fn apply(operator: &str, left: Value, right: Value) -> Result<Value, String> {
    if let (Value::Integer(a), Value::Integer(b)) = (left, right) {
        let value = match operator {
            "|" => Some(a | b),
            "&" => Some(a & b),
            "<<" => u32::try_from(b).ok().and_then(|by| a.checked_shl(by)),
            ">>" => u32::try_from(b).ok().and_then(|by| a.checked_shr(by)),
            "+" => a.checked_add(b),
            "-" => a.checked_sub(b),
            "*" => a.checked_mul(b),
            "//" => a.checked_div_euclid(b),
            "%" => a.checked_rem_euclid(b),
            _ if b == 0 => None,
            _ => return Ok(Value::Float(a as f64 / b as f64)),
        };
        return value
            .map(Value::Integer)
            .ok_or_else(|| format!("`{a} {operator} {b}` has no value"));
    }
    let (a, b) = (left.float(), right.float());
    Ok(Value::Float(match operator {
        "+" => a + b,
        "-" => a - b,
        "*" => a * b,
        "/" if b != 0.0 => a / b,
        "//" if b != 0.0 => (a / b).floor(),
        _ => return Err(format!("`{operator}` is not for such numbers")),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Result<Value, String> {
        evaluate(text, &|name| (name == "x").then_some(Value::Integer(6)))
    }

    #[test]
    fn operators_bind_as_in_python() {
        assert_eq!(value("1 + 2 * 3 == 7 and not x < 5"), Ok(Value::Integer(1)));
        assert_eq!(value("(x & 2) != 0 or 1 / 0"), Err("`1 / 0` has no value".to_owned()));
        assert_eq!(value("5 < x <= 6"), Ok(Value::Integer(1)));
        assert_eq!(value("-x + 1"), Ok(Value::Integer(-5)));
        assert_eq!(value("x / 4"), Ok(Value::Float(1.5)));
        assert_eq!(value("max(1, x, 0x4)"), Ok(Value::Integer(6)));
    }

    #[test]
    fn unknown_names_and_operators_are_errors() {
        for text in ["y", "x +", "(x", "f(x)", "x x", "x ** 2", "'a'"] {
            assert!(value(text).is_err(), "{text}");
        }
    }
}
