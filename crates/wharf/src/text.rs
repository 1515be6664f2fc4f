//! Text that others have made, on a terminal: what would move the cursor, change colours or turn the
//! direction of writing is shown, not done.

use std::borrow::Cow;

/// Control characters (C0, DEL and C1, the latter as good as escapes to some terminals), line and
/// paragraph separators, and what overrides the direction of text (UAX 9 section 2).
fn acts(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text on one line, with what acts in it escaped.
pub(crate) fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(acts) {
        return text.into();
    }
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if acts(c) { line.extend(c.escape_default()) } else { line.push(c) }
    }
    line.into()
}

/// A JSON text with the same characters as JSON escapes them: they are within strings, if anywhere.
pub(crate) fn escaped_json(json: &str) -> Cow<'_, str> {
    if !json.contains(acts) {
        return json.into();
    }
    let escape = |c: char| match acts(c) {
        // All of them have four digits.
        true => format!("\\u{:04x}", u32::from(c)),
        false => c.to_string(),
    };
    json.chars().map(escape).collect::<String>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_stays_on_its_line_and_does_nothing() {
        assert_eq!(escaped("no `a\nb\u{1b}[2J` in \u{e9}"), "no `a\\nb\\u{1b}[2J` in \u{e9}");
        assert_eq!(
            escaped("\u{9b}31m\u{202e}\u{2066}\u{7f}"),
            "\\u{9b}31m\\u{202e}\\u{2066}\\u{7f}"
        );
    }

    #[test]
    fn escaped_json_says_the_same() {
        let value = serde_json::json!({"a\u{9b}": "\u{202e}\u{1b}\n\u{7f}\u{e9}"});
        let text = value.to_string();
        let escaped = escaped_json(&text);
        assert!(!escaped.contains(acts), "{escaped}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&escaped).unwrap(), value);
    }
}
