//! The guest, and the shell in it.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use super::build::{Image, Module};
use super::network::TAP;
use super::sockets::{self, Socket, TABLES};
use crate::process::ends_with_this;

/// Without hardware virtualisation, on a machine that does other things as well.
const BOOT: Duration = Duration::from_secs(180);
/// How long a command of the guest's may take. Programs run beside them.
const PATIENCE: Duration = Duration::from_secs(90);
/// A program is ended by the host. This is for those that it has forgotten.
const IN_TIME: &str = "timeout -s KILL 300";

/// It ends with this.
#[derive(Debug)]
pub(super) struct Guest {
    qemu: Child,
    /// What is on the wire, as QEMU writes it down.
    wire: PathBuf,
    console: UnixStream,
    /// What has come of it and was not looked at.
    heard: Vec<u8>,
    /// The number of the last command.
    asked: u32,
    is_silent: bool,
    /// It is of no use for what comes next.
    is_given_up: bool,
}

impl Guest {
    /// Boots it with this build of siw, and waits for its shell. What is on the wire goes to this file.
    pub(super) fn boot(image: &Image, module: &Module, wire: &Path) -> Result<Self, String> {
        let (console, theirs) = UnixStream::pair().map_err(|error| error.to_string())?;
        let copy = theirs.try_clone().map_err(|error| error.to_string())?;
        let mut qemu = ends_with_this("qemu-system-x86_64");
        // KVM would be faster, and is not on every machine that has /dev/kvm what QEMU expects.
        qemu.args(["-accel", "tcg,thread=multi", "-cpu", "max", "-m", "512"]);
        qemu.args(["-nodefaults", "-no-reboot", "-display", "none", "-serial", "stdio"]);
        qemu.arg("-kernel").arg(&image.kernel).arg("-initrd").arg(&image.initramfs);
        qemu.arg("-append").arg(format!("console=ttyS0 quiet panic=-1 siw={}", module.file));
        let tap = format!("tap,id=net,ifname={TAP},script=no,downscript=no");
        qemu.args(["-netdev", &tap, "-device", "e1000,netdev=net", "-object"]);
        qemu.arg(format!("filter-dump,id=wire,netdev=net,file={}", wire.display()));
        qemu.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::from(OwnedFd::from(copy)));
        let child = qemu.spawn().map_err(|error| format!("qemu-system-x86_64: {error}"))?;
        // With its ends of the console, whose end would not be seen else.
        drop(qemu);
        let mut guest = Guest::new(child, console, wire);
        guest.until(BOOT, |line| (line == "READY").then_some(()))?;
        Ok(guest)
    }

    fn new(qemu: Child, console: UnixStream, wire: &Path) -> Guest {
        Guest {
            qemu,
            wire: wire.to_owned(),
            console,
            heard: Vec::new(),
            asked: 0,
            is_silent: false,
            is_given_up: false,
        }
    }

    /// What a command of the guest's shell says, and whether it succeeds.
    pub(super) fn run(&mut self, command: &str) -> Result<(bool, String), String> {
        if self.is_silent {
            return Err("the guest was silent".to_owned());
        }
        self.asked += 1;
        let line = format!("{} {command}\n", self.asked);
        let written = self.console.write_all(line.as_bytes());
        let answered = match written {
            Ok(()) => self.answer(self.asked),
            Err(error) => Err(error.to_string()),
        };
        self.is_silent |= answered.is_err();
        answered.map_err(|why| format!("{why}\nit was told: {command}"))
    }

    /// The answer to the command of this number.
    fn answer(&mut self, asked: u32) -> Result<(bool, String), String> {
        loop {
            let (said, (number, is_done)) = self.until(PATIENCE, answer)?;
            // Else it is that of a command that has taken too long.
            if number == asked {
                return Ok((is_done, said));
            }
        }
    }

    /// Whether it has not answered once. It is not asked again.
    pub(super) fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// Whether another is to be booted.
    pub(super) fn is_lost(&self) -> bool {
        self.is_silent || self.is_given_up
    }

    /// Begins a program, which goes on while other commands run; the one of this name is over.
    pub(super) fn start(&mut self, name: &str, line: &str) -> Result<(), String> {
        // In a process group of its own, whose number is that of its shell.
        let begin = format!(
            "rm -f /tmp/{name}.*; setsid sh -c 'echo $$ > /tmp/{name}.group; {IN_TIME} {line}; \
             echo $? > /tmp/{name}.ended' > /tmp/{name}.said 2>&1 &"
        );
        self.run(&begin).map(drop)
    }

    /// Whether it has ended, and if so, whether it has succeeded.
    pub(super) fn ended(&mut self, name: &str) -> Result<Option<bool>, String> {
        let (_, status) = self.run(&format!("cat /tmp/{name}.ended 2> /dev/null"))?;
        let status = status.trim();
        Ok((!status.is_empty()).then_some(status == "0"))
    }

    /// What it has said.
    pub(super) fn said(&mut self, name: &str) -> Result<String, String> {
        Ok(self.run(&format!("cat /tmp/{name}.said"))?.1)
    }

    /// Ends it, if it has not ended, with what it has begun.
    pub(super) fn end(&mut self, name: &str) -> Result<(), String> {
        self.run(&format!("kill -9 -$(cat /tmp/{name}.group) 2> /dev/null")).map(drop)
    }

    /// Its TCP sockets.
    pub(super) fn sockets(&mut self) -> Result<Vec<Socket>, String> {
        let [tcp, tcp6] = TABLES;
        Ok(sockets::of(&self.run(&format!("cat {tcp} {tcp6}"))?.1))
    }

    /// It is of no use for what comes next.
    pub(super) fn give_up(&mut self) {
        self.is_given_up = true;
    }

    /// What its kernel has said since it was asked last.
    pub(super) fn kernel_said(&mut self) -> Result<String, String> {
        Ok(self.run("dmesg -c")?.1)
    }

    /// The lines that it says before one that is what is looked for, and what that is.
    fn until<T>(
        &mut self,
        patience: Duration,
        is_it: impl Fn(&str) -> Option<T>,
    ) -> Result<(String, T), String> {
        let until = Instant::now() + patience;
        let mut said: Vec<String> = Vec::new();
        loop {
            match self.line(until) {
                Ok(line) => match is_it(&line) {
                    Some(found) => return Ok((said.join("\n"), found)),
                    None => said.push(line),
                },
                Err(why) => {
                    let last = said[said.len().saturating_sub(8)..].join("\n");
                    return Err(format!("{why}: {last}"));
                }
            }
        }
    }

    /// The next line of it.
    fn line(&mut self, until: Instant) -> Result<String, String> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err("the guest is silent".to_owned());
            }
            if let Some(end) = self.heard.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.heard.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
            self.console.set_read_timeout(Some(left)).map_err(|error| error.to_string())?;
            let mut bytes = [0; 4_096];
            match self.console.read(&mut bytes) {
                Ok(0) => return Err("the guest has ended".to_owned()),
                Ok(length) => self.heard.extend(&bytes[..length]),
                Err(error) if is_passing(error.kind()) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
    }
}

