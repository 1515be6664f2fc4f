//! Programs of Debian's packages.

use std::fs;
use std::net::IpAddr;
use std::os::unix::process::ExitStatusExt;
use std::time::Instant;

use sys::interface;
use sys::netlink::address;
use sys::process::Signal;
use testkit::lab::Ended;

use super::{Pair, as_user};
use crate::setup::{Ip, PEER, WIRE};

const PERFTEST: u16 = 18_515;
pub(super) const RPING: u16 = 7174;
const CMATOSE: u16 = 7471;
const PINGPONG: u16 = 47_592;

fn server() -> String {
    Ip::V4.server().to_string()
}

#[test]
fn the_device_is_listed() {
    let Some(pair) = Pair::new(&["ibv_devices", "ibv_devinfo"]) else { return };
    devices(&pair);
}

/// What there is, by each program that lists it.
pub(super) fn devices(pair: &Pair) {
    let listed = pair.call(&["ibv_devices"]);
    assert!(listed.status.success() && listed.stdout.contains("wharf0"), "{listed}");
    let shown = pair.call(&["ibv_devinfo", "-v"]);
    assert!(shown.status.success(), "{shown}");
    let lines = [
        ("hca_id", "wharf0"),
        ("transport", "iWARP (1)"),
        ("state", "PORT_ACTIVE (4)"),
        ("link_layer", "Ethernet"),
        ("atomic_cap", "ATOMIC_HCA (1)"),
    ];
    for (name, value) in lines {
        let line = shown.stdout.lines().find(|line| line.trim_start().starts_with(name));
        assert!(line.is_some_and(|line| line.contains(value)), "{name}: {shown}");
    }
}

/// Runs a program of perftest's at both ends, with these words; the client's output.
pub(super) fn perftest(pair: &Pair, words: &[&str]) -> String {
    let to = server();
    let client = [words, &[&to[..]]].concat();
    // Its server listens, connects once to exchange addresses, and listens anew for the queue pairs: a client that is
    // faster is rejected, and 4.5 does not survive that. On a busy machine it may not find the rate of its clock, without
    // which it reports nothing.
    const BY_CHANCE: [&str; 2] = ["RDMA_CM_EVENT_REJECTED", "Correlation coefficient"];
    for _ in 0..20 {
        let server = pair.serve(PERFTEST, words);
        let ended = pair.call(&client);
        let is_chance = |errors: &str| BY_CHANCE.iter().any(|why| errors.contains(why));
        if is_chance(&ended.stderr) {
            continue;
        }
        // A server that reports nothing leaves its client in the middle.
        if !ended.status.success() {
            server.signal(Signal::Terminate);
            let served = server.wait();
            assert!(is_chance(&served.stderr), "{ended}\nat the server: {served}");
            continue;
        }
        let served = server.wait();
        if !is_chance(&served.stderr) {
            assert!(served.status.success(), "{served}\nat the client: {ended}");
            return ended.stdout;
        }
    }
    panic!("{words:?}: by chance not once");
}

/// The sizes and the iterations of the rows that perftest prints.
fn rows(output: &str) -> Vec<(u64, u64)> {
    let numbers = |line: &str| {
        let mut words = line.split_whitespace().map(|word| word.parse().ok());
        Some((words.next()??, words.next()??))
    };
    output.lines().filter_map(numbers).collect()
}

/// Programs of perftest.
pub(super) const PERFTESTS: [&str; 8] = [
    "ib_write_bw",
    "ib_write_lat",
    "ib_read_bw",
    "ib_read_lat",
    "ib_send_bw",
    "ib_send_lat",
    "ib_atomic_bw",
    "ib_atomic_lat",
];

/// Two bytes to 8 MB.
pub(super) fn all_sizes(pair: &Pair, name: &str) {
    let shown = perftest(pair, &[name, "-R", "-a", "-n", "5"]);
    assert_eq!(rows(&shown).len(), 23, "{name}: {shown}");
}

/// Both ways, by several queue pairs.
fn many(pair: &Pair, name: &str) {
    // Atomics are of 8 bytes.
    let size: &[&str] = if name.contains("atomic") { &[] } else { &["-s", "4096"] };
    let shown = perftest(pair, &[&[name, "-R", "-n", "200", "-b", "-q", "8"], size].concat());
    assert_eq!(rows(&shown).len(), 1, "{name}: {shown}");
}

