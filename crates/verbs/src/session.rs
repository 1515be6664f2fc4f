//! The device, as this process has it: its Unix socket, and the memory that both map.

use std::os::fd::{IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use libc::c_int;
use rdma::session::control::Control;
use rdma::session::device::Device;
use rdma::session::{MESSAGE_MAX, Reply, Request};
use rdma::verbs::Qp;

use crate::abi::{ibv_context, ibv_pd};
use crate::{os, users};

/// Names the device's address: a path, or `@` and an abstract name.
const ADDRESS: &str = "WHARF_RDMA";

/// Of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Sends,
    Receives,
}

/// See the module's documentation. It lives as long as the process.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) socket: c_int,
    doorbell: c_int,
    pub(crate) memory: &'static [AtomicU64],
    pub(crate) device: Device,
    asks: Mutex<()>,
    /// How far completions were read: of each queue pair, at its place, its number and how many sends are over, and the same
    /// of receives.
    read: Box<[[AtomicU64; 2]]>,
    /// The device is gone.
    is_dead: AtomicBool,
    /// What identifiers of the connection manager share, once there is one: of the session, so that the child of a fork has
    /// its own.
    pub(crate) context: AtomicPtr<ibv_context>,
    pub(crate) domain: AtomicPtr<ibv_pd>,
}

static SESSION: AtomicPtr<Session> = AtomicPtr::new(std::ptr::null_mut());
static BEGIN: Mutex<()> = Mutex::new(());
static AT_FORK: Once = Once::new();

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The session, if there is one: not after a fork, in the child.
#[inline]
pub(crate) fn get() -> Option<&'static Session> {
    // SAFETY: what was stored comes from a box that is never freed.
    unsafe { SESSION.load(Ordering::Acquire).as_ref() }
}

/// Whether the device is gone.
pub(crate) fn is_device_gone() -> bool {
    get().is_none_or(Session::has_died)
}

/// Whether it was seen that the device is gone.
pub(crate) fn is_known_gone() -> bool {
    get().is_some_and(|session| session.is_dead.load(Ordering::Acquire))
}

/// What a read of an event says that found the end of its channel: `EIO` if the device is gone, `ENODEV` in a child. If it is
/// not, another thread has destroyed the channel, and a read of the kernel's would go on waiting. As a process that is
/// killed closes one descriptor after the other, only waiting tells which.
pub(crate) fn ended() -> c_int {
    let Some(session) = get() else { return libc::ENODEV };
    match os::wait_for_end(session.socket) {
        Ok(()) => {
            session.is_dead.store(true, Ordering::Release);
            libc::EIO
        }
        Err(error) => error,
    }
}

/// The session, begun if there is none.
///
/// # Errors
/// What is said on standard error as well, once.
pub(crate) fn begin() -> Result<&'static Session, c_int> {
    if let Some(session) = get() {
        return Ok(session);
    }
    let _alone = lock(&BEGIN);
    if let Some(session) = get() {
        return Ok(session);
    }
    static SAID: Once = Once::new();
    let session = os::uncancelled(|| {
        Session::begin().inspect_err(|(_, why)| {
            SAID.call_once(|| os::say(&format!("no RDMA device: {why}")));
        })
    });
    let session = Box::leak(Box::new(session.map_err(|(error, _)| error)?));
    // Before there is a session: another thread may fork at once.
    // SAFETY: the handler does nothing that is not safe after a fork.
    AT_FORK.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(in_child));
    });
    SESSION.store(session, Ordering::Release);
    Ok(session)
}