/// A line that ends an answer: `=== NUMBER STATUS`. Its number, and whether the command has succeeded.
fn answer(line: &str) -> Option<(u32, bool)> {
    let (number, status) = line.strip_prefix("=== ")?.split_once(' ')?;
    Some((number.parse().ok()?, status == "0"))
}

fn is_passing(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
        let _ = fs::remove_file(&self.wire);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::thread;

    /// A guest whose console answers with this.
    fn guest(answers: &'static str) -> Guest {
        let (console, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(answers.as_bytes()).unwrap();
        // Its end stays open a while.
        thread::spawn(move || {
            let _ = theirs.read_to_end(&mut Vec::new());
        });
        let qemu = Command::new("true").spawn().unwrap();
        Guest::new(qemu, console, Path::new("no file"))
    }

    #[test]
    fn answers_are_those_of_their_commands() {
        let mut guest = guest("a\n=== x\n\n=== 1 0\n\n=== 2 1\nb\n\n=== 3 0\n");
        assert_eq!(guest.run("first"), Ok((true, "a\n=== x\n".to_owned())));
        // The second was not waited for.
        guest.asked += 1;
        assert_eq!(guest.run("third"), Ok((true, "b\n".to_owned())));
    }

    #[test]
    fn patience_ends_whatever_comes_meanwhile() {
        let (console, mut theirs) = UnixStream::pair().unwrap();
        thread::spawn(move || while theirs.write_all(b"a\n").is_ok() {});
        let qemu = Command::new("true").spawn().unwrap();
        let mut guest = Guest::new(qemu, console, Path::new("no file"));
        let heard = guest.until(Duration::from_millis(50), answer);
        assert!(heard.unwrap_err().contains("silent"));
    }
}