/// Words by which programs of perftest use a shared receive queue, and wait for events (-e).
/// Not `ib_send_bw` by events: there perftest waits for an event that comes of no completion, but of its peer's credit.
pub(super) const SHARED_AND_BY_EVENTS: [&[&str]; 5] = [
    // One queue pair: with several perftest gives credit to that which posted a receive, not to that which used it.
    &["ib_send_bw", "-R", "-n", "500", "--use-srq", "-q", "1"],
    &["ib_read_bw", "-R", "-n", "200", "-e"],
    &["ib_read_lat", "-R", "-n", "200", "-e"],
    &["ib_send_lat", "-R", "-n", "200", "-e"],
    &["ib_atomic_bw", "-R", "-n", "200", "-e"],
];

fn each_operation(pair: &Pair) {
    for name in PERFTESTS {
        let shown = perftest(pair, &[name, "-R", "-n", "500"]);
        assert_eq!(rows(&shown).last().map(|row| row.1), Some(500), "{name}: {shown}");
    }
    ["ib_write_bw", "ib_read_bw", "ib_send_bw"].iter().for_each(|name| many(pair, name));
    shared_and_by_events(pair);
}

/// They report what they have measured.
pub(super) fn shared_and_by_events(pair: &Pair) {
    for words in SHARED_AND_BY_EVENTS {
        let shown = perftest(pair, words);
        assert_eq!(rows(&shown).len(), 1, "{words:?}: {shown}");
    }
}

#[test]
fn perftest_measures_each_operation() {
    let Some(pair) = Pair::new(&PERFTESTS) else { return };
    each_operation(&pair);
    ["ib_write_bw", "ib_read_lat", "ib_send_bw"].iter().for_each(|name| all_sizes(&pair, name));
}

/// Its programs spin outside of verbs, and all four processes have one CPU.
#[test]
fn who_spins_on_the_cpu_of_all_goes_on() {
    const ALLOWED: &str = "Cpus_allowed_list:";
    let Some(mut pair) = Pair::new(&["ib_write_lat", "taskset"]) else { return };
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(ALLOWED)).unwrap();
    let cpu = line.trim().split([',', '-']).next().unwrap().to_owned();
    pair.pod = vec!["taskset", "--cpu-list", cpu.leak()].leak();
    let shown = perftest(&pair, &["ib_write_lat", "-R", "-n", "100"]);
    assert_eq!(rows(&shown).last().map(|row| row.1), Some(100), "{shown}");
    eprintln!("{shown}");
}

/// What `wharf rdma` offers beside what it has by itself.
#[test]
fn revision_1_and_no_crcs_are_agreed_on() {
    let Some(pair) = Pair::new(&["rping", "ib_write_bw", "ib_send_bw"]) else { return };
    for terms in [&["--no-crc"][..], &["--mpa-revision", "1"], &["--mpa-revision", "1", "--no-crc"]]
    {
        let _devices = [&pair.client, &pair.server].map(|host| {
            let mut device = host.spawn(&mut as_user(&[&["rdma"], terms].concat()));
            device.line_with("serves");
            device
        });
        rping(&pair, Ip::V4, "1000");
        for name in ["ib_write_bw", "ib_send_bw"] {
            let shown = perftest(&pair, &[name, "-R", "-n", "100"]);
            assert_eq!(rows(&shown).len(), 1, "{terms:?} {name}: {shown}");
        }
    }
}

/// As above, and all sizes of whatever has more than one.
pub(super) fn perftests(pair: &Pair) {
    each_operation(pair);
    many(pair, "ib_atomic_bw");
    PERFTESTS[..6].iter().for_each(|name| all_sizes(pair, name));
}

/// 30 pings of so many bytes, each compared.
pub(super) fn rping(pair: &Pair, ip: Ip, size: &str) {
    pings(pair, ip, size, 30);
}

/// So many pings of so many bytes.
pub(super) fn pings(pair: &Pair, ip: Ip, size: &str, count: usize) {
    let to = ip.server().to_string();
    pings_to(pair, [&to, &to], size, count);
}

/// Pings the server's address, as the server and as the client name it.
fn pings_to(pair: &Pair, [at, to]: [&str; 2], size: &str, count: usize) {
    let times = count.to_string();
    let words = ["-V", "-v", "-C", &times, "-S", size];
    let of_server = [&["rping", "-s", "-a", at], &words[..]].concat();
    let of_client = [&["rping", "-c", "-a", to], &words[..]].concat();
    let (_, client) = pair.both(RPING, &of_server, &of_client);
    let pings = client.stdout.lines().filter(|line| line.starts_with("ping data: rdma"));
    assert_eq!(pings.count(), count, "{client}");
}

