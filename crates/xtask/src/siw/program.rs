//! Programs of a pair, on either side.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use super::guest::Guest;

/// A program that was begun.
#[derive(Debug)]
pub(super) enum Program {
    Here(Here),
    /// By its name there.
    Guest(&'static str),
}

impl Program {
    /// Whether it has ended, and if so, whether it has succeeded.
    pub(super) fn ended(&mut self, guest: &mut Guest) -> Result<Option<bool>, String> {
        match self {
            Program::Here(here) => here.ended(),
            Program::Guest(name) => guest.ended(name),
        }
    }

    /// What it has said so far.
    pub(super) fn said(&self, guest: &mut Guest) -> Result<String, String> {
        match self {
            Program::Here(here) => Ok(here.said()),
            Program::Guest(name) => guest.said(name),
        }
    }

    /// Ends it, if it has not ended, with what it has begun.
    pub(super) fn end(self, guest: &mut Guest) -> Result<(), String> {
        match self {
            // As it is dropped.
            Program::Here(_) => Ok(()),
            Program::Guest(name) => guest.end(name),
        }
    }
}

/// One of this side. It ends with this, and so do the processes that it has begun, such as those of qperf's server.
#[derive(Debug)]
pub(super) struct Here {
    leader: Child,
    said: PathBuf,
}

impl Here {
    /// Begins it as the first of a process group. What it says goes to this file: whoever waits for the end of a pipe waits for
    /// the processes that it has begun.
    pub(super) fn start(command: &mut Command, said: PathBuf) -> Result<Here, String> {
        let text = |error: std::io::Error| format!("{}: {error}", said.display());
        let file = File::create(&said).map_err(text)?;
        let errors = file.try_clone().map_err(text)?;
        command.stdin(Stdio::null()).stdout(file).stderr(errors).process_group(0);
        let leader = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
        Ok(Here { leader, said })
    }

    fn ended(&mut self) -> Result<Option<bool>, String> {
        let status = self.leader.try_wait().map_err(|error| error.to_string())?;
        Ok(status.map(|status| status.success()))
    }

    fn said(&self) -> String {
        let said = fs::read(&self.said).unwrap_or_default();
        String::from_utf8_lossy(&said).into_owned()
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        // No other group has its number while it has processes. Where it has none left, this fails.
        let kill = format!("kill -s KILL -- -{} 2> /dev/null", self.leader.id());
        let _ = Command::new("sh").args(["-c", &kill]).status();
        let _ = self.leader.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    #[test]
    fn what_a_program_has_begun_ends_with_it() {
        let said = std::env::temp_dir().join(format!("wharf-siw-said-{}", std::process::id()));
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 1000 & echo $!"]);
        let mut here = Here::start(&mut command, said.clone()).unwrap();
        let begun = Instant::now();
        while here.ended().unwrap().is_none() {
            assert!(begun.elapsed() < Duration::from_secs(60));
            sleep(Duration::from_millis(5));
        }
        let sleeper = here.said();
        let status = PathBuf::from("/proc").join(sleeper.trim()).join("stat");
        assert!(status.exists());
        drop(here);
        // Who takes it over waits for it, or it stays as one that has ended.
        let is_left = || fs::read_to_string(&status).is_ok_and(|stat| !stat.contains(") Z "));
        while is_left() {
            assert!(begun.elapsed() < Duration::from_secs(60), "{sleeper}");
            sleep(Duration::from_millis(5));
        }
        let _ = fs::remove_file(said);
    }
}
