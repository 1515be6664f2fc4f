//! Two TCP stacks on a path of 10 ms each way that loses every 97th packet, in virtual time: what a loop
//! around [`tcp::Stack`] looks like, without a socket, a clock or a thread.
//!
//! ```text
//! cargo run -p tcp --example lossy
//! ```

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use tcp::{Config, Events, FourTuple, Id, Nanos, Segment, Stack, StackConfig};
use wire::Tcp;

const MILLISECOND: Nanos = 1_000_000;
const DELAY: Nanos = 10 * MILLISECOND;
const LOST: usize = 97;
const LEN: usize = 2_000_000;

/// A packet on its way: when it arrives, at which of the two, on which path as that one sees it, its TCP
/// header and its payload.
struct Packet {
    at: Nanos,
    to: usize,
    path: FourTuple,
    header: Vec<u8>,
    payload: Vec<u8>,
}

#[derive(Default)]
struct Path {
    packets: VecDeque<Packet>,
    sent: usize,
    lost: usize,
}

impl Path {
    /// Takes what a stack has to send now.
    fn carry(&mut self, stack: &mut Stack, from: usize, now: Nanos) {
        while let Some(segment) = stack.poll_transmit(now) {
            self.sent += 1;
            if self.sent.is_multiple_of(LOST) {
                self.lost += 1;
                continue;
            }
            let mut header = vec![0; segment.header_len()];
            segment.write_header(&mut header);
            // What is sent from here arrives there: the ends change places.
            let FourTuple { local, remote } = segment.path;
            let path = FourTuple { local: remote, remote: local };
            let payload = segment.payload.concat();
            self.packets.push_back(Packet { at: now + DELAY, to: 1 - from, path, header, payload });
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // One segment in each packet; where GSO cuts, super-packets save work.
    let config = Arc::new(Config { burst: 0, ..Config::default() });
    // The secrets must be random in real use: sequence numbers and cookies depend on them.
    let stack =
        |secret| Stack::new(StackConfig { secret: [secret; 16], half_open: 16, connections: 16 });
    let [mut client, mut server] = [stack(1), stack(2)];
    let (here, there): (SocketAddr, SocketAddr) =
        ("192.0.2.1:40000".parse()?, "192.0.2.2:80".parse()?);
    server.listen(None, there.port(), Arc::clone(&config))?;
    let mut now = 0;
    let connection = client.connect(FourTuple { local: here, remote: there }, config, now)?;

    let data: Vec<u8> = (0..LEN).map(|at| ((at * at) >> 7) as u8).collect();
    let (mut written, mut received) = (0, Vec::new());
    let mut accepted: Option<Id> = None;
    let mut path = Path::default();
    while received.len() < LEN {
        // The applications: what has happened, and what they make of it.
        while client.next_event().is_some() {}
        if let Some(mut socket) = client.socket(connection, now)
            && socket.state().is_synchronized()
            && written < LEN
        {
            written += socket.send(&data[written..])?;
        }
        while let Some((id, events)) = server.next_event() {
            if events.any(Events::ACCEPTED) {
                println!("{:8.3} ms  the server has a connection", now as f64 / 1e6);
                accepted = Some(id);
            }
        }
        if let Some(mut socket) = accepted.and_then(|id| server.socket(id, now)) {
            let mut buffer = [0; 65_536];
            while let Ok(len @ 1..) = socket.receive(&mut buffer) {
                received.extend_from_slice(&buffer[..len]);
            }
        }
        // What follows from it goes onto the path.
        path.carry(&mut client, 0, now);
        path.carry(&mut server, 1, now);
        // The next thing that happens: a packet arrives, or a timer is due.
        let deadlines = [client.next_deadline(), server.next_deadline()];
        let arrival = path.packets.front().map(|packet| packet.at);
        let Some(next) = deadlines.into_iter().chain([arrival]).flatten().min() else { break };
        now = now.max(next);
        client.on_time(now);
        server.on_time(now);
        while path.packets.front().is_some_and(|packet| packet.at <= now)
            && let Some(packet) = path.packets.pop_front()
        {
            let payload = [&packet.payload[..]];
            let segment = Segment::new(&Tcp::new(&packet.header[..])?, &payload);
            let stack = if packet.to == 0 { &mut client } else { &mut server };
            stack.receive(&packet.path, &segment, now);
        }
    }
    assert!(received == data, "every byte arrives, once and in order");
    let counters = client.counters();
    println!("{:8.3} ms  all {LEN} bytes have arrived", now as f64 / 1e6);
    println!(
        "{} of {} packets were lost; {} segments were sent again, {} time-outs",
        path.lost, path.sent, counters.retransmissions, counters.timeouts
    );
    Ok(())
}
