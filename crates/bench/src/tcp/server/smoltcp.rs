//! smoltcp's TCP behind its own TAP device, in the loop of its own benchmark (`examples/benchmark.rs`):
//! what it sends is whatever its buffer holds, and what it receives is dropped where it lies.

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;

use smoltcp::iface::{Config, Interface, SocketSet};
use smoltcp::phy::{Medium, TunTapInterface, wait};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{EthernetAddress, IpCidr};

use super::{PORT, Service};
use crate::Error;
use crate::sink::io as doing;
use crate::tcp::cores;
use crate::tcp::testbed::{self, NEAR, PREFIX_LEN, SERVER, Testbed};

/// Bytes of each buffer for bulk data. Other sizes were not tried.
const BULK: usize = 256 << 10;
/// Bytes of each buffer where a byte is all there is.
const SMALL: usize = 4 << 10;
/// Sockets that wait for connections while others end, for each that is open.
const SPARE: u32 = 4;
/// How often it is looked whether to stop.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// See the module's documentation.
pub(super) struct Server {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<sys::Result<Result<(), Error>>>>,
}

impl Server {
    pub(super) fn start(
        testbed: &Testbed,
        service: Service,
        connections: u32,
    ) -> Result<Server, Error> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let (ready, is_ready) = mpsc::channel();
        let core = testbed.cores.map(|cores| cores.server);
        let thread = testbed.client.spawn(move || {
            cores::enter(core).map_err(doing("pin a thread"))?;
            run(service, connections, &stopped, &ready)
        })?;
        let server = Server { stop, thread: Some(thread) };
        match is_ready.recv() {
            Ok(()) => Ok(server),
            Err(_) => Err(server.why()),
        }
    }

    /// Why it has ended.
    fn why(mut self) -> Error {
        let ended = self.thread.take().map(JoinHandle::join);
        match ended {
            Some(Ok(Ok(Err(error)))) => error,
            Some(Ok(Err(error))) => error.into(),
            _ => failed("it ended"),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // A client that gets no more bytes reports what is wrong.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn failed(why: impl ToString) -> Error {
    Error::Failed { system: "smoltcp", why: why.to_string() }
}

fn run(
    service: Service,
    connections: u32,
    stop: &AtomicBool,
    ready: &Sender<()>,
) -> Result<(), Error> {
    let mut device = TunTapInterface::new(NEAR, Medium::Ethernet).map_err(failed)?;
    let mut config = Config::new(EthernetAddress([2, 0, 0, 0, 0, 1]).into());
    config.random_seed = 7;
    let mut interface = Interface::new(config, &mut device, Instant::now());
    interface.update_ip_addrs(|addresses| {
        // Of the first address there is always room.
        let _ = addresses.push(IpCidr::new(SERVER.into(), PREFIX_LEN));
    });
    testbed::near(true)?;
    let mut sockets = SocketSet::new(Vec::new());
    let (size, count) = match service {
        Service::Sink | Service::Source => (BULK, connections),
        Service::Echo => (SMALL, connections * SPARE),
    };
    let buffer = || SocketBuffer::new(vec![0; size]);
    let handles: Vec<_> =
        (0..count).map(|_| sockets.add(Socket::new(buffer(), buffer()))).collect();
    let mut is_ready = false;
    for &handle in &handles {
        serve(sockets.get_mut::<Socket<'_>>(handle), service)?;
    }
    while !stop.load(Ordering::Relaxed) {
        interface.poll(Instant::now(), &mut device, &mut sockets);
        for &handle in &handles {
            serve(sockets.get_mut::<Socket<'_>>(handle), service)?;
        }
        if !is_ready {
            is_ready = true;
            // The thread that started it waits for this.
            let _ = ready.send(());
        }
        let delay = interface.poll_delay(Instant::now(), &sockets).unwrap_or(LOOK_EVERY);
        if delay > Duration::ZERO {
            wait(device.as_raw_fd(), Some(delay.min(LOOK_EVERY)))
                .map_err(doing("wait for the TAP"))?;
        }
    }
    Ok(())
}

/// What its application does.
fn serve(socket: &mut Socket<'_>, service: Service) -> Result<(), Error> {
    if !socket.is_open() {
        socket.set_nagle_enabled(service != Service::Echo);
        socket.listen(PORT).map_err(failed)?;
        return Ok(());
    }
    match service {
        Service::Sink => {
            while socket.can_recv() {
                socket.recv(|bytes| (bytes.len(), ())).map_err(failed)?;
            }
        }
        Service::Source => {
            while socket.can_send() {
                socket.send(|room| (room.len(), ())).map_err(failed)?;
            }
        }
        Service::Echo => {
            let mut bytes = [0; 64];
            while socket.can_recv() && socket.can_send() {
                let len = socket.recv_slice(&mut bytes).map_err(failed)?;
                socket.send_slice(&bytes[..len]).map_err(failed)?;
            }
        }
    }
    if socket.state() == State::CloseWait {
        socket.close();
    }
    Ok(())
}
