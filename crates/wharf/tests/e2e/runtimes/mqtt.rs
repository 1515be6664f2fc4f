//! Clients of MQTT 3.1.1: each subscribes to what it publishes, and compares it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;

use super::PORT;
use super::clients::{LENGTHS, connect};
use crate::handoff::bytes;
use crate::setup::{Hosts, Ip};

const CLIENTS: usize = 6;
const MESSAGES: usize = 8;
/// Connections of each client, one after the other.
const CONNECTIONS: usize = 2;

/// Types of packets, with their flags (section 2.2).
const CONNECT: u8 = 0x10;
const CONNACK: u8 = 0x20;
const PUBLISH: u8 = 0x30;
const PUBACK: u8 = 0x40;
const SUBSCRIBE: u8 = 0x82;
const SUBACK: u8 = 0x90;
const DISCONNECT: u8 = 0xe0;
/// In the flags of PUBLISH, at least once.
const QOS_1: u8 = 0x02;
const QOS: u8 = 0x06;

struct Client(TcpStream);

fn text(words: &str) -> Vec<u8> {
    [&(words.len() as u16).to_be_bytes(), words.as_bytes()].concat()
}

impl Client {
    fn send(&mut self, kind: u8, body: &[u8]) {
        let mut packet = vec![kind];
        // Seven bits a byte, the lowest first (section 2.2.3).
        let mut left = body.len();
        loop {
            let more = if left > 0x7f { 0x80 } else { 0 };
            packet.push((left & 0x7f) as u8 | more);
            left >>= 7;
            if left == 0 {
                break;
            }
        }
        packet.extend(body);
        self.0.write_all(&packet).unwrap();
    }

    fn receive(&mut self) -> (u8, Vec<u8>) {
        let mut byte = [0; 1];
        self.0.read_exact(&mut byte).unwrap();
        let kind = byte[0];
        let mut len = 0;
        for shift in [0, 7, 14, 21] {
            self.0.read_exact(&mut byte).unwrap();
            len |= usize::from(byte[0] & 0x7f) << shift;
            if byte[0] & 0x80 == 0 {
                break;
            }
        }
        let mut body = vec![0; len];
        self.0.read_exact(&mut body).unwrap();
        (kind, body)
    }

    fn open(hosts: &Hosts, name: &str, topic: &str) -> Client {
        let mut client = Client(connect(hosts, SocketAddr::new(Ip::V4.server(), PORT)));
        // Version 4, a clean session, and no time after which it must say something.
        let head = [text("MQTT"), vec![4, 0x02, 0, 0], text(name)].concat();
        client.send(CONNECT, &head);
        assert_eq!(client.receive(), (CONNACK, vec![0, 0]));
        client.send(SUBSCRIBE, &[vec![0, 1], text(topic), vec![1]].concat());
        assert_eq!(client.receive(), (SUBACK, vec![0, 1, 1]));
        client
    }

    /// Publishes this, and waits until that is acknowledged and has come back.
    fn goes_round(&mut self, topic: &str, id: u16, sent: &[u8]) {
        let name = text(topic);
        self.send(PUBLISH | QOS_1, &[&name, &id.to_be_bytes()[..], sent].concat());
        let (mut is_acknowledged, mut is_back) = (false, false);
        while !(is_acknowledged && is_back) {
            let (kind, body) = self.receive();
            if kind == PUBACK {
                assert_eq!((body, is_acknowledged), (id.to_be_bytes().to_vec(), false));
                is_acknowledged = true;
                continue;
            }
            assert_eq!((kind & !QOS, kind & QOS, is_back), (PUBLISH, QOS_1, false), "{kind:#x}");
            assert!(body.starts_with(&name), "another topic");
            let (id, got) = body[name.len()..].split_at(2);
            self.send(PUBACK, id);
            assert!(got == sent, "{} other bytes came back, of {}", got.len(), sent.len());
            is_back = true;
        }
    }
}

pub(super) fn pass(hosts: &Hosts) {
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            scope.spawn(move || run(hosts, client));
        }
    });
}

fn run(hosts: &Hosts, number: usize) {
    let topic = format!("topic/{number}");
    for connection in 0..CONNECTIONS {
        let mut client = Client::open(hosts, &format!("client{number}x{connection}"), &topic);
        for message in 0..MESSAGES {
            let seed = (number * CONNECTIONS + connection) * MESSAGES + message;
            let sent = bytes(LENGTHS[seed % LENGTHS.len()], seed as u64);
            client.goes_round(&topic, message as u16 + 1, &sent);
        }
        client.send(DISCONNECT, &[]);
        assert_eq!(client.0.read(&mut [0; 1]).unwrap(), 0, "more came than was published");
    }
}
