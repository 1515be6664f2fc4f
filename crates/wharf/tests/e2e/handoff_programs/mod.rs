//! Programs as users have them, unmodified under `wharf run`: every byte compared, and their connections on the NIC.

mod both;
mod clients;
mod full;
pub(crate) mod http;
mod killed;
mod names;
mod pairs;
mod passed;
mod proxies;
mod sessions;
mod sets;
mod stores;
mod streams;
mod threads;
mod unread;
mod vforked;
pub(crate) mod web;

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use sys::process::Signal;
use testkit::lab::{Host, Program, have, wait_until};

use crate::ends::guards;
use crate::handoff::library;
use crate::setup::{HOST, Hosts, Ip, Plan, Port, WIRE, give, lasting_refusals, wharf};

/// A client, and a server with wharf in front that lends it the wire's addresses.
pub(crate) struct Stage {
    wharf: Program,
    pub(crate) hosts: Hosts,
    pub(crate) folder: Folder,
}

/// A folder that goes with the test.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        let number = std::thread::current().id();
        let name = format!("wharf-programs-{}-{number:?}", std::process::id());
        let path = std::env::temp_dir().join(name.replace(['(', ')'], ""));
        // One that was killed may have had the same process id.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Folder(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left of it is in the folder for what is temporary.
        let _ = fs::remove_dir_all(&self.0);
    }
}

const MORE: [&str; 3] = ["--set", "workers=1", "--take-addresses"];

impl Stage {
    /// `None`, and a word why, where these programs are not, or no hosts can be made.
    pub(crate) fn new(programs: &[&str]) -> Option<Stage> {
        if !have(programs) {
            return None;
        }
        let hosts = Plan::new(Port::Auto).hosts()?;
        give(&hosts.server, WIRE, &Ip::BOTH, Ip::server);
        let wharf = hosts.wharf_up(&MORE);
        Some(Stage { wharf, hosts, folder: Folder::new() })
    }

    /// A program of the server's whose connections wharf may take.
    pub(crate) fn wharf_run(&self, policy: &str, words: &[&str]) -> Command {
        self.wharf_run_with(policy, &[], words)
    }

    /// The same with more options.
    pub(crate) fn wharf_run_with(&self, policy: &str, options: &[&str], words: &[&str]) -> Command {
        let mut run = wharf();
        run.env("WHARF_LIBRARY", library()).current_dir(&self.folder.0);
        run.args(["run", "--policy", policy]).args(options).arg("--").args(words);
        run
    }

    /// The same, once it listens at this port.
    fn serve(&self, policy: &str, port: u16, words: &[&str]) -> Program {
        self.serves(self.wharf_run(policy, words), port)
    }

    /// This one, once it listens.
    pub(crate) fn serves(&self, mut run: Command, port: u16) -> Program {
        let mut server = self.hosts.server.spawn(&mut run);
        let listens = wait_until(|| !server.runs() || listens(&self.hosts, port));
        assert!(listens && server.runs(), "{}", server.wait());
        server
    }

    /// The connections of this port of the server's that are on the NIC.
    fn on_nic(&self, port: u16) -> usize {
        let ended = self.hosts.wharf(&["connections", "--json"]);
        assert!(ended.status.success(), "{ended}");
        let all = ended.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let ends = |one: &Value, end: &str| {
            let end = one[end].as_str().unwrap().parse::<SocketAddr>().unwrap();
            end.port() == port
        };
        all.filter(|one| one["where"] == "nic")
            .filter(|one| ends(one, "local") || ends(one, "remote"))
            .count()
    }

    /// Counters of the handoff that are not zero, for the message of a test that fails.
    pub(crate) fn counters(&self) -> Vec<(String, u64)> {
        let groups = ["handoff", "handoff_refused", "handoff_restored"];
        let all = groups.into_iter().flat_map(|group| {
            self.of_group(group).into_iter().map(move |(name, n)| (format!("{group}.{name}"), n))
        });
        all.filter(|(_, value)| *value > 0).collect()
    }

