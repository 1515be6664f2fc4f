//! Tests that this machine cannot run, because something is missing.
//!
//! A test that cannot run fails with the name of what is missing: an untested feature is no success. With
//! `WHARF_MAY_LACK` in the environment it is left out instead. Tests that need an option with which the
//! kernel was not built are left out anywhere. Each line of the file that `WHARF_LEFT_OUT` names is a test
//! that was left out, and why.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;

/// Fails the test: this machine lacks `what`. Returns only where tests may be left out.
///
/// # Panics
/// Unless `WHARF_MAY_LACK` is in the environment.
#[track_caller]
pub fn lacks(what: impl Display) {
    assert!(
        std::env::var_os("WHARF_MAY_LACK").is_some(),
        "this machine lacks what the test needs: {what}"
    );
    left_out(&what);
}

/// Leaves the test out, as this machine's kernel was built without `what`.
pub fn kernel_lacks(what: impl Display) {
    left_out(&format!("not in this kernel: {what}"));
}

/// Reports it on standard error, and in the file.
fn left_out(why: &dyn Display) {
    let thread = std::thread::current();
    let program = std::env::args().next().unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or_default();
    // Cargo appends a hash to the name.
    let program = program.rsplit_once('-').map_or(program, |(name, _)| name);
    let line = format!("{program} {}: {why}", thread.name().unwrap_or("")).replace('\n', " ");
    eprintln!("left out: {line}");
    if let Some(path) = std::env::var_os("WHARF_LEFT_OUT") {
        let file = OpenOptions::new().append(true).create(true).open(&path);
        let written = file.and_then(|mut file| writeln!(file, "{line}"));
        assert!(written.is_ok(), "{}: {written:?}", path.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        if std::env::var_os("WHARF_MAY_LACK").is_some() {
            return;
        }
        let panic = std::panic::catch_unwind(|| lacks("a fish")).unwrap_err();
        let words = panic.downcast_ref::<String>().map(String::as_str);
        assert_eq!(words, Some("this machine lacks what the test needs: a fish"));
    }
}
