//! Datagrams at a rate, into a socket with buffers as they are by default. The sender sends what is due once
//! a millisecond, as iperf3 does.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{Case, Options, Reading, Readings, Row, System, Testbed};
use crate::hosts::SERVER;
use crate::sink::io;

/// Payload of a datagram, in bytes.
const DATAGRAM: usize = 1_448;
/// Payload, in bits per second.
const RATE: f64 = 1e9;
/// How often the sender sends what is due.
const TICK: Duration = Duration::from_millis(1);
/// How long the receiver waits before it looks whether it is to end, and how long the last datagrams may
/// take.
const PATIENCE: Duration = Duration::from_millis(100);

pub(super) fn row(options: &Options) -> Row<'_> {
    let varied = vec![("bytes", DATAGRAM.into()), ("rate", RATE.into())];
    Row::new(Case::Udp, varied, move |system| run(options, system))
}

fn run(options: &Options, system: System) -> Readings {
    let testbed = Testbed::new(system, options)?;
    let (stop, arrived) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let socket = testbed.hosts.server.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))?;
    let socket = socket.map_err(io("listen"))?;
    let to = SocketAddr::from((SERVER, socket.local_addr().map_err(io("listen"))?.port()));
    let receiver = {
        let (stop, arrived) = (Arc::clone(&stop), Arc::clone(&arrived));
        std::thread::spawn(move || receive(&socket, &stop, &arrived))
    };
    let before = testbed.read()?;
    let duration = options.duration;
    let sent = testbed.hosts.client.run(|| send(to, duration))?;
    let after = testbed.read()?;
    std::thread::sleep(PATIENCE);
    stop.store(true, Ordering::Relaxed);
    let received = receiver.join().unwrap_or_else(|_| Err(io::Error::other("a panic")));
    received.map_err(io("receive"))?;
    let sent = sent.map_err(io("send"))?;
    testbed.stop()?;
    let arrived = arrived.load(Ordering::Relaxed);
    let lost = sent.saturating_sub(arrived) as f64 / sent.max(1) as f64;
    let mut readings = vec![Reading::new("loss", "%", 100.0 * lost)];
    readings.extend(after.since(&before, arrived * DATAGRAM as u64));
    Ok(readings)
}

/// How many datagrams were sent.
fn send(to: SocketAddr, duration: Duration) -> io::Result<u64> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect(to)?;
    let data = [0x55; DATAGRAM];
    let (begun, mut sent) = (Instant::now(), 0);
    loop {
        let elapsed = begun.elapsed().min(duration);
        let due = (elapsed.as_secs_f64() * RATE / (8.0 * DATAGRAM as f64)) as u64;
        while sent < due {
            socket.send(&data)?;
            sent += 1;
        }
        if elapsed == duration {
            return Ok(sent);
        }
        std::thread::sleep(TICK);
    }
}

fn receive(socket: &UdpSocket, stop: &AtomicBool, arrived: &AtomicU64) -> io::Result<()> {
    socket.set_read_timeout(Some(PATIENCE / 2))?;
    let mut buffer = [0; DATAGRAM];
    while !stop.load(Ordering::Relaxed) {
        match socket.recv(&mut buffer) {
            Ok(_) => drop(arrived.fetch_add(1, Ordering::Relaxed)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
