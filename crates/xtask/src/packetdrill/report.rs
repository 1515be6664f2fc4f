//! What came of the scripts, as a table.

use std::fmt::Write;

use super::Both;
use super::one::Verdict;
use super::unsupported::needs;

/// How many passed where.
pub(super) fn summary(results: &[Both]) -> String {
    let passed = |which: fn(&Both) -> &Verdict| {
        results.iter().filter(|result| *which(result) == Verdict::Passed).count()
    };
    let (kernel, engine) = (passed(|both| &both.kernel), passed(|both| &both.engine));
    let open: Vec<&Both> = results.iter().filter(|both| is_open(both)).collect();
    let mut out = format!(
        "{} scripts: the kernel passes {kernel}, wharf passes {engine}.\n\
         The kernel passes {} that wharf does not, {} of them for something not supported.\n",
        results.len(),
        open.len(),
        open.iter().filter(|both| missing(both).is_some()).count(),
    );
    for both in open.iter().filter(|both| missing(both).is_none()) {
        let _ = writeln!(out, "    {}: {}", both.name, why(both));
    }
    out
}

/// Whether the kernel passes it, and wharf does not.
fn is_open(both: &Both) -> bool {
    both.kernel == Verdict::Passed && both.engine != Verdict::Passed
}

/// What the engine does not have and the script needs.
fn missing(both: &Both) -> Option<String> {
    match &both.engine {
        Verdict::Passed => None,
        Verdict::Failed(why) => needs(&both.text, why),
    }
}

/// A row for each script.
pub(super) fn table(results: &[Both]) -> String {
    let mut out = String::from("| script | kernel | wharf | why not |\n|---|---|---|---|\n");
    for both in results {
        let why = why(both).replace('|', "\\|");
        let _ = writeln!(out, "| {} | {} | {} | {why} |", both.name, both.kernel, both.engine);
    }
    out
}

/// Why it did not pass; empty if it did everywhere.
fn why(both: &Both) -> String {
    match (&both.kernel, &both.engine) {
        (Verdict::Passed, Verdict::Passed) => String::new(),
        (Verdict::Failed(kernel), Verdict::Passed) => format!("kernel: {kernel}"),
        (Verdict::Passed, Verdict::Failed(engine)) => {
            missing(both).unwrap_or_else(|| format!("wharf: {engine}"))
        }
        (Verdict::Failed(kernel), Verdict::Failed(engine)) => {
            let engine = missing(both).unwrap_or_else(|| format!("wharf: {engine}"));
            format!("kernel: {kernel}; {engine}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(kernel: Verdict, engine: Verdict, text: &str) -> Both {
        Both { name: "a.pkt".to_owned(), text: text.to_owned(), kernel, engine }
    }

    #[test]
    fn every_script_that_did_not_pass_has_a_reason() {
        let failed = || Verdict::Failed("7: a|b".to_owned());
        let row = |both: Both| table(&[both]).lines().nth(2).map(str::to_owned);
        let passed = row(both(Verdict::Passed, Verdict::Passed, ""));
        assert_eq!(passed.as_deref(), Some("| a.pkt | passed | passed |  |"));
        let wrong = row(both(Verdict::Passed, failed(), ""));
        assert_eq!(wrong.as_deref(), Some("| a.pkt | passed | failed | wharf: 7: a\\|b |"));
        let needs = row(both(Verdict::Passed, failed(), "0 splice(1, 2) = 0"));
        assert!(needs.is_some_and(|row| row.contains("needs splice()")));
        let summary = summary(&[both(Verdict::Passed, failed(), "")]);
        assert!(summary.contains("a.pkt: wharf: 7: a|b"), "{summary}");
    }
}
