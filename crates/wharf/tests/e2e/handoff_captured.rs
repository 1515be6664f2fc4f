//! `wharf pcap capture`: what passes the wire of a connection that the NIC has.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use nic::capture::Reader;
use sys::process::Signal;
use testkit::lab::{Program, have, wait_until};
use wire::{Headers, Seq, Tcp};

use crate::handoff::{EVENTS, bytes, connect, echoes, ends, serve};
use crate::handoff_seen::{of, to_nic};
use crate::setup::{Ip, Plan, Port, Up, wharf};

/// A file that goes with this.
struct Out(PathBuf);

impl Out {
    fn new(name: &str) -> Out {
        Out(std::env::temp_dir().join(format!("wharf-{name}-{}.pcap", std::process::id())))
    }

    fn name(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Out {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Begins a capture: its file has a header from then on.
fn capture(up: &Up, out: &Out, more: &[&str]) -> Program {
    let _ = fs::remove_file(&out.0);
    let words = [&["pcap", "capture", out.name()], more].concat();
    let capturing = up.hosts.server.spawn(wharf().args(words));
    let begun = || fs::metadata(&out.0).is_ok_and(|file| file.len() >= 24);
    assert!(wait_until(begun), "it does not begin");
    capturing
}

fn names(stream: &TcpStream) -> [String; 2] {
    [stream.peer_addr(), stream.local_addr()].map(|end| end.unwrap().to_string())
}

/// The bytes that one end of a connection has sent, put in order by their sequence numbers, up to the first that is not
/// there, and whether a packet was longer than the wire's MTU.
fn sent(out: &Out, from: SocketAddr) -> (Vec<u8>, bool) {
    let mut pieces: Vec<(Seq, Vec<u8>)> = Vec::new();
    let mut is_long = false;
    // The last one may be on its way into the file.
    for packet in Reader::new(File::open(&out.0).unwrap()).unwrap().map_while(Result::ok) {
        let headers = Headers::parse(&packet.data).unwrap();
        let tcp = Tcp::new(&packet.data[headers.transport_at..]).unwrap();
        let payload = &packet.data[headers.payload_at..headers.end];
        if tcp.source() == from.port() && !payload.is_empty() {
            is_long |= packet.data.len() > 1514;
            pieces.push((tcp.seq(), payload.to_vec()));
        }
    }
    let Some(first) =
        pieces.iter().map(|(seq, _)| *seq).reduce(|a, b| if b.before(a) { b } else { a })
    else {
        return (Vec::new(), false);
    };
    pieces.sort_by_key(|(seq, _)| *seq - first);
    let mut all = Vec::new();
    for (seq, piece) in pieces {
        let at = (seq - first) as usize;
        if at > all.len() {
            break;
        }
        let new = piece.len().min((at + piece.len()).saturating_sub(all.len()));
        all.extend_from_slice(&piece[piece.len() - new..]);
    }
    (all, is_long)
}

fn up() -> Option<Up> {
    if !have(&["python3", "tcpdump"]) {
        return None;
    }
    Plan::new(Port::Auto).up_with(&["--set", "workers=1"])
}

#[test]
fn a_capture_has_the_bytes_of_a_connection_on_the_nic_both_ways() {
    let Some(up) = up() else { return };
    let _server = serve(&up.hosts, "by_hand", EVENTS);
    for ip in Ip::BOTH {
        let (stream, other) = (connect(&up.hosts, ip), connect(&up.hosts, ip));
        to_nic(&up, &stream);
        let out = Out::new(&format!("both-{ip:?}"));
        let [local, remote] = names(&stream);
        let capturing = capture(&up, &out, &[&local, &remote, "--json"]);
        assert_eq!(fs::metadata(&out.0).unwrap().permissions().mode() & 0o777, 0o600);
        let (mine, theirs) = (bytes(200_000, 7), bytes(5_000, 8));
        echoes(&stream, &mine);
        echoes(&other, &theirs);
        let (server, client) = (stream.peer_addr().unwrap(), stream.local_addr().unwrap());
        let all_there =
            || [client, server].iter().all(|end| sent(&out, *end).0.len() >= mine.len());
        assert!(wait_until(all_there), "{} bytes", sent(&out, client).0.len());
        capturing.signal(Signal::Interrupt);
        let ended = capturing.wait();
        assert!(ended.status.success(), "{ended}");
        let said: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
        let count = Reader::new(File::open(&out.0).unwrap()).unwrap().count();
        assert_eq!(
            (said["packets_out"].as_u64(), said["dropped"].as_u64()),
            (Some(count as u64), Some(0))
        );
        for end in [client, server] {
            let (found, _) = sent(&out, end);
            assert!(found == mine, "{end}: {} bytes, and others", found.len());
        }
        assert_eq!(of(&up, &stream).unwrap()["where"], "nic");
        // Others read it, and find no fault.
        let read = ["-n", "-vv", "-r", out.name()];
        let read = up.hosts.server.output(Command::new("tcpdump").args(read));
        assert!(read.status.success(), "{read}");
        assert!(read.stdout.contains("Flags [") && !read.stdout.contains("incorrect"), "{read}");
        ends(stream);
        ends(other);
    }
    up.nothing_went_wrong();
}

/// The whole wire, at the kernel and on the NIC, as it passes; and no more than was asked for.
#[test]
fn a_capture_can_be_read_as_it_passes() {
    let Some(up) = up() else { return };
    let _server = serve(&up.hosts, "by_hand", EVENTS);
    let stream = connect(&up.hosts, Ip::V4);
    let words = [env!("CARGO_BIN_EXE_wharf"), "pcap", "capture", "-", "--snaplen", "100"];
    let piped = format!("{} | tcpdump -l -n -r - tcp", words.join(" "));
    let mut tcpdump = up.hosts.server.spawn(Command::new("sh").args(["-c", &piped]));
    let is_under_way = || tcpdump.errors().contains("link-type EN10MB");
    assert!(wait_until(is_under_way), "{}", tcpdump.errors());
    echoes(&stream, &bytes(1000, 1));
    tcpdump.line_with("length 1000");
    to_nic(&up, &stream);
    echoes(&stream, &bytes(777, 2));
    let line = tcpdump.line_with("length 777");
    assert!(line.contains("10.77.0."), "{line}");
    let out = Out::new("count");
    let counting = capture(&up, &out, &["--count", "5"]);
    let is_over = || {
        echoes(&stream, &bytes(10, 3));
        Reader::new(File::open(&out.0).unwrap()).unwrap().count() == 5
    };
    assert!(wait_until(is_over));
    let ended = counting.wait();
    assert!(ended.status.success() && ended.stdout.starts_with("5 packets captured"), "{ended}");
    ends(stream);
    drop(tcpdump);
    up.nothing_went_wrong();
}

#[test]
fn only_root_and_the_user_of_wharf_may_capture() {
    if !have(&["setpriv"]) || !sys::process::has_bpf() {
        return;
    }
    let Some(up) = Plan::new(Port::Auto).up_with(&["--set", "workers=1"]) else { return };
    let Some(program) = crate::demo::for_everyone() else { return };
    let mut command = crate::demo::as_nobody(program.path());
    let ended = up.hosts.server.output(command.args(["pcap", "capture", "/dev/null"]));
    assert_eq!(ended.status.code(), Some(2), "{ended}");
    assert!(ended.stderr.contains("only root and the user that runs wharf may capture"), "{ended}");
    // So many at a time, and each place is free again.
    let out: Vec<Out> = (0..5).map(|at| Out::new(&format!("many-{at}"))).collect();
    let running: Vec<_> = out[..4].iter().map(|out| capture(&up, out, &[])).collect();
    let one_more = || up.hosts.wharf(&["pcap", "capture", out[4].name(), "--seconds", "0"]);
    let ended = one_more();
    assert_eq!(ended.status.code(), Some(2), "{ended}");
    drop(running);
    assert!(wait_until(|| one_more().status.success()), "{}", one_more());
    // wharf ends: what was captured is there, and it is told of.
    let last = capture(&up, &out[0], &[]);
    up.wharf.signal(Signal::Interrupt);
    let ended = last.wait();
    assert_eq!(ended.status.code(), Some(1), "{ended}");
    assert!(ended.stderr.contains("has ended") && ended.stdout.contains("captured"), "{ended}");
}
