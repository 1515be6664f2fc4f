//! Numbers as people read them.

/// A number in the largest of some units of which there is at least one, with one place behind the point if it is not
/// the smallest. The units are in rising order, the first of size 1.
fn in_units(number: u64, units: &[(u64, &str)]) -> String {
    let fits = units.iter().rev().find(|(size, _)| number >= *size);
    match fits.or(units.first()) {
        Some((1, name)) => format!("{number} {name}"),
        // Rounded down, so that nothing becomes a thousand of a unit.
        Some((size, name)) => format!("{}.{} {name}", number / size, number % size / (size / 10)),
        None => number.to_string(),
    }
}

/// Bytes: `999 B`, `1.2 MB`.
pub(crate) fn bytes(number: u64) -> String {
    let (kilo, mega, giga) = (1_000, 1_000_000, 1_000_000_000);
    in_units(number, &[(1, "B"), (kilo, "KB"), (mega, "MB"), (giga, "GB"), (1_000 * giga, "TB")])
}

/// Nanoseconds: `800 ns`, `12.3 ms`.
pub(crate) fn time(nanoseconds: u64) -> String {
    in_units(nanoseconds, &[(1, "ns"), (1_000, "us"), (1_000_000, "ms"), (1_000_000_000, "s")])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_in_the_largest_unit_that_fits() {
        let shown = [0, 999, 1_000, 1_999, 999_999, 64_000_000, 1_500_000_000_000].map(bytes);
        assert_eq!(shown, ["0 B", "999 B", "1.0 KB", "1.9 KB", "999.9 KB", "64.0 MB", "1.5 TB"]);
        assert_eq!([5, 30_000, 12_345_678].map(time), ["5 ns", "30.0 us", "12.3 ms"]);
        assert_eq!(time(u64::MAX), "18446744073.7 s");
    }
}
