//! QEMU moves a guest by RDMA (`migrate rdma:`): its memory is the same at the other end.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::{Value, json};
use testkit::lab::{PATIENCE, Program, wait_until};

use super::{Folder, Pair};
use crate::setup::Ip;

/// Where in the guest's memory, and how much of it, is filled.
const FROM: usize = 16 << 20;
const FILLED: usize = 24 << 20;

/// A QEMU whose guest does not run, and its monitor (QMP).
struct Guest {
    _program: Program,
    monitor: BufReader<UnixStream>,
}

impl Guest {
    fn start(program: Program, socket: &Path) -> Guest {
        assert!(wait_until(|| UnixStream::connect(socket).is_ok()), "{}", program.errors());
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut guest = Guest { _program: program, monitor: BufReader::new(stream) };
        guest.ask("qmp_capabilities", &json!({}));
        guest
    }

    /// What a command returns.
    fn ask(&mut self, command: &str, arguments: &Value) -> Value {
        let line = json!({ "execute": command, "arguments": arguments });
        writeln!(self.monitor.get_mut(), "{line}").unwrap();
        // Its greeting and events come in between.
        loop {
            let mut line = String::new();
            let read = self.monitor.read_line(&mut line);
            assert!(matches!(read, Ok(1..)), "{command}: {read:?}");
            let mut said: Value = serde_json::from_str(&line).unwrap();
            assert!(said.get("error").is_none(), "{command}: {said}");
            if let Some(returned) = said.get_mut("return") {
                return returned.take();
            }
        }
    }
}

/// With memory registered chunk by chunk as it is moved, or all of it before (`rdma-pin-all`).
fn migrates(pins_all: bool) {
    const PORT: u16 = 4444;
    let Some(pair) = Pair::new(&["qemu-system-x86_64"]) else { return };
    let folder = Folder::new(if pins_all { "qemu-pinned" } else { "qemu" });
    let content: Vec<u8> = (0..FILLED as u32 / 4)
        .flat_map(|at| at.wrapping_mul(2_654_435_761).rotate_left(at % 32).to_le_bytes())
        .collect();
    fs::write(folder.path("content"), &content).unwrap();
    let qemu = |monitor: &Path, more: &[&str]| {
        let monitor = format!("unix:{},server=on,wait=off", monitor.display());
        let words = ["qemu-system-x86_64", "-S", "-nodefaults", "-display", "none", "-m", "64M"];
        pair.run(&[&words[..], &["-accel", "tcg", "-qmp", &monitor], more].concat())
    };
    let [of_source, of_target] = ["source", "target"].map(|name| folder.path(name));
    let file = folder.path("content").display().to_string();
    let loader = format!("loader,file={file},addr={FROM},force-raw=on");
    let source = pair.client.spawn(&mut qemu(&of_source, &["-device", &loader]));
    let target = pair.server.spawn(&mut qemu(&of_target, &["-incoming", "defer"]));
    let mut source = Guest::start(source, &of_source);
    let mut target = Guest::start(target, &of_target);
    let pinned = json!([{ "capability": "rdma-pin-all", "state": pins_all }]);
    for guest in [&mut source, &mut target] {
        guest.ask("migrate-set-capabilities", &json!({ "capabilities": pinned }));
    }
    let uri = json!({ "uri": format!("rdma:{}:{PORT}", Ip::V4.server()) });
    target.ask("migrate-incoming", &uri);
    source.ask("migrate", &uri);
    let mut last = Value::Null;
    let is_over = wait_until(|| {
        last = source.ask("query-migrate", &json!({}));
        matches!(last["status"].as_str(), Some("completed" | "failed"))
    });
    assert!(is_over && last["status"] == "completed", "{last}");
    let saved = folder.path("saved");
    let save = json!({ "val": FROM, "size": FILLED, "filename": saved.display().to_string() });
    target.ask("pmemsave", &save);
    assert!(fs::read(saved).unwrap() == content, "the guest's memory is another");
}

#[test]
fn a_guest_moves_with_its_memory() {
    migrates(false);
}

#[test]
fn a_guest_moves_with_its_memory_registered_at_once() {
    migrates(true);
}
