//! What can be wrong with a setting.

/// What is wrong with a setting, in words for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// No such key.
    #[error("unknown key `{key}`{}", did_you_mean(*closest))]
    UnknownKey {
        /// As written.
        key: String,
        /// The known key that looks most like it.
        closest: Option<&'static str>,
    },
    /// A value of another kind.
    #[error("`{key}` cannot be {value}: it is {expected}")]
    WrongType {
        /// The key.
        key: &'static str,
        /// As written.
        value: String,
        /// What the key takes, such as "true or false".
        expected: String,
    },
    /// A number that the key does not take.
    #[error("`{key}` cannot be {value}: it is {range}")]
    OutOfRange {
        /// The key.
        key: &'static str,
        /// As written.
        value: String,
        /// What the key takes, such as "1500 to 65535 bytes".
        range: String,
    },
    /// No policy of connection handoff.
    #[error("`{key}`: {cause}")]
    Policy {
        /// The key.
        key: &'static str,
        /// What is wrong with it, and what to write.
        cause: String,
    },
    /// Fixed while wharf runs.
    #[error(
        "`{key}` cannot change while wharf runs: set it in the configuration file or with \
         `wharf up --set {key}=VALUE`"
    )]
    Fixed {
        /// The key.
        key: &'static str,
    },
    /// Not TOML.
    #[error("{0}")]
    Malformed(String),
    /// Any of the above, with its place in a file.
    #[error("{file}:{line}:{column}: {cause}")]
    At {
        /// The file's name.
        file: String,
        /// Counted from 1.
        line: usize,
        /// In characters, counted from 1.
        column: usize,
        /// What is wrong there.
        cause: Box<ConfigError>,
    },
}

fn did_you_mean(closest: Option<&'static str>) -> String {
    match closest {
        Some(key) => format!("; did you mean `{key}`?"),
        None => "; `wharf set --defaults` lists all keys".to_owned(),
    }
}

/// The one of the `known` keys that `key` most resembles, whole or without its group, if any does.
pub(crate) fn closest(
    key: &str,
    known: impl Iterator<Item = &'static str>,
) -> Option<&'static str> {
    let key = key.to_lowercase();
    let distance = |known: &str| {
        let last = known.rsplit('.').next().unwrap_or(known);
        edits(&key, known).min(edits(&key, last))
    };
    let nearest = known.map(|known| (distance(known), known)).min()?;
    (nearest.0 <= key.len() / 4 + 1).then_some(nearest.1)
}

/// Levenshtein's distance, a swap of neighbours counted as one.
fn edits(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: [Vec<usize>; 3] = [vec![0; b.len() + 1], (0..=b.len()).collect(), Vec::new()];
    for i in 1..=a.len() {
        let [before, last, _] = &rows;
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row.push(best);
        }
        rows[2] = row;
        rows.rotate_left(1);
    }
    rows[1][b.len()]
}

#[cfg(test)]
mod tests {
    use super::edits;

    #[test]
    fn edits_are_counted() {
        assert_eq!(edits("", ""), 0);
        assert_eq!(edits("", "abc"), 3);
        assert_eq!(edits("abc", ""), 3);
        assert_eq!(edits("enabel", "enable"), 1);
        assert_eq!(edits("kitten", "sitting"), 3);
    }
}