#[test]
fn rping_validates_what_it_writes_and_reads() {
    let Some(pair) = Pair::new(&["rping"]) else { return };
    rpings(&pair);
}

/// An address of the link alone is one with an interface (RFC 4007), which is another at each end.
#[test]
fn a_peer_of_the_link_is_reached() {
    let Some(pair) = Pair::new(&["rping"]) else { return };
    let link = |host: u16| IpAddr::from([0xfe80, 0, 0, 0, 0, 0, 0x77, host]);
    for (host, name, ip) in [(&pair.client, PEER, link(1)), (&pair.server, WIRE, link(2))] {
        let add = || address::add(interface::index(name)?, ip, 64, true);
        host.run(add).unwrap();
    }
    let [at, to] = [WIRE, PEER].map(|interface| format!("{}%{interface}", link(2)));
    pings_to(&pair, [&at, &to], "1000", 30);
}

/// Its sizes, and its modes.
pub(super) fn rpings(pair: &Pair) {
    for ip in Ip::BOTH {
        for size in ["64", "1000", "65000"] {
            rping(pair, ip, size);
        }
    }
    rping_modes(pair);
}

/// A queue pair that is its own (-q), and a server of several clients (-P).
pub(super) fn rping_modes(pair: &Pair) {
    let to = server();
    // It makes and changes that queue pair itself.
    let own = ["-q", "-V", "-v", "-C", "30", "-a", &to];
    let (of_server, of_client) =
        ([&["rping", "-s"], &own[..]].concat(), [&["rping", "-c"], &own[..]].concat());
    pair.both(RPING, &of_server, &of_client);
    let _persistent = pair.serve(RPING, &["rping", "-s", "-P", "-a", &to]);
    for _ in 0..3 {
        let client = pair.call(&["rping", "-c", "-V", "-C", "30", "-a", &to]);
        assert!(client.status.success(), "{client}");
    }
}

#[test]
fn programs_of_the_connection_manager_run() {
    let Some(pair) = Pair::new(&["ucmatose", "rdma_server", "rdma_client"]) else { return };
    connection_manager(&pair);
}

/// Examples of librdmacm's.
pub(super) fn connection_manager(pair: &Pair) {
    examples(pair, &["-C", "10", "-c", "4", "-S", "1000"]);
}

/// The same, with these words for ucmatose.
pub(super) fn examples(pair: &Pair, words: &[&str]) {
    let to = server();
    let of_client = [&["ucmatose", "-s", &to], words].concat();
    pair.both(CMATOSE, &[&["ucmatose"], words].concat(), &of_client);
    let (_, client) = pair.both(CMATOSE, &["rdma_server"], &["rdma_client", "-s", &to]);
    assert!(client.stdout.contains("rdma_client: end 0"), "{client}");
}

#[test]
fn storage_and_benchmarks_run() {
    let Some(pair) = Pair::new(&["fio", "qperf"]) else { return };
    storage(&pair);
}

/// Half of qperf's tests of reliable connections, and the other half.
const QPERF: [&str; 6] =
    ["rc_bw", "rc_bi_bw", "rc_lat", "rc_rdma_read_bw", "rc_rdma_write_lat", "rc_fetch_add_mr"];
const MORE_OF_QPERF: [&str; 6] = [
    "rc_rdma_read_lat",
    "rc_rdma_write_bw",
    "rc_rdma_write_poll_lat",
    "rc_compare_swap_mr",
    "ver_rc_compare_swap",
    "ver_rc_fetch_add",
];

/// fio and qperf.
pub(super) fn storage(pair: &Pair) {
    fio(pair, &["--verb=write", "--verb=read", "--verb=send"], "8m");
    qperf(pair, &QPERF);
}

/// The same, and all that qperf has.
pub(super) fn all_storage(pair: &Pair) {
    storage(pair);
    qperf(pair, &MORE_OF_QPERF);
}

/// So many bytes by each of these verbs.
pub(super) fn fio(pair: &Pair, verbs: &[&str], size: &str) {
    let (hostname, size) = (format!("--hostname={}", server()), format!("--size={size}"));
    let job = ["fio", "--name=job", "--ioengine=rdma", "--port=9988", "--bs=64k", &size];
    // Whoever writes is the client to fio, also where it reads by RDMA.
    // Its sends, and those of qperf both ways, come before the receives for them are posted.
    for verb in verbs {
        let of_client = [&job[..], &[&hostname, verb, "--rw=write"]].concat();
        pair.both(9988, &[&job[..], &["--rw=read"]].concat(), &of_client);
    }
}

