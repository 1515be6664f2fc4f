//! A service manager (sd_notify(3)): what it is told, and descriptors that it keeps while the service is started again
//! (`FileDescriptorStoreMax=` of systemd.service(5)).

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use crate::error::check;
use crate::packets::PacketSocket;

/// Where the service manager listens.
const SOCKET: &str = "NOTIFY_SOCKET";
/// The first of the descriptors that it gives (`SD_LISTEN_FDS_START`).
const FIRST: i32 = 3;

/// The way to the service manager, which is never waited for.
#[derive(Debug)]
pub struct Notify(PacketSocket);

impl Notify {
    /// To the one that started this process (`NOTIFY_SOCKET`); `None` if there is none, or it does not want to be told.
    ///
    /// # Errors
    /// What connect(2) says.
    pub fn of_environment() -> io::Result<Option<Notify>> {
        env::var_os(SOCKET)
            .filter(|path| !path.is_empty())
            .map(|path| Notify::to(&path))
            .transpose()
    }

    /// To one that listens at a path, or under an abstract name behind `@`.
    ///
    /// # Errors
    /// `InvalidInput` for one that is too long; what connect(2) says.
    pub fn to(path: &OsStr) -> io::Result<Notify> {
        let address = match path.as_bytes().split_first() {
            Some((b'@', name)) => SocketAddr::from_abstract_name(name)?,
            _ => SocketAddr::from_pathname(path)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&address)?;
        socket.set_nonblocking(true)?;
        Ok(Notify(OwnedFd::from(socket).into()))
    }

    /// Tells it that the service is up (`Type=notify`).
    ///
    /// # Errors
    /// `WouldBlock` if it does not read fast enough.
    pub fn ready(&self) -> io::Result<()> {
        self.0.send(b"READY=1", &[])
    }

    /// Asks it to keep a descriptor under a name, however this process ends: it does not look whether that is ready for
    /// anything. The name has neither colons nor control characters.
    ///
    /// # Errors
    /// `WouldBlock` if it does not read fast enough.
    pub fn store(&self, name: &str, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        let text = format!("FDSTORE=1\nFDNAME={name}\nFDPOLL=0");
        self.0.send(text.as_bytes(), &[descriptor])
    }

    /// Asks it to close what it keeps under a name.
    ///
    /// # Errors
    /// `WouldBlock` if it does not read fast enough.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        self.0.send(format!("FDSTOREREMOVE=1\nFDNAME={name}").as_bytes(), &[])
    }
}

/// The descriptors that the service manager gives to this process, each with its name (`LISTEN_FDS`, sd_listen_fds(3)). To
/// be called once, before anything else is opened.
pub fn passed() -> Vec<(String, OwnedFd)> {
    let text = |name: &str| env::var(name).ok();
    // For another process, of which this one is a child.
    let is_ours = text("LISTEN_PID").and_then(|pid| pid.parse().ok()) == Some(std::process::id());
    let count = text("LISTEN_FDS").and_then(|count| count.parse::<i32>().ok()).unwrap_or(0);
    if !is_ours {
        return Vec::new();
    }
    let names = text("LISTEN_FDNAMES").unwrap_or_default();
    let all = names.split(':').map(str::to_owned).chain(std::iter::repeat(String::new()));
    let mut passed = Vec::new();
    for (fd, name) in (FIRST..FIRST.saturating_add(count.max(0))).zip(all) {
        // Children do not get it. SAFETY: fcntl with F_SETFD takes integers.
        if check(unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) }).is_err() {
            // There are not so many.
            break;
        }
        // SAFETY: it is open, and the service manager gave it to this process; nothing else owns it, as nothing was
        // opened before, and this is called once.
        passed.push((name, unsafe { OwnedFd::from_raw_fd(fd) }));
    }
    passed
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_manager_is_told_and_given_descriptors() {
        let name = format!("wharf-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        manager.set_nonblocking(true).unwrap();
        let notify = Notify::to(OsStr::new(&format!("@{name}"))).unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        notify.store("p1", file.as_fd()).unwrap();
        notify.remove("p1").unwrap();
        let manager = PacketSocket::from(OwnedFd::from(manager));
        let mut bytes = [0; 256];
        let told = manager.receive(&mut bytes).unwrap();
        assert_eq!(told.descriptors.len(), 1);
        assert_eq!(&bytes[..told.len], b"FDSTORE=1\nFDNAME=p1\nFDPOLL=0");
        let told = manager.receive(&mut bytes).unwrap();
        assert_eq!(&bytes[..told.len], b"FDSTOREREMOVE=1\nFDNAME=p1");
        // One that does not read is not waited for.
        let full = (0..100_000).find_map(|_| notify.remove("p1").err());
        assert_eq!(full.map(|error| error.kind()), Some(io::ErrorKind::WouldBlock));
        assert!(passed().is_empty(), "nothing was given to a test");
    }
}
