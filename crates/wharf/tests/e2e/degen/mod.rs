//! `wharf degen` between two interfaces of a machine in the middle, and in front of `wharf up`.

mod between;
mod counts;
mod ends;
mod marks;
mod queues;
mod refused;
mod running;
mod up;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use sys::ethtool::{Ethtool, Offload};
use testkit::lab::{Ended, Host, Program, Wire, wait_until};

use super::setup::{Hosts, Ip, give, wharf};
use super::tagged::Tap;

/// The client's interface, and that of the middle which faces it.
const LEFT: [&str; 2] = ["left0", "left1"];
/// The server's interface, and that of the middle which faces it.
const RIGHT: [&str; 2] = ["right0", "right1"];

/// A client and a server, and a machine with a wire to each.
struct Middle {
    hosts: Hosts,
    host: Host,
}

impl Middle {
    /// Wires of these MTUs, with all the offloads that the kernel makes them with.
    fn new(left: u32, right: u32) -> Option<Self> {
        let middle = Middle::as_made(left, right)?;
        middle.queues_of_its_own();
        Some(middle)
    }

    /// The same as the kernel makes them.
    fn as_made(left: u32, right: u32) -> Option<Self> {
        let middle = Middle::without_addresses(left, right, 1, |_| {})?;
        middle.give_addresses(left, right);
        Some(middle)
    }

    /// Wires with so many queues each way.
    fn with_queues(queues: u32) -> Option<Self> {
        let middle = Middle::without_addresses(1500, 1500, queues, |_| {})?;
        middle.give_addresses(1500, 1500);
        middle.queues_of_its_own();
        Some(middle)
    }

    fn give_addresses(&self, left: u32, right: u32) {
        give(&self.hosts.client, LEFT[0], Ip::over(left), Ip::client);
        give(&self.hosts.server, RIGHT[0], Ip::over(right), Ip::server);
    }

    /// No kernel says anything on the wires, so that every frame is the test's.
    fn silent() -> Option<Self> {
        let middle = Middle::without_addresses(1500, 1500, 1, |host| {
            let off = || sys::sysctl::set_ipv6_conf("default", "disable_ipv6", "1");
            host.run(off).unwrap();
        })?;
        middle.queues_of_its_own();
        Some(middle)
    }

    /// With GRO a veth has a queue of 256 packets (VETH_RING_SIZE) to itself. Without, it shares that
    /// of the CPU with all other tests (`netdev_max_backlog`), and may lose for their sake.
    fn queues_of_its_own(&self) {
        let set = |host: &Host, name| {
            host.run(|| Ethtool::open(name)?.set_offload(Offload::Gro, true)).unwrap();
        };
        set(&self.hosts.client, LEFT[0]);
        set(&self.hosts.server, RIGHT[0]);
        [LEFT[1], RIGHT[1]].into_iter().for_each(|name| set(&self.host, name));
    }

    fn without_addresses(left: u32, right: u32, queues: u32, prepare: fn(&Host)) -> Option<Self> {
        let (client, host, server) = (Host::new()?, Host::new()?, Host::new()?);
        [&client, &host, &server].into_iter().for_each(prepare);
        let wire =
            |[near, far]: [&'static str; 2], mtu| Wire { near, far, mtu, queues, offloads: true };
        wire(LEFT, left).lay(&client, &host);
        wire(RIGHT, right).lay(&server, &host);
        Some(Middle { hosts: Hosts::of(client, server), host })
    }

    /// Starts `wharf degen` with more words, as far as its first line: frames pass. Other tests have
    /// their turn of the CPU.
    fn degen(&self, words: &[&str]) -> Degen<'_> {
        let between = ["degen", "--no-real-time", "--between", LEFT[1], RIGHT[1]];
        let mut program = self.host.spawn(wharf().args(between).args(words));
        let line = program.line_with("degen: ");
        assert!(line.starts_with("degen: left1 <-> right1 ("), "{line}");
        Degen { program, middle: self }
    }

    /// The words for each way of moving frames that this process may use.
    fn modes() -> &'static [[&'static str; 2]] {
        const MODES: [[&str; 2]; 2] = [["--mode", "packet"], ["--mode", "xdp"]];
        match sys::process::has_bpf() {
            true => &MODES,
            false => &MODES[..1],
        }
    }

    /// Runs a command of wharf in the middle, to its end.
    fn wharf(&self, words: &[&str]) -> Ended {
        self.host.output(wharf().args(words))
    }

    /// Runs `ip` in the middle; the words are those of one command line.
    fn ip(&self, line: &str) -> String {
        self.host.succeed("ip", &line.split(' ').collect::<Vec<_>>())
    }
}

