//! The configuration file: TOML, flattened to keys.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::keys::{Key, Kind, Unit};
use super::{Config, ConfigError, find};

/// Puts what `text` says into `config`.
pub(super) fn read(config: &mut Config, file: &str, text: &str) -> Result<(), ConfigError> {
    let at = |span: Range<usize>, cause: ConfigError| {
        let (line, column) = position(text, span.start);
        ConfigError::At { file: file.to_owned(), line, column, cause: Box::new(cause) }
    };
    let document = DeTable::parse(text).map_err(|error| {
        // The parser's words come with a drawing of several lines; the first is the message.
        let message = error.message().lines().next().unwrap_or("not TOML").to_owned();
        at(error.span().unwrap_or_default(), ConfigError::Malformed(message))
    })?;
    let mut settings = Vec::new();
    flatten(document.get_ref(), "", &mut settings);
    settings.sort_by_key(|setting| setting.key_at.start); // the first mistake is reported
    for setting in settings {
        let key = find(&setting.key).map_err(|cause| at(setting.key_at, cause))?;
        let value_at = setting.value_at;
        text_of(key, setting.value)
            .and_then(|value| key.set(config, &value))
            .map_err(|cause| at(value_at, cause))?;
    }
    Ok(())
}

/// One key of the file with its value, and where both stand.
struct Setting<'a> {
    key: String,
    key_at: Range<usize>,
    value: &'a DeValue<'a>,
    value_at: Range<usize>,
}

/// Tables, dotted keys and inline tables are the same in the end.
fn flatten<'a>(table: &'a DeTable<'a>, group: &str, settings: &mut Vec<Setting<'a>>) {
    for (name, value) in table {
        let key = match group {
            "" => name.get_ref().to_string(),
            group => format!("{group}.{}", name.get_ref()),
        };
        match value.get_ref() {
            DeValue::Table(inner) => flatten(inner, &key, settings),
            other => settings.push(Setting {
                key,
                key_at: name.span(),
                value: other,
                value_at: value.span(),
            }),
        }
    }
}

/// The value as the key's text, if it is of the TOML type that the key takes.
fn text_of(key: &Key, value: &DeValue<'_>) -> Result<String, ConfigError> {
    match (key.kind, value) {
        (Kind::Bool { .. }, DeValue::Boolean(value)) => Ok(value.to_string()),
        (Kind::Choice { .. } | Kind::Policy { .. }, DeValue::String(value))
        | (Kind::Number { unit: Unit::Nanoseconds | Unit::Group, .. }, DeValue::String(value)) => {
            Ok(value.to_string())
        }
        (Kind::Number { .. }, DeValue::Integer(value)) => {
            match u64::from_str_radix(value.as_str(), value.radix()) {
                Ok(number) => Ok(number.to_string()),
                Err(_) => Err(key.wrong_type(value.as_str())),
            }
        }
        (_, DeValue::String(value)) => Err(key.wrong_type(&format!("\"{value}\""))),
        (_, DeValue::Integer(value)) => Err(key.wrong_type(value.as_str())),
        (_, DeValue::Float(value)) => Err(key.wrong_type(value.as_str())),
        (_, DeValue::Boolean(value)) => Err(key.wrong_type(&value.to_string())),
        (_, DeValue::Datetime(value)) => Err(key.wrong_type(&value.to_string())),
        (_, DeValue::Array(_)) => Err(key.wrong_type("[...]")),
        (_, DeValue::Table(_)) => Err(key.wrong_type("{...}")),
    }
}

/// Line and column of a byte, both counted from 1.
pub(crate) fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn complaint(text: &str) -> String {
        Config::from_toml("wharf.toml", text).unwrap_err().to_string()
    }

    #[test]
    fn tables_and_dotted_keys_are_the_same() {
        let dotted = "lro.enable = false\nlro.max_timeout = \"5ms\"\nworkers = 0x02\n";
        let tables = "workers = 2\n[lro]\nenable = false\nmax_timeout = '5ms'\n";
        let inline = "workers = 2\nlro = { enable = false, max_timeout = \"5ms\" }";
        let config = Config::from_toml("a", dotted).unwrap();
        assert_eq!((config.workers, config.lro.max_timeout), (2, 5_000_000));
        assert_eq!(Config::from_toml("a", tables), Ok(config.clone()));
        assert_eq!(Config::from_toml("a", inline), Ok(config));
        assert_eq!(Config::from_toml("a", ""), Ok(Config::default()));
    }

    #[test]
    fn complaints_say_where() {
        assert_eq!(
            complaint("[lro]\n  enabel = true\n"),
            "wharf.toml:2:3: unknown key `lro.enabel`; did you mean `lro.enable`?"
        );
        assert_eq!(
            complaint("wire.frames = 1000"),
            "wharf.toml:1:15: `wire.frames` cannot be 1000: it is 0 (65536 shared by the workers, at \
             least 16384 each) or a power of two, 1024 to 131072"
        );
        assert_eq!(
            complaint("# \u{e9}\nlro.enable = \"true\""),
            "wharf.toml:2:14: `lro.enable` cannot be `\"true\"`: it is true or false"
        );
        for malformed in ["[lro", "lro.enable = ", "lro.enable = true\nlro.enable = true"] {
            let words = complaint(malformed);
            assert!(words.starts_with("wharf.toml:") && !words.contains('\n'), "{words}");
        }
    }

    #[test]
    fn values_of_another_type_are_refused() {
        for wrong in [
            "workers = \"2\"",
            "workers = 2.0",
            "workers = -2",
            "workers = true",
            "workers = [2]",
            "workers = 1979-05-27",
            "lro.max_timeout = 100",
            "lro.max_timeout = true",
            "lro.profile = 1",
            "lro = 1",
            "workers.count = 1",
        ] {
            assert!(complaint(wrong).starts_with("wharf.toml:1:"), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[a-z.=\\[\\]{}\"'0-9 \n\u{e9}]{0,60}") {
            let _ = Config::from_toml("wharf.toml", &text);
        }
    }
}
