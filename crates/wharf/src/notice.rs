//! What a command says beside its output.

use std::io::{self, Write};

use crate::text::escaped;

/// A line on standard error; that it is not read is no error.
pub(crate) fn tell(notice: &str) {
    let _ = writeln!(io::stderr(), "wharf: {}", escaped(notice));
}
