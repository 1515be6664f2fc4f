//! How far it is: a bar on a terminal, a line a turn elsewhere.

use std::io::{IsTerminal, Write};
use std::time::Duration;

const WIDTH: usize = 30;

pub(super) struct Progress {
    total: Duration,
    is_terminal: bool,
}

impl Progress {
    pub(super) fn new(total: Duration) -> Self {
        Self { total, is_terminal: std::io::stderr().is_terminal() }
    }

    /// What takes its turn now.
    pub(super) fn show(&mut self, elapsed: Duration, name: &str, found: usize) {
        let line = line(elapsed, self.total, name, found);
        let mut stderr = std::io::stderr();
        // A standard error that is closed is no reason to stop.
        let _ = if self.is_terminal {
            write!(stderr, "\r\x1b[K{line}").and_then(|()| stderr.flush())
        } else {
            writeln!(stderr, "{line}")
        };
    }

    /// A line that stays.
    pub(super) fn say(&mut self, line: &str) {
        self.end();
        eprintln!("{line}");
    }

    /// The bar is taken away.
    pub(super) fn end(&mut self) {
        if self.is_terminal {
            eprint!("\r\x1b[K");
        }
    }
}

fn line(elapsed: Duration, total: Duration, name: &str, found: usize) -> String {
    let elapsed = elapsed.min(total);
    let filled = (elapsed.as_secs_f64() / total.as_secs_f64() * WIDTH as f64) as usize;
    let bar = "#".repeat(filled) + &"-".repeat(WIDTH - filled);
    let clock = |time: Duration| format!("{}:{:02}", time.as_secs() / 60, time.as_secs() % 60);
    format!("[{bar}] {:>6} of {}  {name:<22} {found} found", clock(elapsed), clock(total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_is_as_long_as_the_time_that_passed() {
        let seconds = Duration::from_secs;
        assert_eq!(
            line(seconds(90), seconds(180), "tcp/sim", 1),
            "[###############---------------]   1:30 of 3:00  tcp/sim                1 found"
        );
        assert!(
            line(seconds(200), seconds(180), "x", 0).starts_with(&format!("[{}]", "#".repeat(30)))
        );
    }
}