/// What a degen says, but for frames that leave late: on a machine that is busy they do.
fn other_words(errors: &str) -> Vec<&str> {
    errors.lines().filter(|line| !line.contains(" us late, the latest by ")).collect()
}

/// A degen that runs.
struct Degen<'a> {
    program: Program,
    middle: &'a Middle,
}

impl Degen<'_> {
    /// One counter of `wharf stats --json`.
    fn counter(&self, group: &str, name: &str) -> u64 {
        self.counters()[&(group.to_owned(), name.to_owned())]
    }

    fn counters(&self) -> Counters {
        counters(&self.middle.wharf(&["stats", "--json"]))
    }

    /// Waits until so many packets have arrived from the left and none of them is in flight.
    fn settled(&self, arrived: u64) -> Counters {
        let mut last = Counters::default();
        let settled = wait_until(|| {
            last = self.counters();
            let forward = |name: &str| last[&("forward".to_owned(), name.to_owned())];
            forward("arrived") >= arrived && forward("held") == 0
        });
        assert!(settled, "{last:#?}");
        last
    }

    /// Changes one setting.
    fn set(&self, key: &str, value: &str) {
        let ended = self.middle.wharf(&["set", key, value]);
        assert!(ended.status.success() && ended.stderr.is_empty(), "{ended}");
    }
}

/// By group and name.
type Counters = std::collections::BTreeMap<(String, String), u64>;

/// What `wharf stats --json` says.
fn counters(stats: &Ended) -> Counters {
    assert!(stats.status.success(), "{stats}");
    let json: serde_json::Value = serde_json::from_str(&stats.stdout).unwrap();
    let entry = |entry: &serde_json::Value| {
        let text = |key| entry[key].as_str().unwrap().to_owned();
        ((text("group"), text("name")), entry["value"].as_u64().unwrap())
    };
    json["counters"].as_array().unwrap().iter().map(entry).collect()
}

/// The counters of the forward direction with these names.
fn forward<const N: usize>(counters: &Counters, names: [&str; N]) -> [u64; N] {
    names.map(|name| counters[&("forward".to_owned(), name.to_owned())])
}

/// Frames from the client to the server.
struct Frames<'a> {
    middle: &'a Middle,
    client: Tap,
    server: Tap,
}

/// For local experiments (IEEE 802); what no kernel sends by itself.
const EXPERIMENT: [u8; 2] = [0x88, 0xb5];
/// Of the frame that comes behind all others.
const FENCE: [u8; 2] = [0x88, 0xb6];

impl<'a> Frames<'a> {
    fn of(middle: &'a Middle) -> Self {
        let client = Tap::open(&middle.hosts.client, LEFT[0]);
        let server = Tap::open(&middle.hosts.server, RIGHT[0]);
        Frames { middle, client, server }
    }

    fn send(&mut self, frames: &[Vec<u8>]) {
        frames.iter().for_each(|frame| self.client.send(frame));
    }

    /// All that has come to the server, which are `count` if all is well: first these are waited
    /// for, then a frame that degen does not see comes behind them.
    fn received(&mut self, count: u64) -> Vec<Vec<u8>> {
        let mut all = self.server.receive(count as usize, |_| true);
        let mut fence = [0xff; 12].to_vec();
        fence.extend(FENCE);
        Tap::open(&self.middle.host, RIGHT[1]).send(&fence);
        let mut seen = false;
        while !seen {
            let more = self.server.receive(1, |_| true);
            assert!(!more.is_empty(), "the fence does not come");
            seen = more.iter().any(|frame| frame[12..14] == FENCE);
            all.extend(more.into_iter().filter(|frame| frame[12..14] != FENCE));
        }
        all
    }
}

/// So many frames that differ by their number.
fn numbered(count: u32) -> Vec<Vec<u8>> {
    let frame = |number: u32| {
        let mut frame = [testkit::packet::DESTINATION_MAC, testkit::packet::SOURCE_MAC].concat();
        frame.extend(EXPERIMENT);
        frame.extend(number.to_be_bytes());
        frame.extend(testkit::packet::pattern(number as usize, 82));
        frame
    };
    (0..count).map(frame).collect()
}

/// A file of the test's own, removed afterwards.
pub(crate) struct File(PathBuf);

impl File {
    pub(crate) fn of(text: &str) -> File {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("wharf-degen-{}-{number}.toml", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).unwrap();
        File(path)
    }

    pub(crate) fn path(&self) -> &str {
        Path::to_str(&self.0).unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
