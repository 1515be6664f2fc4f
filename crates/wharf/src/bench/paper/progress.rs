//! How far a run is, and how long the rest will take.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use bench::paper::Progress;

use crate::text::escaped;

/// Cells of the bar.
const BAR: usize = 20;
/// Most characters of a line, so that it stays one on most terminals.
const WIDTH: usize = 79;

/// A line on a terminal that is always up to date; elsewhere a line for each point that begins.
#[derive(Debug)]
pub(super) struct Line {
    terminal: bool,
    /// The point that was told of last, by how many were behind it.
    told: Option<usize>,
}

impl Line {
    pub(super) fn new() -> Line {
        Line { terminal: std::io::stderr().is_terminal(), told: None }
    }

    pub(super) fn show(&mut self, progress: &Progress) {
        let mut stderr = std::io::stderr();
        if self.terminal {
            let line: String = line(progress).chars().take(WIDTH).collect();
            let _ = write!(stderr, "\r\x1b[K{line}").and_then(|()| stderr.flush());
        } else if self.told != Some(progress.done) {
            self.told = Some(progress.done);
            let _ = writeln!(stderr, "wharf: {}", line(progress));
        }
    }

    /// A line of its own.
    pub(super) fn notice(&self, text: &str) {
        self.clear();
        let _ = writeln!(std::io::stderr(), "wharf: {}", escaped(text));
    }

    pub(super) fn clear(&self) {
        if self.terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn line(progress: &Progress) -> String {
    let Progress { done, total, left, what } = progress;
    let full = done * BAR / (*total).max(1);
    let bar = "#".repeat(full) + &"-".repeat(BAR - full.min(BAR));
    format!("[{bar}] {done}/{total}, {} left: {what}", rough(*left))
}

/// A time that is not known exactly.
fn rough(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds < 60 => format!("{} s", seconds + 1),
        seconds if seconds < 3600 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fills_up() {
        let at = |done, left| {
            let (total, what) = (4, "lro, 1 connection".to_owned());
            line(&Progress { done, total, left: Duration::from_secs(left), what })
        };
        assert_eq!(at(0, 4000), "[--------------------] 0/4, 1 h 6 min left: lro, 1 connection");
        assert_eq!(at(1, 61), "[#####---------------] 1/4, 2 min left: lro, 1 connection");
        assert_eq!(at(4, 0), "[####################] 4/4, 1 s left: lro, 1 connection");
    }
}
