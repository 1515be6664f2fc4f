//! The kernel's TCP, with a server that reads and writes as programs do: by `read` and `write`, a
//! thread for each connection that is busy all the time, one thread for all that are not.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use sys::epoll::Epoll;

use super::{PORT, Service};
use crate::Error;
use crate::sink::io as doing;
use crate::tcp::cores;
use crate::tcp::testbed::{PREFIX_LEN, SERVER, Testbed};

/// Bytes of one read or write.
const CHUNK: usize = 256 << 10;
/// Bytes of one read of those that are echoed.
const ECHO: usize = 4096;
/// How often it is looked whether to stop, in milliseconds.
const LOOK_EVERY: u16 = 10;
/// The listener among the descriptors.
const LISTENER: u64 = u64::MAX;

/// See the module's documentation.
#[derive(Debug)]
pub(in crate::tcp) struct Server {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<sys::Result<io::Result<()>>>>,
}

/// Gives the kernel of the server's host its address.
pub(in crate::tcp) fn address(testbed: &Testbed) -> Result<(), Error> {
    let far = testbed.far.clone();
    Ok(testbed.server.run(move || -> sys::Result<()> {
        let index = sys::interface::index(&far)?;
        sys::netlink::address::add(index, SERVER.into(), PREFIX_LEN, true)
    })??)
}

impl Server {
    pub(in crate::tcp) fn start(
        testbed: &Testbed,
        own: IpAddr,
        service: Service,
    ) -> Result<Server, Error> {
        let (host, core) = (&testbed.server, testbed.cores.map(|cores| cores.server));
        let at = SocketAddr::new(own, PORT);
        let listener = host.run(move || TcpListener::bind(at))?.map_err(doing("listen"))?;
        // What is accepted has it from the start.
        sys::tcp::set_congestion_control(&listener, "cubic").map_err(doing("ask for CUBIC"))?;
        listener.set_nonblocking(true).map_err(doing("listen"))?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = host.spawn(move || {
            cores::enter(core)?;
            match service {
                Service::Echo => echo(&listener, &stopped),
                Service::Sink | Service::Source => serve(&listener, service, &stopped),
            }
        })?;
        Ok(Server { stop, thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // A client that gets no more bytes reports what is wrong.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// A thread for each connection, which ends with its peer.
fn serve(listener: &TcpListener, service: Service, stop: &Arc<AtomicBool>) -> io::Result<()> {
    let mut threads = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                let timeout = Some(Duration::from_millis(LOOK_EVERY.into()));
                stream.set_read_timeout(timeout)?;
                stream.set_write_timeout(timeout)?;
                let stop = Arc::clone(stop);
                threads.push(std::thread::spawn(move || work(stream, service, &stop)));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(LOOK_EVERY.into()));
            }
            Err(error) => return Err(error),
        }
    }
    threads.into_iter().for_each(|thread| drop(thread.join()));
    Ok(())
}

/// Runs until the peer closes or `stop` is set.
fn work(mut stream: TcpStream, service: Service, stop: &AtomicBool) {
    let mut buffer = vec![0x55; CHUNK];
    while !stop.load(Ordering::Relaxed) {
        let moved = match service {
            Service::Source => stream.write(&buffer),
            Service::Sink | Service::Echo => stream.read(&mut buffer),
        };
        match moved {
            Ok(0) => return,
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return,
            _ => {}
        }
    }
}

/// One thread that answers all connections on which something came.
fn echo(listener: &TcpListener, stop: &AtomicBool) -> io::Result<()> {
    let mut epoll = Epoll::new()?;
    epoll.add(listener.as_fd(), LISTENER)?;
    let mut streams: HashMap<u64, TcpStream> = HashMap::new();
    let mut next = 0;
    let mut buffer = [0; ECHO];
    while !stop.load(Ordering::Relaxed) {
        epoll.wait(LOOK_EVERY)?;
        for number in epoll.ready() {
            if number == LISTENER {
                while let Ok((stream, _)) = listener.accept() {
                    stream.set_nodelay(true)?;
                    epoll.add(stream.as_fd(), next)?;
                    streams.insert(next, stream);
                    next += 1;
                }
            } else if let Some(stream) = streams.get_mut(&number) {
                let gone = match stream.read(&mut buffer) {
                    Ok(0) | Err(_) => true,
                    Ok(len) => stream.write_all(&buffer[..len]).is_err(),
                };
                if gone {
                    streams.remove(&number);
                }
            }
        }
    }
    Ok(())
}
