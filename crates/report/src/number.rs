//! Numbers as one reads them: `1.5 k` on an axis, `4,750` in a table.

/// Digits of a tick's label at most; enough to tell neighbouring ticks apart.
const TICK_DIGITS: i32 = 10;
/// Digits of a number in a table or sentence, where its integer part has no more.
const TABLE_DIGITS: i32 = 4;
/// From here on up, and from its inverse on down to 0, numbers are written with a power of ten.
const LARGE: f64 = 1e15;
const SMALL: f64 = 1e-4;

const PREFIXES: [(f64, &str); 4] =
    [(1e12, "\u{a0}T"), (1e9, "\u{a0}G"), (1e6, "\u{a0}M"), (1e3, "\u{a0}k")];

/// A tick's label.
pub(crate) fn tick(value: f64) -> String {
    let size = value.abs();
    if let Some(words) = unusual(value) {
        return words;
    }
    let (unit, prefix) = PREFIXES.into_iter().find(|(unit, _)| size >= *unit).unwrap_or((1.0, ""));
    signed(value, rounded(size / unit, TICK_DIGITS) + prefix)
}

/// A value, with commas between thousands.
pub(crate) fn value(value: f64) -> String {
    unusual(value).unwrap_or_else(|| signed(value, grouped(&rounded(value.abs(), TABLE_DIGITS))))
}

/// What has no digits before and after a point: nothing, no number, too large, too small.
fn unusual(value: f64) -> Option<String> {
    let size = value.abs();
    if value.is_nan() {
        return Some("not a number".to_owned());
    }
    if value.is_infinite() {
        return Some(signed(value, "∞".to_owned()));
    }
    if size == 0.0 {
        return Some("0".to_owned());
    }
    if !(SMALL..LARGE).contains(&size) {
        let written = format!("{size:.3e}");
        let (digits, power) = written.split_once('e').unwrap_or((&written, "0"));
        let power = power.replace('-', "\u{2212}");
        return Some(signed(value, format!("{}e{power}", trimmed(digits))));
    }
    None
}

/// With so many significant digits, but never less than the integer part.
fn rounded(size: f64, digits: i32) -> String {
    // The sizes that come here have few digits before the point.
    #[allow(clippy::cast_possible_truncation)]
    let before_point = size.log10().floor() as i32 + 1;
    let decimals = usize::try_from(digits - before_point).unwrap_or(0);
    trimmed(&format!("{size:.decimals$}")).to_owned()
}

fn trimmed(written: &str) -> &str {
    if written.contains('.') {
        written.trim_end_matches('0').trim_end_matches('.')
    } else {
        written
    }
}

fn grouped(written: &str) -> String {
    let point = written.find('.').unwrap_or(written.len());
    let (integer, fraction) = written.split_at(point);
    let mut text = String::new();
    for (at, digit) in integer.chars().enumerate() {
        if at > 0 && (integer.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text + fraction
}

fn signed(value: f64, size: String) -> String {
    if value < 0.0 { format!("\u{2212}{size}") } else { size }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_short() {
        let of = [0.0, 0.1, 4.75, 64.0, 1000.0, 1500.0, 2e6, 3e9, 4e12, -2500.0, 0.1 + 0.2];
        let are = ["0", "0.1", "4.75", "64", "1 k", "1.5 k", "2 M", "3 G", "4 T", "−2.5 k", "0.3"];
        let plain = |value| tick(value).replace('\u{a0}', " ");
        assert_eq!(of.map(plain), are.map(str::to_owned));
        assert_eq!(tick(1e-5), "1e−5");
        assert_eq!(tick(-2.5e20), "−2.5e20");
    }

    #[test]
    fn values_are_exact_enough_to_compare() {
        let of = [0.0, 4.75, 0.91352, 941.26, 12345.6, 1_234_567.0, -1000.0, 99.996, 0.000_15];
        let are =
            ["0", "4.75", "0.9135", "941.3", "12,346", "1,234,567", "−1,000", "100", "0.00015"];
        assert_eq!(of.map(value), are.map(str::to_owned));
        assert_eq!(value(f64::NAN), "not a number");
        assert_eq!(value(f64::NEG_INFINITY), "−∞");
        assert_eq!(value(f64::MIN_POSITIVE), "2.225e−308");
    }
}
