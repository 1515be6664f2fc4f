//! A router-in-the-middle: what arrives at one interface leaves at the other, as degen says.
//!
//! One thread serves both. The kernel stamps each frame when it receives it, and the delay counts from
//! that stamp (`rdma-over-ip` section 3), so what is asked for is what is added, however long the
//! thread took to come by. It takes all that waits in bursts, and sleeps until shortly before the next
//! frame is due.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;

use sys::interface::Interface;

use super::directions::Directions;
use super::forwarder::{Forwarder, Ports};
use super::handle::{self, Handle};
use super::settings::{Direction, Settings};
use super::snapshot::Snapshot;
use crate::config::WireMode;
use crate::counters::Entry;
use crate::error::Error;
use crate::open::bridge::{Ends, Wires};
use crate::open::{self, Held};
use crate::port::Wire;

/// Two interfaces and degen between them.
#[derive(Debug)]
pub struct Bridge {
    handle: Arc<Handle>,
    ports: Arc<Ports>,
    thread: Option<JoinHandle<io::Result<()>>>,
    interfaces: [Interface; 2],
    /// Found gone, of each interface.
    gone: [AtomicBool; 2],
    port: &'static str,
    notices: Vec<String>,
    held: Vec<Held>,
}

/// How frames are carried, whatever is done to them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Carriage {
    /// How many may be in flight or wait.
    pub frames: u32,
    /// What they come and go by.
    pub mode: WireMode,
    /// Before all else that the CPU has to do (`SCHED_FIFO`), where that is allowed: what else this
    /// machine does is then not felt on the path, but degen by what shares its CPU.
    pub real_time: bool,
    /// The thread never sleeps for longer than it must to leave others a part of its CPU: to be woken takes long where
    /// an idle CPU is given to others, as a virtual machine's is. It takes all of a CPU, at all times.
    pub awake: bool,
}

impl Bridge {
    /// Begins to forward frames between two interfaces, which are set up, in the network namespace of
    /// the calling thread.
    ///
    /// # Errors
    /// See [`Error`]; nothing is left behind.
    pub fn start(
        between: [&str; 2],
        settings: &Settings,
        carriage: Carriage,
    ) -> Result<Bridge, Error> {
        let Carriage { frames, mode, real_time, awake } = carriage;
        let mut notices = Vec::new();
        let interfaces = [open::find_wire(between[0])?, open::find_wire(between[1])?];
        for name in between {
            open::set_up(name)?;
        }
        let Ends { wires, pool, held } = Ends::open(&interfaces, frames, mode, &mut notices)?;
        let handle = handle::handle(settings.configs.clone()).map_err(Error::Worker)?;
        let handle = Arc::new(handle);
        let ports = Arc::new(Ports::default());
        let directions = Directions::new(settings, Arc::clone(&handle), sys::clock::now());
        let port = wires.name();
        let (say, said) = mpsc::channel();
        let start = real_time.then_some(say);
        let thread = match wires {
            Wires::Xdp(wires) => {
                spawn(Forwarder::new(directions, wires, pool, Arc::clone(&ports), awake), start)
            }
            Wires::Packet(wires) => {
                spawn(Forwarder::new(directions, wires, pool, Arc::clone(&ports), awake), start)
            }
        };
        let thread = Some(thread.map_err(Error::Worker)?);
        if let Ok(Err(error)) = said.recv() {
            notices.push(format!(
                "not in real time ({error}; it takes CAP_SYS_NICE): frames are late when others use \
                 the CPU"
            ));
        }
        tracing::info!("{} and {} are open by {port}", between[0], between[1]);
        let gone = Default::default();
        Ok(Bridge { handle, ports, thread, interfaces, port, gone, notices, held })
    }

    /// What frames come and go by: `AF_XDP` or `AF_PACKET`.
    pub fn port(&self) -> &'static str {
        self.port
    }

    /// What did not go as well as it might have, and why; one line each.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// To change what is done to frames, and to see it.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// All counters.
    pub fn counters(&self) -> Vec<Entry> {
        let snapshot: Snapshot = self.handle.snapshot();
        let mut entries = snapshot.entries(Direction::BOTH.map(Direction::name));
        for (group, port) in ["first", "second"].into_iter().zip(self.ports.read()) {
            entries.push(Entry { group, name: "rx_dropped", value: port.dropped });
            entries.push(Entry { group, name: "tx_lost", value: port.lost });
        }
        entries
    }

    /// Whether it has ended by itself, or an interface is gone. To be asked in the network namespace that it
    /// was started in.
    pub fn has_failed(&self) -> bool {
        for (info, gone) in self.interfaces.iter().zip(&self.gone) {
            let found = Interface::by_index(info.index);
            if found.is_err_and(|error| error.is_missing()) {
                gone.store(true, Ordering::Relaxed);
            }
        }
        self.gone.iter().any(|gone| gone.load(Ordering::Relaxed))
            || self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Looks whether frames still come by all queues of both interfaces. To be called now and then, in
    /// the network namespace that it was started in.
    ///
    /// # Errors
    /// They do not, and what to do about it.
    pub fn look_at_queues(&self) -> Result<(), Error> {
        self.held.iter().try_for_each(Held::look_at_queues)
    }

    /// Ends; what is in flight is lost.
    ///
    /// # Errors
    /// What made it end before it was told to.
    pub fn stop(mut self) -> io::Result<()> {
        let ended = self.end();
        let gone = self.gone.iter().zip(&self.interfaces);
        let gone: Vec<&str> = gone
            .filter(|(gone, _)| gone.load(Ordering::Relaxed))
            .map(|(_, info)| info.name.as_str())
            .collect();
        match gone[..] {
            [] => ended,
            [one] => Err(io::Error::other(format!("the interface {one} is gone"))),
            _ => Err(io::Error::other(format!("the interfaces {} are gone", gone.join(" and ")))),
        }
    }

    fn end(&mut self) -> io::Result<()> {
        self.handle.stop();
        let panicked = |_| Err(io::Error::other("degen panicked"));
        self.thread.take().map_or(Ok(()), |thread| thread.join().unwrap_or_else(panicked))
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        // `stop` tells why it ended.
        let _ = self.end();
    }
}

fn spawn<W: Wire + Send + 'static>(
    carrier: Forwarder<W>,
    in_real_time: Option<Sender<io::Result<()>>>,
) -> io::Result<JoinHandle<io::Result<()>>> {
    let thread = std::thread::Builder::new().name("wharf-degen".to_owned());
    thread.spawn(move || carrier.run(in_real_time))
}
