//! The guest, and the shell in it.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::build::Image;

/// Without hardware virtualisation, on a machine that does other things as well.
const BOOT: Duration = Duration::from_secs(180);
/// How long a command of the guest's may take.
const PATIENCE: Duration = Duration::from_secs(90);
/// How the guest reaches this machine's loopback interface.
pub(super) const HOST: &str = "10.0.2.2";

/// A port of the guest's, and the one by which this machine reaches it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Forwarded {
    pub(super) guest: u16,
    pub(super) here: u16,
}

/// Those of rping and perftest.
pub(super) const PORTS: [Forwarded; 2] =
    [Forwarded { guest: 7_471, here: 27_471 }, Forwarded { guest: 18_515, here: 28_515 }];

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
        let forwards = PORTS
            .map(|Forwarded { guest, here }| format!(",hostfwd=tcp:127.0.0.1:{here}-:{guest}"))
            .concat();
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
        qemu.args(["-netdev", &format!("user,id=net{forwards}"), "-device", "e1000,netdev=net"]);
        qemu.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::from(OwnedFd::from(copy)));
        let qemu = qemu.spawn().map_err(|error| format!("qemu-system-x86_64: {error}"))?;
        let mut guest = Guest { qemu, console };
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
