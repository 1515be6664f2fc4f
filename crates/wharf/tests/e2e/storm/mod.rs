//! Many connections that move to the NIC and back again and again while they are busy, through a WAN that loses, and
//! while wharf is killed. Every byte is compared, and every packet is seen on the wire.
//!
//! `WHARF_STORM=10000x10` has it with so many connections, so many times.

mod crowd;
mod law;

use std::collections::HashSet;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use sys::process::Signal;
use testkit::lab::{Host, Program, Wire, have, wait_until};
use testkit::lossy::Lossy;

use self::crowd::Crowd;
use self::law::Law;
use super::degen::File;
use super::ends::guards;
use super::handoff::{EVENTS, PORT, serve};
use super::setup::{Hosts, Ip, PEER, WIRE, give};

/// Connections and rounds, unless the environment says so.
const CONNECTIONS: usize = 48;
const ROUNDS: usize = 3;
/// With more connections than this the server uses Reno, not BBR.
const THOUSANDS: usize = 2_000;
/// A ring's bytes where there are many.
const BUFFER: &str = "handoff.buffer=65536";
/// Descriptors besides those of connections, and tests that may run at once.
const FILES: u64 = 1_000;
const TESTS: u64 = 4;

/// How many connections are asked for, and how many rounds: such a storm is alone.
fn asked() -> Option<(usize, usize)> {
    let words = std::env::var("WHARF_STORM").ok()?;
    let numbers = words.split_once('x').and_then(|(n, r)| Some((n.parse().ok()?, r.parse().ok()?)));
    Some(numbers.expect("WHARF_STORM is connections, an x, and rounds"))
}

fn size() -> (usize, usize) {
    asked().unwrap_or((CONNECTIONS, ROUNDS))
}

/// What comes by a veth waits at the CPU that sent it (`netif_rx`), and on a busy machine what another sends passes it, in
/// the middle of a super-packet. One CPU is to receive all, in the order in which it was sent, as from a card.
fn keep_order(host: &Host, name: &str) {
    let script = format!(
        "mount -t sysfs sysfs /sys && for queue in /sys/class/net/{name}/queues/rx-*; do echo 1 >$queue/rps_cpus; done"
    );
    host.succeed("unshare", &["--mount", "sh", "-ec", &script]);
}

/// A client, a wire that is watched, and a server behind wharf.
struct Storm {
    /// Before the hosts, so that it ends before them.
    _wire: Lossy,
    wharf: Program,
    _server: Program,
    hosts: Hosts,
    _between: Host,
    law: Arc<Mutex<Law>>,
    /// Settings of wharf's, and the file of its WAN, if it has one.
    settings: Vec<String>,
    wan: Option<File>,
}

impl Storm {
    /// With several workers the wire itself loses and reorders, as each of them would have a WAN of its own.
    fn new(connections: usize, policy: &str, workers: u32) -> Option<Self> {
        if !have(&["python3"]) {
            return None;
        }
        let tests = if asked().is_some() { 1 } else { TESTS };
        sys::process::allow_open_files(tests * (connections as u64 + FILES)).unwrap();
        let (client, between, server) = (Host::new()?, Host::new()?, Host::new()?);
        let wire = |near, far| Wire { near, far, mtu: 1500, queues: workers, offloads: false };
        wire(PEER, "left").lay(&client, &between);
        wire(WIRE, "right").lay(&server, &between);
        keep_order(&between, "right");
        let law = Arc::new(Mutex::new(Law::of_queues(workers)));
        let sees = Arc::clone(&law);
        let watch = move |from, frame: &[u8]| {
            sees.lock().unwrap_or_else(PoisonError::into_inner).see(from == 1, frame);
        };
        let (ends, is_lossy) = (["left", "right"], workers > 1);
        let wire = match is_lossy {
            true => Lossy::losing_and_watched(&between, ends, watch),
            false => Lossy::watched(&between, ends, watch),
        };
        let hosts = Hosts::of(client, server);
        // BBR, the default of some, comes to send one segment in 17 s where so many share so little. That of the server may be
        // so: its timestamps are ahead of the clock then. Where thousands share it, and the path is a short one whenever wharf
        // is dead, the kernel's comes to send 64 KB at once, and then waits for two minutes.
        let reno = || fs::write("/proc/sys/net/ipv4/tcp_congestion_control", "reno");
        hosts.client.run(reno).unwrap();
        if connections > THOUSANDS {
            hosts.server.run(reno).unwrap();
        }
        give(&hosts.client, PEER, &Ip::BOTH, Ip::client);
        give(&hosts.server, WIRE, &Ip::BOTH, Ip::server);
        let settings = [
            format!("workers={workers}"),
            BUFFER.to_owned(),
            format!("handoff.connections={}", connections.next_power_of_two()),
        ];
        let wan = File::of("delay = \"0\"\nloss = \"0\"\nseed = 9\n");
        let wan = (!is_lossy).then_some(wan);
        let wharf = Storm::start(&hosts, &settings, wan.as_ref());
        let server = serve(&hosts, policy, EVENTS);
        let law = Arc::clone(&law);
        let settings = settings.to_vec();
        Some(Storm {
            wharf,
            _server: server,
            hosts,
            _wire: wire,
            _between: between,
            law,
            settings,
            wan,
        })
    }