fn qperf(pair: &Pair, tests: &[&str]) {
    // The server of 0.4.11 says its port before it listens there, so that a fast client is rejected. It says so on standard
    // output, and ends with 1. Whatever else fails is no chance.
    const BY_CHANCE: &str = "unexpected event from RDMA CM: Event rejected";
    let to = server();
    let served = pair.serve(19_765, &["qperf"]);
    for test in tests {
        let is_done = (0..20).any(|_| {
            let ended = pair.call(&["qperf", &to, "-t", "1", "-cm", "1", test]);
            let is_chance = ended.status.code() == Some(1) && ended.stdout.contains(BY_CHANCE);
            let is_done = ended.status.success() && !ended.stdout.contains("failed");
            assert!(is_done || is_chance, "{ended}\nat the server: {}", served.errors());
            is_done
        });
        assert!(is_done, "{test}: rejected each time");
    }
}

#[test]
fn messages_of_libfabric_pass() {
    let Some(pair) = Pair::new(&["fi_pingpong"]) else { return };
    libfabric(&pair);
}

/// Both ways in which libfabric uses verbs.
pub(super) fn libfabric(pair: &Pair) {
    ping_pong(pair, 20);
}

/// So many messages of each size.
pub(super) fn ping_pong(pair: &Pair, count: u32) {
    let (to, times, passed) = (server(), count.to_string(), format!("={count} "));
    let all_passed = |ended: &Ended| {
        let sizes = ended.stdout.lines().filter(|line| line.contains(&passed));
        assert_eq!(sizes.count(), 6, "{ended}");
    };
    // With its bytes checked (-c).
    fn words<'a>(provider: &'a str, kind: &'a str, times: &'a str) -> [&'a str; 8] {
        ["fi_pingpong", "-p", provider, "-e", kind, "-I", times, "-c"]
    }
    let messages = words("verbs", "msg", &times);
    let (_, client) = pair.both(PINGPONG, &messages, &[&messages[..], &[&to]].concat());
    all_passed(&client);
    // When a peer leaves, ofi_rxm of libfabric 1.17 closes the endpoint below and then looks at its completions: for one of a
    // receive that is unread by then, as on a busy machine, it posts the buffer again at the endpoint that it has freed
    // (rxm_close_conn, rxm_post_recv). All has passed by then.
    let is_rxms = |ended: &Ended| {
        ended.status.signal() == Some(11) || ended.to_string().contains("terminated with signal 11")
    };
    let datagrams = words("verbs;ofi_rxm", "rdm", &times);
    let server = pair.serve(PINGPONG, &datagrams);
    let client = pair.call(&[&datagrams[..], &[&to]].concat());
    for ended in [client, server.wait()] {
        assert!(ended.status.success() || is_rxms(&ended), "{ended}");
        all_passed(&ended);
    }
}

#[test]
fn what_iwarp_has_not_ends_soon() {
    let Some(pair) = Pair::new(&NOT_OF_IWARP) else { return };
    refused(&pair);
}

/// Datagrams, multicast, extended connections, and queue pairs that are wired by hand.
pub(super) const NOT_OF_IWARP: [&str; 6] =
    ["udaddy", "mckey", "rdma_xclient", "rdma_xserver", "ibv_rc_pingpong", "ibv_ud_pingpong"];

/// They end, and say so.
pub(super) fn refused(pair: &Pair) {
    let to = server();
    let calls: [&[&str]; 5] = [
        &["udaddy", "-s", &to],
        &["mckey", "-m", "239.1.1.1"],
        &["rdma_xclient", "-s", &to, "-c", "x"],
        &["ibv_ud_pingpong", "-g", "0"],
        &["rdma_xserver", "-c", "x"],
    ];
    for words in calls {
        let since = Instant::now();
        let ended = pair.call(words);
        let code = ended.status.code();
        assert!(code.is_some_and(|code| code != 0), "{ended}");
        eprintln!("{} has ended after {} ms", words[0], since.elapsed().as_millis());
    }
    // Both ends of this one exchange addresses by TCP first.
    let by_hand = pair.serve(18_515, &["ibv_rc_pingpong", "-g", "0"]);
    let since = Instant::now();
    for ended in [pair.call(&["ibv_rc_pingpong", "-g", "0", &to]), by_hand.wait()] {
        let code = ended.status.code();
        assert!(code.is_some_and(|code| code != 0), "{ended}");
    }
    eprintln!("ibv_rc_pingpong has ended at both ends after {} ms", since.elapsed().as_millis());
}