/// The child of a fork has no device: its calls fail, and its end does not end the parent's session.
extern "C" fn in_child() {
    let session = SESSION.swap(std::ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: as in `get`.
    if let Some(session) = unsafe { session.as_ref() } {
        os::close(session.socket);
        os::close(session.doorbell);
    }
}

fn address() -> Vec<u8> {
    match std::env::var_os(ADDRESS) {
        Some(address) => address.into_vec(),
        None => format!("@wharf-rdma-{}", os::uid()).into_bytes(),
    }
}

fn text(error: c_int) -> std::io::Error {
    std::io::Error::from_raw_os_error(error)
}

impl Session {
    fn begin() -> Result<Self, (c_int, String)> {
        let address = address();
        let shown = String::from_utf8_lossy(&address).into_owned();
        let with = |what: &'static str| {
            let shown = shown.clone();
            move |error: c_int| (error, format!("{what} {shown}: {}", text(error)))
        };
        let memory = os::own_memory().map_err(|error| {
            let what = match error {
                libc::ENOENT => "there is no /proc: mount it",
                libc::EMFILE | libc::ENFILE => "it has as many descriptors as it may",
                _ => "it is not dumpable (prctl(2), PR_SET_DUMPABLE), or a security module forbids it",
            };
            (error, format!("this process cannot open its own memory, /proc/self/mem: {what}"))
        })?;
        // Only behind that: without /proc the map of user ids cannot be read either, and /proc is what is to be told of.
        users::is_somebody().inspect_err(|_| os::close(memory))?;
        let socket = os::connect(&address).map_err(|error| {
            os::close(memory);
            let (error, why) = with("cannot connect to")(error);
            (
                error,
                format!(
                    "{why}; start one with `wharf rdma`, or this program with `wharf run --rdma`"
                ),
            )
        })?;
        let greeted = Self::greet(socket, memory);
        os::close(memory);
        greeted.map_err(|error| {
            os::close(socket);
            let what = match error {
                libc::EPERM => {
                    let why = format!(
                        "the device at {shown} could not read and write this process's memory: a security module (SELinux, \
                         AppArmor) forbids it, or the device has no /proc or no descriptor left; it says on its standard \
                         error which"
                    );
                    return (error, why);
                }
                libc::EPROTO => {
                    "the device is of another version of wharf, or no descriptor is left here:"
                }
                libc::ECONNRESET | libc::EPIPE => {
                    "the device is of another user, or of another version of wharf:"
                }
                _ => "no session with",
            };
            with(what)(error)
        })
    }

    fn greet(socket: c_int, memory: c_int) -> Result<Self, c_int> {
        if !users::is_trusted(os::peer_uid(socket)?) {
            return Err(libc::ECONNRESET);
        }
        // Any number that is not there by chance.
        let probe = AtomicU64::new(0);
        let address = (&raw const probe).expose_provenance() as u64;
        let nonce = address.rotate_left(32) ^ 0x77_68_61_72_66;
        probe.store(nonce, Ordering::SeqCst);
        let hello = Request::Hello { probe: address, nonce }.encode().map_err(|_| libc::EINVAL)?;
        os::send(socket, &hello, Some(memory))?;
        let (reply, descriptors) = receive(socket)?;
        let is_answered = || probe.load(Ordering::SeqCst) == !nonce;
        let session = Self::welcomed(socket, reply, &descriptors, is_answered);
        // A session keeps one of them.
        let kept = session.as_ref().ok().map(|session| session.doorbell);
        descriptors.into_iter().filter(|one| Some(*one) != kept).for_each(os::close);
        session
    }

    /// Begins by what the device has answered; `is_answered`, in this process's memory too.
    fn welcomed(
        socket: c_int,
        reply: Reply,
        descriptors: &[c_int],
        is_answered: impl FnOnce() -> bool,
    ) -> Result<Self, c_int> {
        let reply = done(reply)?;
        let [shared, doorbell] = *descriptors else { return Err(libc::EPROTO) };
        if !is_answered() {
            return Err(libc::EPERM);
        }
        let bytes = usize::try_from(reply.words[0]).map_err(|_| libc::EPROTO)?;
        let memory = os::map(shared, bytes)?;
        os::send(socket, &Request::Query.encode().map_err(|_| libc::EINVAL)?, None)?;
        let device = Device::decode(&done(receive(socket)?.0)?.words);
        let (asks, is_dead) = (Mutex::new(()), AtomicBool::new(false));
        let read = (0..device.limits.qps).map(|_| Default::default()).collect();
        let (context, domain) = Default::default();
        Ok(Session { socket, doorbell, memory, device, asks, read, is_dead, context, domain })
    }

    /// Asks the device, and waits for its answer.
    ///
    /// # Errors
    /// What the device says; `EIO` if it is gone.
    pub(crate) fn ask(&self, request: &Request<'_>) -> Result<Reply, c_int> {
        self.exchange(request, None).map(|(reply, _)| reply)
    }

    /// The same of what is sent with a descriptor, if there is one.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub(crate) fn ask_with(
        &self,
        request: &Request<'_>,
        descriptor: Option<OwnedFd>,
    ) -> Result<Reply, c_int> {
        let descriptor = descriptor.map(IntoRawFd::into_raw_fd);
        let answered = self.exchange(request, descriptor);
        // Not by close(3) of the C library, in which a thread may be cancelled.
        descriptor.into_iter().for_each(os::close);
        answered.map(|(reply, _)| reply)
    }

    /// The same for what has a descriptor: the device's name for it, and the descriptor.
    ///
    /// # Errors
    /// As [`ask`](Self::ask). `EMFILE` if this process can have no more descriptors: the kernel drops the one that was sent
    /// then, and what was made `ends` at the device.
    pub(crate) fn ask_for(
        &self,
        request: &Request<'_>,
        ends: impl FnOnce(u32) -> Request<'static>,
    ) -> Result<(u32, c_int), c_int> {
        let (reply, descriptor) = self.exchange(request, None)?;
        let number = reply.words[0] as u32;
        if let Some(descriptor) = descriptor {
            return Ok((number, descriptor));
        }
        self.ask(&ends(number))?;
        Err(libc::EMFILE)
    }

    fn exchange(
        &self,
        request: &Request<'_>,
        with: Option<c_int>,
    ) -> Result<(Reply, Option<c_int>), c_int> {
        let message = request.encode().map_err(|_| libc::EINVAL)?;
        let _alone = lock(&self.asks);
        let answered = os::send(self.socket, &message, with).and_then(|()| receive(self.socket));
        match answered {
            Ok((reply, mut descriptors)) => {
                let descriptor = descriptors.pop();
                descriptor.into_iter().for_each(os::set_blocking);
                Ok((done(reply)?, descriptor))
            }
            // Of the socket: what the device answers ends no session.
            Err(libc::ECONNRESET | libc::EPIPE | libc::EBADF) => {
                self.is_dead.store(true, Ordering::Release);
                Err(libc::EIO)
            }
            Err(error) => Err(error),
        }
    }

    #[inline]
    fn read_at(&self, qp: u32, side: Side) -> Option<&AtomicU64> {
        Some(&self.read.get(Qp::new(qp).place())?[side as usize])
    }

    /// Of this queue pair no completion was read: it is there from now on, or begins anew.
    pub(crate) fn read_none(&self, qp: u32) {
        for side in [Side::Sends, Side::Receives] {
            if let Some(at) = self.read_at(qp, side) {
                at.store(u64::from(qp) << 32, Ordering::Release);
            }
        }
    }

    /// The completion of this entry of a queue pair was read, and the place that it had in its queue is free. What is left of
    /// a queue pair that was there before says nothing.
    #[inline]
    pub(crate) fn set_read(&self, qp: u32, side: Side, index: u32) {
        let Some(at) = self.read_at(qp, side) else { return };
        let before = at.load(Ordering::Relaxed);
        if before >> 32 == u64::from(qp) {
            let now = u64::from(qp) << 32 | u64::from(index.wrapping_add(1));
            // Else another queue pair has the place since.
            let _ = at.compare_exchange(before, now, Ordering::Release, Ordering::Relaxed);
        }
    }

    /// How many sends or receives of a queue pair are over, by the completions that were read.
    #[inline]
    pub(crate) fn read(&self, qp: u32, side: Side) -> Option<u32> {
        let word = self.read_at(qp, side)?.load(Ordering::Acquire);
        (word >> 32 == u64::from(qp)).then_some(word as u32)
    }

    /// A queue pair has new posts.
    #[inline]
    pub(crate) fn posted(&self, qp: u32) {
        if let Some(control) = Control::new(self.memory)
            && control.post(Qp::new(qp).place())
        {
            os::ring(self.doorbell);
        }
    }

    /// Whether the device is gone, as was seen before or is now.
    pub(crate) fn has_died(&self) -> bool {
        if !self.is_dead.load(Ordering::Acquire) && os::has_ended(self.socket) {
            self.is_dead.store(true, Ordering::Release);
        }
        self.is_dead.load(Ordering::Acquire)
    }
}

fn receive(socket: c_int) -> Result<(Reply, Vec<c_int>), c_int> {
    let mut message = [0; MESSAGE_MAX];
    let (len, descriptors) = os::receive(socket, &mut message)?;
    if len == 0 {
        return Err(libc::ECONNRESET);
    }
    let reply = Reply::decode(&message[..len]).map_err(|_| libc::EPROTO)?;
    Ok((reply, descriptors))
}

/// The words of a reply that is no error.
fn done(reply: Reply) -> Result<Reply, c_int> {
    match c_int::from(reply.errno) {
        0 => Ok(reply),
        error => Err(error),
    }
}