    fn start(hosts: &Hosts, settings: &[String], wan: Option<&File>) -> Program {
        let sets = settings.iter().flat_map(|set| ["--set", set]);
        let wan = wan.into_iter().flat_map(|wan| ["--degen", wan.path()]);
        let more: Vec<&str> = ["--take-addresses"].into_iter().chain(wan).chain(sets).collect();
        hosts.wharf_up(&more)
    }

    /// The connections of so many clients.
    fn crowd(&self, connections: usize) -> Crowd {
        let streams = self.hosts.client.run(|| {
            let to = |number: usize| SocketAddr::new(Ip::BOTH[number % 2].server(), PORT);
            (0..connections).map(|number| TcpStream::connect(to(number)).unwrap()).collect()
        });
        Crowd::new(streams)
    }

    /// The WAN delays and loses from now on.
    fn degenerate(&self, delay: &str, loss: &str) {
        if self.wan.is_none() {
            return;
        }
        for (key, value) in [("degen.delay", delay), ("degen.loss", loss)] {
            let ended = self.hosts.wharf(&["set", key, value]);
            assert!(ended.status.success(), "{ended}");
        }
    }

    fn moved(&self, to: &str) {
        let ended = self.hosts.wharf(&["handoff", "--to", to, "--all", "--no-wait"]);
        assert!(ended.status.success(), "{ended}");
    }

    fn counter(&self, group: &str, name: &str) -> u64 {
        let ended = self.hosts.wharf(&["stats", "--json"]);
        assert!(ended.status.success(), "{ended}");
        let stats: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
        let counters = stats["counters"].as_array().unwrap();
        let of = |entry: &&serde_json::Value| entry["group"] == group && entry["name"] == name;
        counters.iter().find(of).and_then(|entry| entry["value"].as_u64()).unwrap()
    }

    /// Until each has got back all.
    fn finish(&self, crowd: &mut Crowd) {
        while !crowd.is_done() {
            self.pass(crowd);
        }
    }

    /// A little traffic.
    ///
    /// # Panics
    /// If a client waits for too long.
    fn pass(&self, crowd: &mut Crowd) {
        if !crowd.pass() {
            thread::sleep(Duration::from_millis(1));
        }
        if let Some(client) = crowd.stuck {
            panic!("{} stands still", self.tell(client));
        }
    }

    /// Traffic, until that is so. It is asked every now and then; meanwhile `again` is done.
    fn until(&self, crowd: &mut Crowd, what: &str, mut again: impl FnMut() -> bool) {
        let since = Instant::now();
        let mut asked = None::<Instant>;
        loop {
            if asked.is_none_or(|asked| asked.elapsed() > Duration::from_millis(300)) {
                if again() {
                    return;
                }
                asked = Some(Instant::now());
            }
            // A few may wait long for what the WAN has lost; the others must have bytes to move with.
            if crowd.is_nearly_done() {
                crowd.more(500);
            }
            self.pass(crowd);
            if since.elapsed() > Duration::from_secs(300) {
                self.tell_rest(crowd, what);
            }
        }
    }

    /// Ends the test, and says where connections are that did not move.
    fn tell_rest(&self, crowd: &Crowd, what: &str) -> ! {
        let listed = self.hosts.wharf(&["connections", "--where", "nic"]).stdout;
        let at_nic: HashSet<&str> = listed.split_whitespace().collect();
        let goes_up = what == "to the NIC";
        let is_left = |end: &&SocketAddr| at_nic.contains(end.to_string().as_str()) != goes_up;
        let left: Vec<SocketAddr> = crowd.ends().filter(|end| is_left(&end)).collect();
        let told: String = left.iter().take(3).map(|end| self.tell(*end)).collect();
        let stats = self.hosts.wharf(&["stats"]).stdout;
        panic!("{what}: {} not in 300 s:\n{told}\n{stats}", left.len());
    }

