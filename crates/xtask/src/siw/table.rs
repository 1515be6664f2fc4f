//! The table of what was tried: a line for each, as it is judged, and what is known of it if it has failed. It is printed, and
//! written to a file.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use super::case::Failed;

#[derive(Debug)]
pub(super) struct Table {
    file: File,
    ok: u32,
    failed: u32,
    excused: u32,
    left_out: u32,
}

impl Table {
    /// A new one, in this file.
    pub(super) fn create(path: &Path) -> Result<Table, String> {
        let file = File::create(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Table { file, ok: 0, failed: 0, excused: 0, left_out: 0 })
    }

    pub(super) fn judge(&mut self, what: &str, outcome: Result<(), Failed>) {
        let (verdict, why) = match outcome {
            Ok(()) => {
                self.ok += 1;
                return self.say(&format!("ok        {what}"));
            }
            Err(Failed { why, excuse: Some(excuse) }) => {
                self.excused += 1;
                (format!("excused   {what}: {excuse}"), why)
            }
            Err(Failed { why, excuse: None }) => {
                self.failed += 1;
                (format!("FAILED    {what}"), why)
            }
        };
        let why: String = why.lines().map(|line| format!("\n    {line}")).collect();
        self.say(&format!("{verdict}{why}"));
    }

    pub(super) fn leave_out(&mut self, what: &str, why: &str) {
        self.left_out += 1;
        self.say(&format!("left out  {what}: {why}"));
    }

    /// The sums; an error if something has failed.
    pub(super) fn end(mut self, not_asked_for: usize) -> Result<(), String> {
        let Table { ok, failed, excused, left_out, .. } = self;
        let others = match not_asked_for {
            0 => String::new(),
            others => format!(", {others} not asked for"),
        };
        let sums = format!("{ok} ok, {failed} failed, {excused} excused, {left_out} left out");
        self.say(&format!("{sums}{others}"));
        if failed == 0 { Ok(()) } else { Err(format!("{failed} failed beside siw")) }
    }

    fn say(&mut self, line: &str) {
        println!("{line}");
        // What was printed is there in any case.
        let _ = writeln!(self.file, "{line}");
    }
}
