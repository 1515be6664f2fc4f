//! Verbs: unmodified programs under `wharf run --rdma`, as an ordinary user, on two hosts.

mod abi;
mod containers;
mod ends;
mod files;
mod iscsi;
mod limits;
mod lives;
mod manager;
mod measured;
mod mpi;
mod nic;
mod operations;
mod order;
mod pages;
mod programs;
mod qemu;
mod refusals;
mod service;
mod settings;
mod slow;
mod symbols;
mod verbs;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use testkit::lab::{Ended, Host, Program, Wire, have, wait_until};

use crate::setup::{Ip, PEER, WIRE, give, wharf};

/// Whom programs run as where the tests run as root.
const USER: &str = "65534";

/// A client and a server, each with its own device, joined by a wire.
struct Pair {
    /// Before the hosts, so that they end before them.
    wharfs: Vec<Program>,
    client: Host,
    server: Host,
    /// Programs keep the rights of the tests.
    is_root: bool,
    /// The client's programs run at the server, too.
    is_one_host: bool,
    /// Namespaces of wharf and the program, and those of the program alone: words of unshare(1) or taskset(1), or none.
    pod: &'static [&'static str],
    container: &'static [&'static str],
}

/// The newest library that is built.
fn library() -> PathBuf {
    let folder = Path::new(env!("CARGO_BIN_EXE_wharf")).parent().unwrap();
    let built = ["deps/libwharf_rdma.so", "libwharf_rdma.so"].map(|name| folder.join(name));
    let newest = built
        .into_iter()
        .filter(|path| path.exists())
        .max_by_key(|path| path.metadata().and_then(|file| file.modified()).unwrap());
    newest.expect("libwharf_rdma.so is built with the tests")
}

/// Programs of verbs: files in this folder.
const SOURCES: [&str; 15] = [
    "abi.c",
    "apart.c",
    "calls.c",
    "killed.c",
    "limits.c",
    "manager.c",
    "newer.c",
    "operations.c",
    "order.c",
    "peer.c",
    "random.c",
    "slow.c",
    "threads.c",
    "verbs.c",
    "waits.c",
];

/// The program that is made of a file in this folder: once, however many tests run it. It stays where all is that is built,
/// so that ordinary users may run it. `None`, and a word why, where there is no compiler.
fn built(source: &str) -> Option<&'static str> {
    static ALL: [OnceLock<String>; SOURCES.len()] = [const { OnceLock::new() }; SOURCES.len()];
    if !have(&["gcc"]) {
        return None;
    }
    let at = SOURCES.iter().position(|of| *of == source).expect("it is one of them");
    Some(ALL[at].get_or_init(|| build(source)))
}

fn build(source: &str) -> String {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let program = folder.join(format!("rdma-{}", source.trim_end_matches(".c")));
    // Another run may make it, and run it, at the same time.
    let own = program.with_extension(std::process::id().to_string());
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/rdma").join(source);
    let mut gcc = Command::new("gcc");
    gcc.args(["-Wall", "-Werror", "-O1", "-o"]).arg(&own).arg(source);
    let built = gcc.args(["-libverbs", "-lrdmacm", "-lpthread"]).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    fs::rename(&own, &program).unwrap();
    program.into_os_string().into_string().unwrap()
}

/// A folder that programs may write to, and that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("wharf-{name}-{}", std::process::id()));
        // One that was killed may have had the same process id.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        Folder(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Without any capability: a user of its own if this is root.
fn as_user(words: &[&str]) -> Command {
    within(&[], words)
}

/// The same of wharf in these namespaces: words of unshare(1), or none.
fn within(namespaces: &[&str], words: &[&str]) -> Command {
    let wharf = wharf();
    let program = wharf.get_program().to_str().unwrap();
    with_libraries(ordinary(&[namespaces, &[program], words].concat()))
}

fn with_libraries(mut command: Command) -> Command {
    // A device's, where a NIC runs.
    command.env("WHARF_LIBRARY", crate::handoff::library());
    command.env("WHARF_RDMA_LIBRARY", library()).env_remove("RUST_BACKTRACE");
    command
}

/// A program without any capability, of a user of its own if this is root.
fn ordinary(words: &[&str]) -> Command {
    let drop = ["setpriv", "--reuid", USER, "--regid", USER, "--clear-groups", "--no-new-privs"];
    let drop = [&drop[..], &["--bounding-set", "-all", "--inh-caps", "-all"]].concat();
    let words = if sys::process::is_root() { [&drop, words].concat() } else { words.to_vec() };
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    command
}

impl Pair {
    /// `None`, and a word why, where these programs are not, or no hosts can be made.
    fn new(programs: &[&str]) -> Option<Pair> {
        if !have(programs) || !have(&["setpriv"]) {
            return None;
        }
        let (client, server) = (Host::new()?, Host::new()?);
        let wire = Wire { near: PEER, far: WIRE, mtu: 9000, queues: 1, offloads: true };
        wire.lay(&client, &server);
        give(&client, PEER, &Ip::BOTH, Ip::client);
        give(&server, WIRE, &Ip::BOTH, Ip::server);
        Some(Pair::of(Vec::new(), client, server))
    }

    fn of(wharfs: Vec<Program>, client: Host, server: Host) -> Pair {
        let (is_root, is_one_host) = (false, false);
        Pair { wharfs, client, server, is_root, is_one_host, pod: &[], container: &[] }
    }

    fn run(&self, words: &[&str]) -> Command {
        let mut run = match self.is_root {
            true => with_libraries(wharf()),
            false => within(self.pod, &[]),
        };
        run.args(["run", "--rdma", "--"]).args(self.container).args(words);
        // Some that crash leave a file where they are (libfabric's provider psm3).
        run.env_remove("WHARF_RDMA").current_dir(std::env::temp_dir());
        run
    }

    /// A program of the server's, once something listens at this port: that of one before has ended.
    fn serve(&self, port: u16, words: &[&str]) -> Program {
        self.serve_by(port, &mut self.run(words))
    }

    fn serve_by(&self, port: u16, run: &mut Command) -> Program {
        assert!(wait_until(|| !listens(&self.server, port)), "{run:?}: {port} is in use");
        let mut server = self.server.spawn(run);
        let is_up = wait_until(|| !server.runs() || listens(&self.server, port));
        assert!(is_up && server.runs(), "{}", server.wait());
        server
    }

    /// A program of the client's, to its end.
    fn call(&self, words: &[&str]) -> Ended {
        let host = if self.is_one_host { &self.server } else { &self.client };
        host.output(&mut self.run(words))
    }

    /// Server and client to their ends, which are good.
    fn both(&self, port: u16, server: &[&str], client: &[&str]) -> (Ended, Ended) {
        let server = self.serve(port, server);
        let client = self.call(client);
        assert!(client.status.success(), "{client}\nat the server: {}", server.errors());
        let server = server.wait();
        assert!(server.status.success(), "{server}\nat the client: {client}");
        (server, client)
    }
}

/// Whether a TCP socket listens at this port.
fn listens(host: &Host, port: u16) -> bool {
    const LISTEN: &str = "0A";
    let suffix = format!(":{port:04X}");
    let read = |table| fs::read_to_string(table).unwrap();
    let tables = host.run(|| ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"].map(read));
    tables.iter().flat_map(|table| table.lines()).any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.get(1).is_some_and(|local| local.ends_with(&suffix)) && words.get(3) == Some(&LISTEN)
    })
}
