//! The guest, and the shell in it.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::build::{Image, Module};
use super::network::TAP;

/// Without hardware virtualisation, on a machine that does other things as well.
const BOOT: Duration = Duration::from_secs(180);
/// How long a command of the guest's may take.
const PATIENCE: Duration = Duration::from_secs(90);
/// A program that is to be found to hang is ended by this in the guest.
pub(super) const IN_TIME: &str = "timeout -s KILL 40";

/// It ends with this.
#[derive(Debug)]
pub(super) struct Guest {
    qemu: Child,
    console: UnixStream,
}

impl Guest {
    /// Boots it, and waits for its shell.
    pub(super) fn boot(image: &Image) -> Result<Self, String> {
        let (console, theirs) = UnixStream::pair().map_err(|error| error.to_string())?;
        let copy = theirs.try_clone().map_err(|error| error.to_string())?;
        let mut qemu = Command::new("qemu-system-x86_64");
        // KVM would be faster, and is not on every machine that has /dev/kvm what QEMU expects.
        qemu.args(["-accel", "tcg,thread=multi", "-cpu", "max", "-m", "512"]);
        qemu.args(["-nodefaults", "-no-reboot"]);
        qemu.args([
            "-display",
            "none",
            "-serial",
            "stdio",
            "-append",
            "console=ttyS0 quiet panic=-1",
        ]);
        qemu.arg("-kernel").arg(&image.kernel).arg("-initrd").arg(&image.initramfs);
        let wire = format!("tap,id=net,ifname={TAP},script=no,downscript=no");
        qemu.args(["-netdev", &wire, "-device", "e1000,netdev=net"]);
        qemu.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::from(OwnedFd::from(copy)));
        let child = qemu.spawn().map_err(|error| format!("qemu-system-x86_64: {error}"))?;
        // With its ends of the console, whose end would not be seen else.
        drop(qemu);
        let mut guest = Guest { qemu: child, console };
        guest.until("READY", BOOT)?;
        Ok(guest)
    }

    /// What a command of the guest's shell says, and whether it succeeds.
    pub(super) fn run(&mut self, command: &str) -> Result<(bool, String), String> {
        // The console says what it hears, too.
        let line = format!("{command}\n");
        self.console.write_all(line.as_bytes()).map_err(|error| error.to_string())?;
        let said = self.until("\n=== ", PATIENCE)?;
        let status = self.until("\n", PATIENCE)?;
        let said = said.split_once('\n').map_or("", |(_, said)| said).replace('\r', "");
        Ok((status.trim() == "0", said))
    }

    /// Has this build of siw instead of the one that it has.
    pub(super) fn load(&mut self, module: &Module) -> Result<(), String> {
        let name = module.file;
        let swap = format!(
            "rdma link delete siw0; rmmod siw && insmod /modules/{name} && \
             rdma link add siw0 type siw netdev eth0"
        );
        match self.run(&swap)? {
            (true, _) => Ok(()),
            (false, why) => Err(format!("{name}: {why}")),
        }
    }

    /// Waits until something listens on this port.
    pub(super) fn listens(&mut self, port: u16) -> Result<bool, String> {
        self.becomes(&format!("grep -q ':{port:04X} [0-9A-F:]* 0A' /proc/net/tcp /proc/net/tcp6"))
    }

    /// Waits until nothing does any more: a server that was killed may still.
    pub(super) fn listens_no_more(&mut self, port: u16) -> Result<bool, String> {
        self.becomes(&format!("! grep -q ':{port:04X} [0-9A-F:]* 0A' /proc/net/tcp /proc/net/tcp6"))
    }

    /// Waits until a file says this.
    pub(super) fn comes(&mut self, file: &str, what: &str) -> Result<bool, String> {
        self.becomes(&format!("grep -q '{what}' {file}"))
    }

    /// Waits until a command succeeds.
    fn becomes(&mut self, command: &str) -> Result<bool, String> {
        let line = format!("timeout 30 sh -c \"until {command}; do sleep 0.1; done\"");
        Ok(self.run(&line)?.0)
    }

    /// Connections whose bytes have come and were not read, as siw leaves them that has missed that they came; and what siw has
    /// said since it was asked last.
    pub(super) fn symptoms(&mut self) -> Result<String, String> {
        // The fields of /proc/net/tcp: number, local, remote, state (01: established), tx_queue:rx_queue.
        let unread = "awk '$4 == \"01\" && $5 !~ /:00000000$/ { print \"not read: \" $2, $3, $5 }' \
                      /proc/net/tcp; dmesg -c | grep -i -e siw -e WARN";
        Ok(self.run(unread)?.1)
    }

    /// What it says up to this.
    fn until(&mut self, end: &str, patience: Duration) -> Result<String, String> {
        let begun = Instant::now();
        let mut said = Vec::new();
        loop {
            let left = patience.saturating_sub(begun.elapsed()).max(Duration::from_millis(1));
            self.console.set_read_timeout(Some(left)).map_err(|error| error.to_string())?;
            let mut byte = [0];
            match self.console.read(&mut byte) {
                Ok(1) => said.push(byte[0]),
                Ok(_) => return Err(format!("the guest has ended: {}", tail(&said))),
                Err(error) => {
                    return Err(format!("the guest is silent ({error}): {}", tail(&said)));
                }
            }
            if said.ends_with(end.as_bytes()) {
                said.truncate(said.len() - end.len());
                return Ok(String::from_utf8_lossy(&said).into_owned());
            }
        }
    }
}

/// The last lines of it.
fn tail(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(8)..].join("\n")
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}