    /// What both hosts know of a client's connection, and what was seen of it.
    fn tell(&self, client: SocketAddr) -> String {
        let law = self.law.lock().unwrap_or_else(PoisonError::into_inner);
        let port = client.port();
        let ss = |host: &Host| {
            let mut ss = Command::new("ss");
            ss.arg("-tinoem").arg(format!("( sport = :{port} or dport = :{port} )"));
            host.output(&mut ss).stdout
        };
        let [near, far] = [&self.hosts.client, &self.hosts.server].map(ss);
        let listed = self.hosts.wharf(&["connections"]).stdout;
        let ends = client.to_string();
        let listed = listed.lines().find(|line| line.contains(&ends)).unwrap_or("the kernel's");
        format!("{client} ({listed}):{}\n{near}{far}", law.recent(client))
    }

    /// Nothing was said on the wire that must not be.
    fn holds(&self) {
        let law = self.law.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(
            law.violations == 0,
            "{} of {} segments: {}",
            law.violations,
            law.segments,
            law.told.join("\n")
        );
        assert!(law.segments > 0, "nothing was seen");
    }
}

/// All connections go to the NIC and back, as often as there are rounds.
#[test]
fn connections_move_to_and_fro_in_a_storm() {
    move_to_and_fro(1);
}

#[test]
fn connections_of_two_workers_move_to_and_fro_in_a_storm() {
    move_to_and_fro(2);
}

fn move_to_and_fro(workers: u32) {
    let (connections, rounds) = size();
    let Some(storm) = Storm::new(connections, "by_hand", workers) else { return };
    let mut crowd = storm.crowd(connections);
    crowd.more(1000);
    storm.finish(&mut crowd);
    storm.degenerate("20ms", "1%");
    for round in 0..rounds {
        let begun = Instant::now();
        crowd.more(20_000);
        let all = connections as u64;
        storm.until(&mut crowd, "to the NIC", || {
            storm.moved("nic");
            storm.counter("handoff", "connections") == all
        });
        let there = begun.elapsed();
        crowd.more(20_000);
        storm.until(&mut crowd, "to the kernel", || {
            storm.moved("os");
            storm.counter("handoff", "connections") == 0
        });
        let back = begun.elapsed() - there;
        println!("round {round}: to the NIC in {there:?}, back in {back:?}");
    }
    storm.finish(&mut crowd);
    println!("longest wait for a byte: {:?}", crowd.longest);
    for name in ["handoffs", "restored", "refused"] {
        println!("{name}: {}", storm.counter("handoff", name));
    }
    crowd.end();
    storm.holds();
}

/// wharf is killed at any moment, and another started.
#[test]
fn connections_outlive_one_wharf_after_the_other() {
    outlive(1);
}

#[test]
fn connections_of_two_workers_outlive_one_wharf_after_the_other() {
    outlive(2);
}

fn outlive(workers: u32) {
    let (connections, rounds) = size();
    let Some(mut storm) = Storm::new(connections, "at_accept", workers) else { return };
    storm.law.lock().unwrap().starts_anew = true;
    let mut crowd = storm.crowd(connections);
    crowd.more(1000);
    storm.finish(&mut crowd);
    for round in 0..rounds {
        crowd.more(20_000);
        storm.until(&mut crowd, "to the NIC", || {
            storm.moved("nic");
            storm.counter("handoff", "connections") > 0
        });
        // Another moment each time; which one it is does not matter.
        let until = Instant::now() + Duration::from_millis(37 * (round as u64 + 1) % 200);
        while Instant::now() < until {
            crowd.more(2_000);
            crowd.pass();
        }
        // Each has bytes on their way.
        crowd.more(20_000);
        crowd.pass();
        storm.wharf.signal(Signal::Kill);
        crowd.watch();
        crowd.more(20_000);
        storm.finish(&mut crowd);
        let [half, most, all] = crowd.firsts();
        println!("{round}: next byte after {half:?} (median), {most:?} (99 %), {all:?} (all)");
        assert!(wait_until(|| guards(&storm.hosts).is_empty()), "the guard does not end");
        storm.wharf = Storm::start(&storm.hosts, &storm.settings, storm.wan.as_ref());
    }
    crowd.end();
    storm.holds();
}