    fn of_group(&self, group: &str) -> Vec<(String, u64)> {
        let ended = self.hosts.wharf(&["stats", "--json"]);
        assert!(ended.status.success(), "{ended}");
        let stats: Value = serde_json::from_str(&ended.stdout).unwrap();
        let all = stats["counters"].as_array().unwrap().iter();
        all.filter(|entry| entry["group"] == group)
            .map(|entry| {
                (entry["name"].as_str().unwrap().to_owned(), entry["value"].as_u64().unwrap())
            })
            .collect()
    }

    pub(crate) fn counter(&self, group: &str, name: &str) -> u64 {
        self.of_group(group).into_iter().find(|(this, _)| this == name).unwrap().1
    }

    /// Waits until so many connections, or more, were handed off since there were `before`: a worker says so before it
    /// sleeps.
    fn were_handed_off(&self, before: u64, least: u64) {
        let were = || self.counter("handoff", "handoffs") - before >= least;
        assert!(wait_until(were), "not {least}: {:?}", self.counters());
    }

    /// Waits until so many connections of this port, or more, are on the NIC.
    fn shows(&self, port: u16, least: usize) {
        let shown = wait_until(|| self.on_nic(port) >= least);
        assert!(shown, "{} of {least} are on the NIC: {:?}", self.on_nic(port), self.counters());
    }

    /// No connection was refused for a reason that lasts, and none went back to the kernel.
    fn all_stayed(&self) {
        let lasting = lasting_refusals(&self.hosts, HOST);
        assert!(lasting.is_empty(), "{lasting:?} of {:?}", self.counters());
    }

    /// No connection was refused for a reason that lasts.
    fn was_refused_nothing(&self) {
        let mut lasting = lasting_refusals(&self.hosts, HOST);
        lasting.retain(|(name, _)| name.starts_with("handoff_refused."));
        assert!(lasting.is_empty(), "{lasting:?} of {:?}", self.counters());
    }

    /// `kill -9` of wharf, and another.
    fn restart_wharf(&mut self) {
        self.wharf.signal(Signal::Kill);
        assert!(wait_until(|| !self.wharf.runs() && guards(&self.hosts).is_empty()));
        // What the guard has said, for a test that fails.
        print!("{}", self.wharf.errors());
        self.wharf = self.hosts.wharf_up(&MORE);
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // Programs that have made others leave them behind when they are killed.
        end_all(&self.hosts.server);
        end_all(&self.hosts.client);
    }
}

fn end_all(host: &Host) {
    for pid in host.processes() {
        let is_own = pid == std::process::id();
        if !is_own {
            // It may have ended.
            let _ = sys::process::kill(pid, Signal::Kill);
        }
    }
}

fn connect(hosts: &Hosts, port: u16) -> TcpStream {
    let to = SocketAddr::new(Ip::V4.server(), port);
    let stream = hosts.client.run(|| TcpStream::connect(to)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

/// Whether a socket listens at the server's port. It is not connected to: iperf3 serves one client at a time, and this
/// would be one.
fn listens(hosts: &Hosts, port: u16) -> bool {
    const LISTEN: &str = "0A";
    let (suffix, read) = (format!(":{port:04X}"), |table| fs::read_to_string(table).unwrap());
    let tables = ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"];
    hosts.server.run(|| tables.map(read)).iter().flat_map(|table| table.lines()).any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.get(1).is_some_and(|local| local.ends_with(&suffix)) && words.get(3) == Some(&LISTEN)
    })
}

/// Files of these lengths with bytes of their own.
pub(crate) fn files(folder: &Path, lengths: &[usize]) -> Vec<(String, Vec<u8>)> {
    let file = |(at, len): (usize, &usize)| {
        let (name, bytes) = (format!("file{at}"), crate::handoff::bytes(*len, at as u64 + 1));
        fs::write(folder.join(&name), &bytes).unwrap();
        (name, bytes)
    };
    lengths.iter().enumerate().map(file).collect()
}
