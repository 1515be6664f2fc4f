//! One script, in a network namespace of its own.

use std::fmt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Against what a script runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stack {
    /// The local kernel, in real time.
    Kernel,
    /// The engine, in virtual time.
    Engine,
}

/// Whether it passed, and if not, what packetdrill said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It did.
    Passed,
    /// It did not, for this reason.
    Failed(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Verdict::Passed { "passed" } else { "failed" })
    }
}

/// Most time that a script may take. The kernel's run in real time, and some wait for a minute.
const LIMIT: [(Stack, Duration); 2] =
    [(Stack::Kernel, Duration::from_secs(180)), (Stack::Engine, Duration::from_secs(30))];

/// The kernel's own defaults, whatever this machine says: scripts know the window scale by them. The
/// scripts of google/packetdrill and Linux set more by their defaults.sh.
const PREPARE: &str = "\
ip link set lo up
sysctl -qw net.ipv4.tcp_rmem='4096 131072 6291456' net.ipv4.tcp_wmem='4096 16384 4194304'
";

/// defaults.sh speaks of packetdrill's interface, which the engine has no use for. A veth has
/// TSO, as that interface has, until a script switches it off.
const INTERFACE: &str = "\
ip link add tun0 type veth peer name tun1
ip address add 192.168.0.1/16 dev tun0
ip link set tun0 up
";

/// What the runners of both collections of scripts pass for IPv4.
const ARGUMENTS: [&str; 17] = [
    "--ip_version=ipv4",
    "--local_ip=192.168.0.1",
    "--gateway_ip=192.168.0.1",
    "--netmask_ip=255.255.0.0",
    "--remote_ip=192.0.2.1",
    "-D",
    "TFO_COOKIE=3021b9d889017eeb",
    "-D",
    "TFO_COOKIE_ZERO=b7c12350a90dc8f5",
    "-D",
    "CODE=host_unreachable",
    "-D",
    "CMSG_LEVEL_IP=SOL_IP",
    "-D",
    "CMSG_TYPE_RECVERR=IP_RECVERR",
    "-D",
    "CMSG_LEVEL_TCP=SOL_TCP",
];

/// How often a script is tried whose packets came at other times than it says. The kernel's time is that
/// of this machine, which has other things to do as well.
const TRIES: u32 = 3;

/// Runs a script.
pub(super) fn run(binary: &Path, script: &Path, stack: Stack, object: &Path) -> Verdict {
    let mut verdict = run_once(binary, script, stack, object);
    for _ in 1..TRIES {
        match &verdict {
            Verdict::Failed(why) if stack == Stack::Kernel && why.contains("timing error") => {
                verdict = run_once(binary, script, stack, object);
            }
            _ => break,
        }
    }
    verdict
}

fn run_once(binary: &Path, script: &Path, stack: Stack, object: &Path) -> Verdict {
    let limit =
        LIMIT.iter().find(|(known, _)| *known == stack).map_or(LIMIT[0].1, |(_, limit)| *limit);
    let log = std::env::temp_dir().join(format!(
        "packetdrill-{}-{:?}.log",
        std::process::id(),
        std::thread::current().id()
    ));
    let outcome = spawn(binary, script, stack, object, &log).and_then(|child| wait(child, limit));
    let said = std::fs::read(&log).unwrap_or_default();
    // It is not read again.
    let _ = std::fs::remove_file(&log);
    match outcome {
        Err(why) => Verdict::Failed(format!("it cannot be run: {why}")),
        Ok(None) => Verdict::Failed(format!("it does not end within {} s", limit.as_secs())),
        Ok(Some(true)) => Verdict::Passed,
        Ok(Some(false)) => Verdict::Failed(reason(&String::from_utf8_lossy(&said))),
    }
}

fn spawn(
    binary: &Path,
    script: &Path,
    stack: Stack,
    object: &Path,
    log: &Path,
) -> std::io::Result<Child> {
    let binary = binary.canonicalize()?;
    let log = std::fs::File::create(log)?;
    let shell = match stack {
        Stack::Kernel => format!("{PREPARE}exec \"$0\" \"$@\""),
        Stack::Engine => format!("{PREPARE}{INTERFACE}exec \"$0\" \"$@\""),
    };
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", &shell, "env"]);
    // For both: the engine's tcp_info is asked for past packetdrill's table, and where the namespace
    // has another congestion control by default, and may not change that, the kernel's sockets are
    // given the one that scripts expect.
    command.arg(format!("LD_PRELOAD={}", object.display()));
    if stack == Stack::Kernel {
        command.arg("WHARF_PACKETDRILL_CONGESTION=cubic");
    }
    command.arg(&binary);
    if stack == Stack::Engine {
        command.arg(format!("--so_filename={}", object.display()));
    }
    command.args(ARGUMENTS).arg(script);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    if let Some(directory) = script.parent() {
        // Scripts call their defaults.sh by a relative path.
        command.current_dir(directory);
    }
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()
}

/// Whether it succeeded; `None` if it had to be killed.
fn wait(mut child: Child, limit: Duration) -> std::io::Result<Option<bool>> {
    let started = Instant::now();
    while started.elapsed() < limit {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.success()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

/// What packetdrill says, without what is said of every script: the line, the complaint, and both
/// packets.
fn reason(said: &str) -> String {
    let complaint = said.lines().position(|line| line.contains(".pkt:"));
    let Some(at) = complaint else {
        let last = said.lines().rev().find(|line| !line.trim().is_empty());
        return last.unwrap_or("it says nothing").trim().to_owned();
    };
    let mut lines = said.lines().skip(at);
    let first = lines.next().unwrap_or_default();
    let first = first.split_once(".pkt:").map_or(first, |(_, rest)| rest);
    let first = first.replace("error handling packet: ", "").replace("live packet field ", "");
    let packets = lines.map(str::trim).filter(|line| {
        line.starts_with("script packet:")
            || line.starts_with("actual packet:")
            || line.starts_with("assert ")
            || line.starts_with("AssertionError")
    });
    let mut out = first.trim().to_owned();
    for packet in packets.take(2) {
        out += "; ";
        out += packet.replace(" packet:", ":").trim();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_the_line_the_complaint_and_both_packets() {
        let said = "sysctl: something else\n/a/b.pkt:14: error handling packet: live packet field \
                    tcp_psh: expected: 0 (0x0) vs actual: 1 (0x1)\n\
                    script packet:  0.1 . 1:2(1) ack 1\nactual packet:  0.1 P. 1:2(1) ack 1\n";
        assert_eq!(
            reason(said),
            "14: tcp_psh: expected: 0 (0x0) vs actual: 1 (0x1); script:  0.1 . 1:2(1) ack 1; \
             actual:  0.1 P. 1:2(1) ack 1"
        );
        assert_eq!(reason("\nSegmentation fault\n\n"), "Segmentation fault");
        assert_eq!(reason(""), "it says nothing");
    }
}
