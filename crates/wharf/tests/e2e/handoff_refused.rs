//! `wharf run` runs a program whose connections it can take over, or says in one line why not: it never runs one in vain.

use std::fs::{self, Permissions};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::PathBuf;
use std::process::Command;

use sys::packets::PacketListener;
use testkit::lab::{Host, have, wait_until};
use testkit::missing::lacks;

use crate::handoff::library;
use crate::setup::{Plan, Port, wharf};

/// Some ordinary user.
const USER: &str = "4242";
/// Who loads a library into a program, on Debian.
const LINKER: &[u8] = b"/lib64/ld-linux-x86-64.so.2\0";

/// `wharf run`, with the library that the tests have built.
fn runs(words: &[&str]) -> Command {
    let mut command = wharf();
    command.env("WHARF_LIBRARY", library()).arg("run").args(words);
    command
}

/// It says so in one line, and nothing has been run.
fn is_refused(host: &Host, command: &mut Command, part: &str) {
    let ended = host.output(command);
    assert_eq!((ended.status.code(), &*ended.stdout), (Some(2), ""), "{ended}");
    let line = ended.stderr.trim_end();
    assert!(line.starts_with("wharf: ") && line.contains(part), "{part}: {ended}");
    assert!(!line.contains('\n'), "{ended}");
}

/// A folder of programs that all users may run.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("wharf-e2e-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    /// The same with wharf and its library in it, as an installation has them.
    fn installed(name: &str) -> Folder {
        let folder = Folder::new(name);
        folder.put("wharf", &fs::read(env!("CARGO_BIN_EXE_wharf")).unwrap(), 0o755);
        folder.put("libwharf.so", &fs::read(library()).unwrap(), 0o755);
        folder
    }

    /// `wharf run` as an ordinary user.
    fn runs_as_user(&self, words: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", USER, "--regid", USER, "--clear-groups"]);
        command.arg(self.0.join("wharf")).arg("run").args(words).env_remove("RUST_BACKTRACE");
        command
    }

    fn put(&self, name: &str, bytes: &[u8], mode: u32) -> String {
        let path = self.0.join(name);
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The beginning of a program (elf(5)), with one segment if it asks for a linker.
fn elf(class: u8, linker: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 64 + 56];
    bytes[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1, 1]);
    (bytes[16], bytes[18], bytes[32], bytes[54]) = (3, 62, 64, 56);
    if !linker.is_empty() {
        (bytes[56], bytes[64], bytes[72], bytes[96]) = (1, 3, 120, linker.len() as u8);
        bytes.extend_from_slice(linker);
    }
    bytes
}

#[test]
fn what_cannot_be_run_so_is_refused_in_one_line() {
    let Some(up) = Plan::new(Port::Auto).up_with(&["--set", "workers=1"]) else { return };
    let refused = |words: &[&str], part| is_refused(&up.hosts.server, &mut runs(words), part);
    refused(&["--", "no-such-program"], "there is no program no-such-program");
    refused(&["--policy", "sometimes", "--", "true"], "no policy is called `sometimes`");
    refused(&["--nic", "nic9", "--", "true"], "no wharf has the host interface nic9");
    let mut with_policy = runs(&["--", "true"]);
    with_policy.env("WHARF_HANDOFF_POLICY", "seldom");
    is_refused(&up.hosts.server, &mut with_policy, "WHARF_HANDOFF_POLICY: no policy is called");
    // Another network namespace.
    is_refused(
        &up.hosts.client,
        &mut runs(&["--", "true"]),
        "no wharf runs in this network namespace",
    );
    // No library, or none that is of this build.
    for (library, part) in [("/no/such", "there is no such file"), ("/bin/true", "another build")] {
        let mut without = runs(&["--", "true"]);
        without.env("WHARF_LIBRARY", library);
        is_refused(&up.hosts.server, &mut without, part);
    }
    let folder = Folder::new("alone");
    let own = folder.put("wharf", &fs::read(env!("CARGO_BIN_EXE_wharf")).unwrap(), 0o755);
    let mut alone = Command::new(own);
    alone.args(["run", "--", "true"]);
    is_refused(&up.hosts.server, &mut alone, "there is no libwharf.so beside");
    // That it can be run so is shown by what runs.
    let ended = up.hosts.server.output(&mut runs(&["--", "sh", "-c", "echo $LD_PRELOAD"]));
    assert!(ended.status.success() && ended.stdout.contains("/libwharf.so"), "{ended}");
}

