//! The receiver behind a veth, on whose other side real kernels' TCP sends.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nic::config::Config;

use crate::Error;
use crate::case::Case;
use crate::hosts::{Hosts, SERVER};
use crate::meter::{Measured, Meter};
use crate::sink::{Listening, Sink, SinkMode, io};

/// Bytes of one `write`.
const CHUNK: usize = 256 << 10;
/// A connection that stands still for so long has failed.
const STALLED: Duration = Duration::from_secs(10);

/// Measures one run for so long.
pub(crate) fn measure(
    case: Case,
    connections: usize,
    config: &Config,
    nanoseconds: u64,
) -> Result<Measured, Error> {
    let hosts = Hosts::new()?;
    let nic = match case {
        Case::KernelGro => {
            hosts.bare_kernel()?;
            None
        }
        Case::On | Case::Off => {
            let mut config = config.clone();
            config.lro.enable = case == Case::On;
            Some(hosts.wharf(config)?)
        }
    };
    let listening = Listening::new(&hosts.server)?;
    let senders = Senders::start(&hosts, listening.at(SERVER), connections)?;
    let sink = Sink::start(listening.accept(connections)?, SinkMode::Discard, &[])?;
    let measured = Meter::measure(&hosts.server, &sink, nanoseconds, None)?;
    senders.stop()?;
    sink.stop()?;
    if let Some(nic) = nic {
        nic.stop().map_err(io("end wharf"))?;
    }
    Ok(measured)
}

/// A thread for each connection, which writes as fast as the connection lets it.
struct Senders {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<sys::Result<io::Result<()>>>>,
}

impl Senders {
    fn start(hosts: &Hosts, to: SocketAddr, connections: usize) -> Result<Self, Error> {
        let mut senders = Senders { stop: Arc::default(), threads: Vec::new() };
        for _ in 0..connections {
            let stop = Arc::clone(&senders.stop);
            senders.threads.push(hosts.client.spawn(move || send(to, &stop))?);
        }
        Ok(senders)
    }

    fn stop(self) -> Result<(), Error> {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            let ended = thread.join().unwrap_or_else(|_| Ok(Err(io::Error::other("a panic"))));
            ended?.map_err(io("send"))?;
        }
        Ok(())
    }
}

fn send(to: SocketAddr, stop: &AtomicBool) -> io::Result<()> {
    // The same on every machine, where it is to be had: BBR's pacing, the default of some, would
    // be what is measured, and outlives a later change.
    let connected = sys::tcp::connect(to, "cubic");
    let mut stream = connected.or_else(|_| TcpStream::connect_timeout(&to, STALLED))?;
    stream.set_write_timeout(Some(STALLED))?;
    let data = vec![0x55; CHUNK];
    while !stop.load(Ordering::Relaxed) {
        stream.write_all(&data)?;
    }
    Ok(())
}
