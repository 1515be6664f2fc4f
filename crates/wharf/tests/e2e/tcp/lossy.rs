//! The engine and the local kernel's TCP, through bad networks: loss, reordering, duplication, damage,
//! delay; both directions. Every byte is compared.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::path::PathBuf;
use std::thread;

use super::super::setup::Ip;
use super::super::traffic::{bytes, whole};
use super::{Lab, connections, counter, read_pattern, write_pattern};

/// Of one transfer.
const BYTES: u64 = 400_000;

/// The networks, by name, as settings of `wharf degen`.
///
/// Bursts are short: the channel changes by frames, and a sender whose timer has backed off sends one at a time.
pub(super) const NETWORKS: [(&str, &str); 8] = [
    ("plain", "delay = '1ms'"),
    ("marks", "delay = '2ms'\nmark = '5%'"),
    ("loss", "delay = '2ms'\nloss = '2%'"),
    ("bursts", "delay = '2ms'\ngilbert_p = '2%'\ngilbert_r = '60%'"),
    ("reordering", "delay = '2ms'\nreorder = '5%'\nreorder_distance = 5"),
    ("duplication", "delay = '2ms'\nduplicate = '10%'"),
    ("damage", "delay = '2ms'\ncorrupt = '2%'"),
    (
        "everything",
        "delay = '2ms'\njitter = '500us'\nloss = '1%'\nreorder = '2%'\nduplicate = '2%'\n\
         corrupt = '1%'\nrate = '100mbit'",
    ),
];

/// A settings file for one network, removed afterwards. Chance begins at the same place each time.
pub(super) struct Network(PathBuf);

impl Network {
    pub(super) fn of(name: &str, text: &str) -> Network {
        let file =
            format!("wharf-tcp-{}-{name}-{:?}.toml", std::process::id(), thread::current().id());
        let path = std::env::temp_dir().join(file);
        std::fs::write(&path, format!("seed = 1\n{text}\n")).unwrap();
        Network(path)
    }

    pub(super) fn words(&self) -> String {
        format!("--degen {}", self.0.display())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Does something with an engine behind each of the networks.
fn through_each(line: &str, work: impl Fn(&str, Lab)) {
    for (name, text) in NETWORKS {
        let network = Network::of(name, text);
        let Some(lab) = Lab::start(&format!("{line} {}", network.words())) else { return };
        work(name, lab);
    }
}

#[test]
fn a_kernel_sends_to_the_engine() {
    through_each("sink --port 9 --verify --json", |name, lab| {
        for ip in Ip::BOTH {
            let mut socket = lab.connect(ip, 9);
            write_pattern(&socket, BYTES);
            assert_eq!(whole(|| socket.read(&mut [0])).unwrap(), 0, "{name}");
        }
        let (ended, _host) = lab.end();
        for told in connections(&ended) {
            assert_eq!((&told["read"], &told["mismatch"]), (&BYTES.into(), &().into()), "{name}");
        }
        if name == "damage" {
            assert!(counter(&ended, "degen.reverse", "corrupted") > 0, "{ended}");
        }
    });
}

#[test]
fn the_engine_sends_to_a_kernel() {
    through_each(&format!("source --port 80 --bytes {BYTES} --json"), |name, lab| {
        for ip in Ip::BOTH {
            assert_eq!(read_pattern(&lab.connect(ip, 80)), BYTES, "{name}");
        }
        let (ended, _host) = lab.end();
        if name == "loss" {
            assert!(counter(&ended, "tcp", "retransmissions") > 0, "{ended}");
        }
    });
}

#[test]
fn both_send_at_once() {
    through_each("echo --port 7 --json", |name, lab| {
        let sent = bytes(BYTES as usize);
        let mut socket = lab.connect(Ip::V4, 7);
        let mut writer = socket.try_clone().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                writer.write_all(&sent).unwrap();
                writer.shutdown(Shutdown::Write).unwrap();
            });
            let mut received = Vec::new();
            socket.read_to_end(&mut received).unwrap();
            assert!(received == sent, "{name}: {} bytes came back", received.len());
        });
        lab.end();
    });
}

/// One byte there and one back, many times: nothing but the time-outs of tail loss helps.
#[test]
fn small_questions_and_answers_get_through() {
    let network = Network::of("small", "delay = '1ms'\nloss = '5%'");
    let Some(lab) = Lab::start(&format!("echo --port 7 {}", network.words())) else { return };
    let mut socket = lab.connect(Ip::V4, 7);
    socket.set_nodelay(true).unwrap();
    for number in 0..60 {
        socket.write_all(&[number]).unwrap();
        let mut answer = [0];
        socket.read_exact(&mut answer).unwrap();
        assert_eq!(answer, [number]);
    }
    lab.end();
}
