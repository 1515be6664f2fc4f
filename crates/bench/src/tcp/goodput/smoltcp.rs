//! smoltcp as the peer, with buffers of 64 KB, on a TAP of its own.

use std::os::fd::AsRawFd;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use smoltcp::iface::{Config, Interface, SocketSet};
use smoltcp::phy::{Medium, TunTapInterface, wait};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::{Duration as Pause, Instant};
use smoltcp::wire::{EthernetAddress, IpCidr};
use sys::netns::Namespace;

use super::{LIMIT, Transfer};
use crate::Error;
use crate::sink::io as doing;
use crate::tcp::server::PORT;
use crate::tcp::testbed::{CLIENT, PREFIX_LEN, SERVER};

/// Bytes of each buffer: as much as goes without window scaling.
const BUFFER: usize = 65_535;
const OWN_PORT: u16 = 49_152;
/// How often it is looked whether time is over.
const LOOK_EVERY: Pause = Pause::from_millis(100);

/// A thread that has made its TAP, and waits for the start.
pub(super) struct Client {
    begin: Option<Sender<()>>,
    thread: Option<JoinHandle<sys::Result<Result<Duration, Error>>>>,
}

impl Client {
    pub(super) fn start(
        middle: &Namespace,
        tap: &'static str,
        transfer: Transfer,
    ) -> Result<Client, Error> {
        let (ready, is_ready) = mpsc::channel();
        let (begin, begins) = mpsc::channel();
        let thread = middle.spawn(move || work(tap, transfer, &ready, &begins))?;
        let mut client = Client { begin: Some(begin), thread: Some(thread) };
        match is_ready.recv() {
            Ok(()) => Ok(client),
            Err(_) => Err(client.end().err().unwrap_or_else(|| failed("it ended"))),
        }
    }

    pub(super) fn run(&mut self) -> Result<Duration, Error> {
        if let Some(begin) = &self.begin {
            // The error of one that has ended is reported below.
            let _ = begin.send(());
        }
        self.end()
    }

    fn end(&mut self) -> Result<Duration, Error> {
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(ended)) => ended?,
            _ => Err(failed("it panicked")),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // One that still waits ends now.
        self.begin = None;
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn failed(why: impl ToString) -> Error {
    Error::Failed { system: "smoltcp", why: why.to_string() }
}

fn work(
    tap: &str,
    transfer: Transfer,
    ready: &Sender<()>,
    begins: &Receiver<()>,
) -> Result<Duration, Error> {
    let mut device = TunTapInterface::new(tap, Medium::Ethernet).map_err(failed)?;
    let mut config = Config::new(EthernetAddress([2, 0, 0, 0, 0, 1]).into());
    config.random_seed = 7;
    let mut interface = Interface::new(config, &mut device, Instant::now());
    interface.update_ip_addrs(|addresses| {
        // Of the first address there is always room.
        let _ = addresses.push(IpCidr::new(CLIENT.into(), PREFIX_LEN));
    });
    let _ = ready.send(());
    if begins.recv().is_err() {
        return Err(failed("it was not told to begin"));
    }
    let buffer = || SocketBuffer::new(vec![0; BUFFER]);
    let mut sockets = SocketSet::new(Vec::new());
    let handle = sockets.add(Socket::new(buffer(), buffer()));
    let socket = sockets.get_mut::<Socket<'_>>(handle);
    socket.connect(interface.context(), (SERVER, PORT), OWN_PORT).map_err(failed)?;
    let asked = std::time::Instant::now();
    let mut conversation = Conversation { transfer, began: None, left: transfer.bytes };
    loop {
        interface.poll(Instant::now(), &mut device, &mut sockets);
        if let Some(took) = conversation.go_on(sockets.get_mut::<Socket<'_>>(handle))? {
            return Ok(took);
        }
        if asked.elapsed() > LIMIT {
            return Err(failed("it takes too long"));
        }
        let delay = interface.poll_delay(Instant::now(), &sockets).unwrap_or(LOOK_EVERY);
        if delay > Pause::ZERO {
            wait(device.as_raw_fd(), Some(delay.min(LOOK_EVERY)))
                .map_err(doing("wait for the TAP"))?;
        }
    }
}

struct Conversation {
    transfer: Transfer,
    /// When the connection was open.
    began: Option<std::time::Instant>,
    left: u64,
}

impl Conversation {
    /// What the application does; how long all took, when it is over.
    fn go_on(&mut self, socket: &mut Socket<'_>) -> Result<Option<Duration>, Error> {
        if matches!(socket.state(), State::SynSent | State::SynReceived) {
            return Ok(None);
        }
        let began = *self.began.get_or_insert_with(std::time::Instant::now);
        if self.transfer.way.is_send() {
            while self.left > 0 && socket.can_send() {
                let most = self.left.min(BUFFER as u64) as usize;
                let write = |room: &mut [u8]| (room.len().min(most), room.len().min(most));
                self.left -= socket.send(write).map_err(failed)? as u64;
            }
            if self.left == 0 {
                socket.close();
            }
            // What was sent has been acknowledged, and the server has closed as well.
            if self.left == 0 && matches!(socket.state(), State::TimeWait | State::Closed) {
                return Ok(Some(began.elapsed()));
            }
        } else {
            while self.left > 0 && socket.can_recv() {
                let read = socket.recv(|bytes| (bytes.len(), bytes.len())).map_err(failed)?;
                self.left = self.left.saturating_sub(read as u64);
            }
            if self.left == 0 {
                return Ok(Some(began.elapsed()));
            }
        }
        match socket.is_active() {
            true => Ok(None),
            false => Err(failed("the connection broke")),
        }
    }
}