#[test]
fn programs_into_which_no_library_is_loaded_are_refused() {
    let Some(up) = Plan::new(Port::Auto).up_with(&["--set", "workers=1"]) else { return };
    let folder = Folder::new("programs");
    // Without that word those of the library's kind alone are refused by it.
    let refused = |program: &str, part: &str| {
        let words = ["--bypass", "preload", "--", program];
        is_refused(&up.hosts.server, &mut runs(&words), part);
    };
    let musl = b"/lib/ld-musl-x86_64.so.1\0";
    for (name, bytes, part) in [
        ("static", elf(2, b""), "it is statically linked"),
        ("narrow", elf(1, LINKER), "of 32 bits or for another machine"),
        ("musl", elf(2, musl), "another libc than glibc"),
        ("text", b"exit\n".to_vec(), "neither a program (ELF) nor a script"),
    ] {
        let path = folder.put(name, &bytes, 0o755);
        refused(&path, part);
        let script = folder.put("script", format!("#!{path}\n").as_bytes(), 0o755);
        refused(&script, &format!("of its interpreter {path}: "));
        let by_env = format!("#!/usr/bin/env {path}\n");
        refused(&folder.put("by-env", by_env.as_bytes(), 0o755), part);
        if matches!(name, "static" | "musl") {
            refused(&path, "leave --bypass out, or use --bypass pair");
        }
        if name == "musl" {
            let both = ["--bypass", "both", "--", &path];
            is_refused(&up.hosts.server, &mut runs(&both), "use --bypass pair");
        }
        if matches!(name, "narrow" | "text") {
            is_refused(&up.hosts.server, &mut runs(&["--", &path]), part);
            is_refused(&up.hosts.server, &mut runs(&["--bypass", "pair", "--", &path]), part);
        }
    }
    let script = folder.put("good", b"#!/bin/sh\necho runs\n", 0o755);
    let ended = up.hosts.server.output(&mut runs(&["--", &script]));
    assert_eq!(ended.stdout, "runs\n", "{ended}");
}

/// The dynamic linker loads nothing into a program by which its user gains rights.
#[test]
fn programs_that_give_rights_are_refused() {
    if !have(&["setpriv", "python3"]) || !sys::process::has_bpf() {
        return;
    }
    let Some(up) = Plan::new(Port::Auto).up_with(&["--set", "workers=1"]) else { return };
    let folder = Folder::installed("rights");
    let program = fs::read("/bin/true").unwrap();
    let as_user = |program: &str| folder.runs_as_user(&["--", program]);
    let plain = folder.put("plain", &program, 0o755);
    let ended = up.hosts.server.output(&mut as_user(&plain));
    assert!(ended.status.success() && ended.stderr.is_empty(), "{ended}");
    let set_uid = folder.put("set-uid", &program, 0o4755);
    is_refused(&up.hosts.server, &mut as_user(&set_uid), "it is setuid");
    is_refused(&up.hosts.server, &mut as_user(&set_uid), ": run wharf as root, its owner");
    let by_pair = &mut folder.runs_as_user(&["--bypass", "pair", "--", &set_uid]);
    is_refused(&up.hosts.server, by_pair, "it is out of reach: run wharf as root, its owner");
    // Root gains nothing by it.
    let ended = up.hosts.server.output(&mut runs(&["--", &set_uid]));
    assert!(ended.status.success() && ended.stderr.is_empty(), "{ended}");
    let of_another = folder.put("of-another", &program, 0o755);
    chown(&of_another, Some(4_243), Some(4_243)).unwrap();
    fs::set_permissions(&of_another, Permissions::from_mode(0o4755)).unwrap();
    is_refused(&up.hosts.server, &mut runs(&["--", &of_another]), "it is setuid");
    is_refused(&up.hosts.server, &mut runs(&["--", &of_another]), "run wharf as user 4243");
    fs::set_permissions(&of_another, Permissions::from_mode(0o2755)).unwrap();
    is_refused(&up.hosts.server, &mut as_user(&of_another), "it is setgid");
    is_refused(&up.hosts.server, &mut as_user(&of_another), "run a copy of it without that bit");
    let capable = folder.put("capable", &program, 0o755);
    // CAP_NET_BIND_SERVICE, permitted and in effect (`struct vfs_cap_data`).
    let set = "import os, sys, struct\n\
               value = struct.pack('<5I', 0x02000001, 1 << 10, 0, 0, 0)\n\
               os.setxattr(sys.argv[1], 'security.capability', value)";
    up.hosts.server.succeed("python3", &["-c", set, &capable]);
    is_refused(&up.hosts.server, &mut as_user(&capable), "it has file capabilities");
    let script = folder.put("script", format!("#!{capable}\n").as_bytes(), 0o4755);
    is_refused(&up.hosts.server, &mut as_user(&script), &format!("of its interpreter {capable}"));
    // The bit on a script gives nothing.
    let script = folder.put("script", b"#!/bin/sh\n", 0o4755);
    let ended = up.hosts.server.output(&mut as_user(&script));
    assert!(ended.status.success() && ended.stderr.is_empty(), "{ended}");
}

