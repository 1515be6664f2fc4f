//! One TCP connection of two kernels, with Reno.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use super::wan::{ADDRESSES, Wan};
use crate::Error;
use crate::sink::io;

/// Until Reno's window goes up and down around its mean, whatever slow start has made of it.
const WARM_UP: Duration = Duration::from_secs(2);
/// How often the round-trip time is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// A connection that stands still for so long has failed.
const STALLED: Duration = Duration::from_secs(20);

/// The outcome of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    /// Bits of payload received in a second.
    pub(super) throughput: f64,
    /// The mean of the sender's smoothed round-trip time, in seconds.
    pub(super) rtt: f64,
}

/// Sends from left to right for so long.
pub(super) fn run(wan: &Wan, duration: Duration) -> Result<Outcome, Error> {
    let [left, right] = &wan.hosts;
    let at = SocketAddr::from((ADDRESSES[1], 0));
    let listener = right.run(move || TcpListener::bind(at))?.map_err(io("listen"))?;
    let to = listener.local_addr().map_err(io("listen"))?;
    let sender = left.run(move || sys::tcp::connect(to, "reno"))?.map_err(io("connect"))?;
    let (mut receiver, _) = listener.accept().map_err(io("accept"))?;
    sender.set_write_timeout(Some(STALLED)).map_err(io("set a timeout"))?;
    receiver.set_read_timeout(Some(STALLED)).map_err(io("set a timeout"))?;
    let mut writer = sender.try_clone().map_err(io("keep a connection"))?;
    // It ends with an error when the receiver closes.
    let writing = std::thread::spawn(move || {
        let data = vec![0x55; 64 << 10];
        while writer.write_all(&data).is_ok() {}
    });
    let mut buffer = vec![0; 256 << 10];
    let began = Instant::now();
    let (mut bytes, mut since) = (0_u64, None);
    let (mut rtts, mut looked) = (Vec::new(), began);
    let ended = loop {
        let now = Instant::now();
        if since.is_none() && now - began >= WARM_UP {
            since = Some(now);
        }
        if let Some(since) = since {
            if now - since >= duration {
                break now;
            }
            if now - looked >= LOOK_EVERY {
                looked = now;
                rtts.push(sys::tcp::smoothed_rtt(&sender).map_err(io("ask for the RTT"))?);
            }
        }
        let len = receiver.read(&mut buffer).map_err(io("receive"))?;
        if since.is_some() {
            bytes += len as u64;
        }
    };
    drop(receiver);
    let _ = sender.shutdown(std::net::Shutdown::Both);
    let _ = writing.join();
    let seconds = (ended - since.unwrap_or(ended)).as_secs_f64();
    let rtt = rtts.iter().map(Duration::as_secs_f64).sum::<f64>() / rtts.len().max(1) as f64;
    Ok(Outcome { throughput: bytes as f64 * 8.0 / seconds, rtt })
}
