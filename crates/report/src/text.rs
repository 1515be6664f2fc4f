//! Text from outside: harmless wherever it is written, and how wide it is.

use maud::Render;

/// Text as XML and HTML may hold it: escaped, and without the control characters that neither can
/// hold even escaped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text<'a>(pub(crate) &'a str);

impl Render for Text<'_> {
    fn render_to(&self, buffer: &mut String) {
        let harmless = |character: char| match character {
            '\t' | '\n' | '\r' => ' ',
            '\u{fffe}' | '\u{ffff}' => char::REPLACEMENT_CHARACTER,
            other if other.is_control() => char::REPLACEMENT_CHARACTER,
            other => other,
        };
        self.0.chars().map(harmless).collect::<String>().render_to(buffer);
    }
}

/// A label with its unit: `Throughput, Gb/s`.
pub(crate) fn with_unit(label: &str, unit: &str) -> String {
    [label.trim(), unit.trim()].into_iter().filter(|s| !s.is_empty()).collect::<Vec<_>>().join(", ")
}

/// How wide text is, in sizes of its font: not less than in DejaVu Sans, the widest of the fonts that
/// a page is likely to be shown in.
pub(crate) fn width(text: &str) -> f64 {
    text.chars().map(character_width).sum()
}

fn character_width(character: char) -> f64 {
    match character {
        'i' | 'j' | 'l' | '|' | '\'' | '.' | ',' | ':' | ';' | ' ' | '\u{a0}' => 0.34,
        'f' | 'r' | 't' | 'I' | 'J' | '/' | '(' | ')' | '[' | ']' | '-' => 0.42,
        'm' | 'w' | 'M' | 'W' | '@' | '%' | '+' | '=' | '<' | '>' | '\u{2212}' => 1.0,
        'A'..='Z' | '&' | '#' => 0.8,
        other if other.is_ascii() || other.is_alphabetic() && (other as u32) < 0x0500 => 0.65,
        _ => 1.1,
    }
}

/// Lines of at most `limit` font sizes, broken between words; longer words are shortened.
pub(crate) fn wrap(text: &str, limit: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    // No-break spaces, as between a number and its prefix, are no place to break.
    for word in text.split([' ', '\t', '\n', '\r']).filter(|word| !word.is_empty()) {
        match lines.last_mut() {
            Some(line) if width(line) + width(" ") + width(word) <= limit => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(shorten(word, limit)),
        }
    }
    lines
}

/// The beginning of text, with an ellipsis, if the whole does not fit.
pub(crate) fn shorten(text: &str, limit: f64) -> String {
    if width(text) <= limit {
        return text.to_owned();
    }
    let mut left = limit - width("…");
    let fits = |character: &char| {
        left -= character_width(*character);
        left >= 0.0
    };
    text.chars().take_while(fits).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_outside_is_harmless() {
        let hostile = "<script>\"&'\u{0}\u{1b}\n</script>";
        let written = Text(hostile).render().into_string();
        assert_eq!(written, "&lt;script&gt;&quot;&amp;'\u{fffd}\u{fffd} &lt;/script&gt;");
    }

    #[test]
    fn lines_fit() {
        let words = "TCP receive throughput against the number of connections, wire of 1,500 bytes";
        let lines = wrap(words, 20.0);
        assert!(lines.iter().all(|line| width(line) <= 20.0), "{lines:?}");
        assert_eq!(lines.join(" "), words);
        let long = wrap("Donaudampfschifffahrtsgesellschaft", 5.0);
        assert!(long.len() == 1 && long[0].ends_with('…') && width(&long[0]) <= 5.0, "{long:?}");
        assert_eq!(wrap(" \n ", 5.0), Vec::<String>::new());
    }

    #[test]
    fn an_axis_says_its_unit_if_it_has_one() {
        assert_eq!(with_unit("Throughput", "Gb/s"), "Throughput, Gb/s");
        assert_eq!(with_unit("Connections", ""), "Connections");
    }
}