#[test]
fn a_wharf_that_one_may_not_ask_or_that_takes_nothing_over_is_told_of() {
    if !have(&["setpriv"]) || !sys::process::has_bpf() {
        return;
    }
    let Some(hosts) = Plan::new(Port::Auto).hosts() else { return };
    let true_ = &["--", "true"];
    is_refused(&hosts.server, &mut runs(true_), "no wharf runs in this network namespace");
    let folder = Folder::installed("asks");
    for (words, part) in [
        (["--set", "control.mode=0600"], "you may not ask the wharf of host0"),
        (
            ["--set", "handoff.connections=0"],
            "takes no connections over: it needs handoff.connections",
        ),
    ] {
        let wharf = hosts.wharf_up(&[&["--set", "workers=1"], &words[..]].concat());
        is_refused(&hosts.server, &mut folder.runs_as_user(true_), part);
        drop(wharf);
    }
    // An ordinary user's wharf is not root's to ask.
    let name = format!("wharf/{}", crate::setup::HOST);
    let address = SocketAddr::from_abstract_name(name).unwrap();
    let listens = || UnixListener::bind_addr(&address).unwrap();
    let of_user = || sys::process::run_as(4_242, listens).unwrap();
    let _stranger = hosts.server.run(of_user);
    is_refused(&hosts.server, &mut runs(true_), "belongs to user 4242");
}

/// A server and its client.
const CONNECTS: &str = "
import socket
s = socket.create_server(('127.0.0.1', 0))
c = socket.create_connection(s.getsockname())
s.accept()[0].sendall(b'x')
print(c.recv(1))
";

/// Any process may take the name that an ordinary user's wharf had.
#[test]
fn a_stranger_is_offered_nothing() {
    if !sys::process::is_root() {
        return lacks("root");
    }
    let Some(host) = Host::new().filter(|_| have(&["python3"])) else { return };
    for (user, is_trusted) in [(4_242, false), (0, true)] {
        let name = format!("of-user-{user}");
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let listens = || PacketListener::bind(&address).unwrap();
        let listener = host.run(|| sys::process::run_as(user, listens)).unwrap();
        let mut python = Command::new("python3");
        python.env("LD_PRELOAD", library()).env("WHARF_HANDOFF", format!("@{name}"));
        python.env("WHARF_HANDOFF_POLICY", "at_accept");
        let program = host.spawn(python.args(["-c", CONNECTS]));
        let mut came = None;
        assert!(wait_until(|| {
            came = came.take().or_else(|| listener.accept().ok());
            came.is_some()
        }));
        let (came, mut heard) = (came.unwrap(), None);
        assert!(wait_until(|| {
            heard = came.receive(&mut [0; 256]).ok();
            heard.is_some()
        }));
        assert_eq!(heard.unwrap().len > 0, is_trusted, "user {user}");
        drop((came, listener));
        let ended = program.wait();
        assert_eq!((ended.status.success(), &*ended.stdout), (true, "b'x'\n"), "{ended}");
    }
}
